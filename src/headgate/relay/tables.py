"""Versions of the catalog as those who run from them get them, and the routes that follow from each.

A version is published once (`publish_snapshot`) and kept while a log may name it; the service deletes those that no
log names any more (`headgate.service.purging`). Whoever asks for one that is gone is told so: it was published before
the newest one, and it is not there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Final

from headgate.protocol.port import FabricError, GoneError, LogPort, MachinePort, Stored
from headgate.relay.routes import Routes, build_routes
from headgate.wire.snapshot import Snapshot, cut_snapshot, part_count

_RETRY_S: Final = 0.1
_KEPT: Final = 32


async def publish_snapshot(port: LogPort, snapshot: Snapshot, most: int | None = None) -> None:
    """Publish a revision, then announce it. A revision that was published before is left as it is.

    One that is larger than a message (`most`; by default nine tenths of the server's limit) is in parts: they are there
    before the message that says so.
    """
    logs, revision = port.logs, snapshot.revision
    if await port.last(logs.tables, logs.table(revision)) is None:
        first, *parts = cut_snapshot(snapshot.to_bytes(), most or port.max_payload * 9 // 10)
        for number, part in enumerate(parts, 1):
            if await port.last(logs.tables, logs.table_part(revision, number)) is None:  # or an earlier try put it
                await port.publish(logs.table_part(revision, number), part, expect=0)
        await port.publish(logs.table(revision), first, expect=0)
    await port.publish(logs.head, str(snapshot.revision).encode())


async def head_revision(port: LogPort) -> int | None:
    """The newest announced revision."""
    stored = await port.last(port.logs.state, port.logs.head)
    return None if stored is None else int(stored.data)


class TableCache(ABC):
    """Versions and routes that were asked for lately."""

    def __init__(self) -> None:
        self._snapshots: dict[int, Snapshot] = {}
        self._routes: dict[tuple[int, str, str], Routes | None] = {}

    @abstractmethod
    async def _load(self, version: int) -> Snapshot:
        """Get a version that is not known."""

    async def snapshot(self, version: int) -> Snapshot:
        """A version, waiting for it if need be; `GoneError` when it was deleted."""
        found = self._snapshots.pop(version, None) or await self._load(version)
        # What was asked for last stays: a reader of old rows needs old versions as often as new ones.
        self._snapshots[version] = found
        while len(self._snapshots) > _KEPT:
            gone = next(iter(self._snapshots))
            del self._snapshots[gone]
            self._routes = {key: routes for key, routes in self._routes.items() if key[0] != gone}
        return found

    def known(self, version: int) -> Snapshot | None:
        """A version if it was read lately."""
        return self._snapshots.get(version)

    async def routes(self, version: int, site: str, stream: str) -> Routes | None:
        """A site's routes for a stream under a version."""
        key = (version, site, stream)
        if key not in self._routes:
            self._routes[key] = build_routes(await self.snapshot(version), site, stream)
        return self._routes[key]

    @abstractmethod
    async def newest(self) -> Snapshot:
        """The newest announced version."""


class MachineTables(TableCache):
    """The tables of a machine, which asks for each by a command."""

    def __init__(self, port: MachinePort) -> None:
        super().__init__()
        self._port = port

    async def _load(self, version: int) -> Snapshot:
        return await self._port.table(version)

    async def newest(self) -> Snapshot:
        """The newest announced version, waiting for the first."""
        logs = self._port.logs
        while True:
            stored = (await self._port.next(logs.state, logs.head, 0))[-1]
            return await self.snapshot(int(stored.data))


class Tables(TableCache):
    """The tables of a connection, which reads them from their log."""

    def __init__(self, port: LogPort) -> None:
        super().__init__()
        self._port = port

    async def _load(self, version: int) -> Snapshot:
        while True:
            try:
                stored = await self._stored(version)
                if stored is not None:
                    return Snapshot.from_bytes(await self._whole(version, stored.data))
            except GoneError:
                raise
            except FabricError:
                pass  # the server is away: the version is asked for again until it is there
            await self._port.sleep(_RETRY_S)

    async def _stored(self, version: int) -> Stored | None:
        logs = self._port.logs
        stored = await self._port.last(logs.tables, logs.table(version))
        if stored is None and (await head_revision(self._port) or 0) >= version:
            # It may have been published between the two questions.
            stored = await self._port.last(logs.tables, logs.table(version))
            if stored is None:
                raise GoneError(version)
        return stored

    async def _whole(self, version: int, first: bytes) -> bytes:
        """What was published, put together."""
        logs, parts = self._port.logs, []
        for number in range(1, part_count(first) + 1):
            stored = await self._port.last(logs.tables, logs.table_part(version, number))
            if stored is None:
                raise FabricError(f"part {number} of catalog version {version} is gone", hint="change it once more")
            parts.append(stored.data)
        return b"".join(parts) or first

    async def newest(self) -> Snapshot:
        """The newest announced version, waiting for the first."""
        return await anext(self.heads())

    async def heads(self) -> AsyncIterator[Snapshot]:
        """The newest version, and each newer one as it is announced."""
        place = 0
        while True:
            stored = (await self._port.next(self._port.logs.state, self._port.logs.head, place))[-1]
            place = stored.sequence
            yield await self.snapshot(int(stored.data))
