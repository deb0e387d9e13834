"""Snapshots of the catalog as relays get them: published once per revision, kept while a log may name them.

A revision that no log names any more is deleted by the service (`headgate.service.purging`). Whoever asks for one that
is gone is told so: it was published before the newest one, and it is not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from headgate.fabric import Fabric, FabricError, Stored
from headgate.relay.routes import Routes, build_routes
from headgate.wire.snapshot import Snapshot, cut_snapshot, part_count

_RETRY_S = 0.1
_KEPT = 32


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
    if await fabric.last(logs.tables, logs.table(revision)) is None:
        first, *parts = cut_snapshot(snapshot.to_bytes(), most or fabric.max_payload * 9 // 10)
        for number, part in enumerate(parts, 1):
            if await fabric.last(logs.tables, logs.table_part(revision, number)) is None:  # or an earlier try put it
                await fabric.publish(logs.table_part(revision, number), part, expect=0)
        await fabric.publish(logs.table(revision), first, expect=0)
    await fabric.publish(logs.head, str(snapshot.revision).encode())


async def head_revision(fabric: Fabric) -> int | None:
    """The newest announced revision."""
    stored = await fabric.last(fabric.logs.state, fabric.logs.head)
    return None if stored is None else int(stored.data)


class Tables:
    """Snapshots and routes by version; a reader waits until the version that it needs is there."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._snapshots: dict[int, Snapshot] = {}
        self._routes: dict[tuple[int, str, str], Routes | None] = {}

    async def snapshot(self, version: int) -> Snapshot:
        """The snapshot of a version, waiting for it if need be; `GoneError` when it was deleted."""
        found = self._snapshots.pop(version, None)
        while found is None:
            try:
                stored = await self._stored(version)
            except GoneError:
                raise
            except FabricError:
                stored = None
            if stored is None:
                await asyncio.sleep(_RETRY_S)
            else:
                where = f"{self._fabric.logs.tables.name}, {stored.subject}, message {stored.sequence}"
                found = Snapshot.from_bytes(await self._whole(version, stored.data), where)
        self._keep(version, found)
        return found

    async def _stored(self, version: int) -> Stored | None:
        """What was published of a version, None while it was not announced."""
        logs = self._fabric.logs
        stored = await self._fabric.last(logs.tables, logs.table(version))
        if stored is None and (await head_revision(self._fabric) or 0) >= version:
            stored = await self._fabric.last(logs.tables, logs.table(version))
            if stored is None:
                raise GoneError(version)
        return stored

    async def _whole(self, version: int, first: bytes) -> bytes:
        """What was published, put together."""
        logs, parts = self._fabric.logs, []
        for number in range(1, part_count(first) + 1):
            stored = await self._fabric.last(logs.tables, logs.table_part(version, number))
            if stored is None:
                raise FabricError(f"part {number} of catalog version {version} is gone", hint="change it once more")
            parts.append(stored.data)
        return b"".join(parts) or first

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
        async for stored in self._fabric.follow(logs.state, logs.head):
            yield await self.snapshot(int(stored[-1].data))
