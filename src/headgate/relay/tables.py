"""Snapshots of the catalog as relays get them: published once per revision, kept while a log may name them.

A revision that no log names any more is deleted by the service (`headgate.service.purging`). Whoever asks for one that
is gone is told so: it was published before the newest one, and it is not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from headgate.fabric import Fabric, FabricError, head_revision, load_snapshot, newest_readable
from headgate.relay.routes import Routes, build_routes
from headgate.wire.sealed import write_number
from headgate.wire.snapshot import Snapshot, cut_snapshot
from headgate.wire.unreadable import UnreadableError

__all__ = ["GoneError", "Tables", "head_revision", "publish_snapshot"]

_RETRY_S = 0.1
_KEPT = 32
_END = 1 << 62


class GoneError(FabricError):
    """A version of the catalog was deleted, as no log that is still to be read named it."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"version {version} of the catalog is gone, as nothing that is still to be read needed it",
            hint="read on from what was last acknowledged",
        )


async def publish_snapshot(fabric: Fabric, snapshot: Snapshot, most: int | None = None) -> None:
    """Publish a revision, then announce it. A revision that was published before is left as it is.

    One that is larger than a message (`most`; by default nine tenths of the server's limit) is in parts: they are there
    before the message that says so.
    """
    logs, revision = fabric.logs, snapshot.revision
    try:
        published = await load_snapshot(fabric, revision) is not None
    except UnreadableError as error:
        fabric.quarantine.add(error, "published again")
        await fabric.purge(logs.tables, logs.table(revision), _END)
        published = False
    if not published:
        first, *parts = cut_snapshot(snapshot.to_bytes(), most or fabric.max_payload * 9 // 10)
        for number, part in enumerate(parts, 1):
            subject = logs.table_part(revision, number)
            stored = await fabric.last(logs.tables, subject)
            if stored is not None and stored.data != part:  # not what an earlier try put there
                await fabric.purge(logs.tables, subject, _END)
            if stored is None or stored.data != part:
                await fabric.publish(subject, part, expect=0)
        await fabric.publish(logs.table(revision), first, expect=0)
    await fabric.publish(logs.head, write_number(snapshot.revision))


class Tables:
    """Snapshots and routes by version; a reader waits until the version that it needs is there."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._snapshots: dict[int, Snapshot] = {}
        self._routes: dict[tuple[int, str, str], Routes | None] = {}

    async def snapshot(self, version: int) -> Snapshot:
        """The snapshot of a version, waiting for it if need be; `GoneError` when it was deleted.

        `UnreadableError` names the message where something else was published in its place.
        """
        found = self._snapshots.pop(version, None)
        while found is None:
            try:
                found = await self._published(version)
            except GoneError:
                raise
            except FabricError:
                found = None
            if found is None:
                await asyncio.sleep(_RETRY_S)
        self._keep(version, found)
        return found

    async def _published(self, version: int) -> Snapshot | None:
        """The snapshot of a version, None while it was not announced."""
        found = await load_snapshot(self._fabric, version)
        if found is None and (await head_revision(self._fabric) or 0) >= version:
            found = await load_snapshot(self._fabric, version)
            if found is None:
                raise GoneError(version)
        return found

    def known(self, version: int) -> Snapshot | None:
        """The snapshot of a version if it was read lately."""
        return self._snapshots.get(version)

    def _keep(self, version: int, snapshot: Snapshot) -> None:
        """Keep what was asked for last: a reader of old rows needs old versions as often as new ones."""
        self._snapshots[version] = snapshot
        while len(self._snapshots) > _KEPT:
            gone = next(iter(self._snapshots))
            del self._snapshots[gone]
            self._routes = {key: routes for key, routes in self._routes.items() if key[0] != gone}

    async def routes(self, version: int, site: str, stream: str) -> Routes | None:
        """A site's routes for a stream under a version."""
        key = (version, site, stream)
        if key not in self._routes:
            self._routes[key] = build_routes(await self.snapshot(version), site, stream)
        return self._routes[key]

    async def heads(self) -> AsyncIterator[Snapshot]:
        """The newest snapshot, and each newer one as it is announced."""
        logs = self._fabric.logs
        async for _ in self._fabric.follow(logs.state, logs.head):
            revision = await head_revision(self._fabric)
            if revision is None:
                continue
            try:
                snapshot = await self.snapshot(revision)
            except UnreadableError as error:
                self._fabric.quarantine.add(error)
                revision = await newest_readable(self._fabric)
                if revision is None:
                    continue
                snapshot = await self.snapshot(revision)
            yield snapshot
