"""Versions of the catalog as those who run from them get them, and the routes that follow from each.

A version is published once (`publish_snapshot`) and kept while a log may name it; the service deletes those that no
log names any more (`headgate.service.purging`). Whoever asks for one that is gone is told so: it was published before
the newest one, and it is not there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Final

from headgate.diagnostics import FABRIC
from headgate.protocol.port import FabricError, GoneError, LogPort, MachinePort
from headgate.protocol.published import head_revision, load_snapshot, newest_readable
from headgate.relay.routes import Child, Receiver, Routes, build_routes, build_stand_in, stream_receivers
from headgate.wire.sealed import write_number
from headgate.wire.snapshot import Snapshot, SnapshotWriter, cut_snapshot
from headgate.wire.unreadable import UnreadableError

_RETRY_S: Final = 0.1
KEPT: Final = 32
"""So many versions are remembered at most."""
_FEWEST: Final = 4
_KEPT_SUBSCRIPTIONS: Final = 1_000_000  # in all versions that are kept, unless these are the fewest
_END: Final = 1 << 62


async def publish_snapshot(
    port: LogPort, snapshot: Snapshot, most: int | None = None, writer: SnapshotWriter | None = None
) -> None:
    """Publish a revision, then announce it. A revision that was published before is left as it is.

    Whoever publishes one after the other keeps a `writer`, which makes changes of what it has published.

    One that is larger than a message (`most`; by default nine tenths of the server's limit) is in parts: they are there
    before the message that says so.
    """
    logs, revision = port.logs, snapshot.revision
    writer = writer or SnapshotWriter()
    try:
        published = await load_snapshot(port, revision) is not None
    except UnreadableError as error:
        port.quarantine.add(error, "published again")
        await port.purge(logs.tables, logs.table(revision), _END)
        published = False
    if not published:
        first, *parts = cut_snapshot(writer.publication(snapshot), most or port.max_payload * 9 // 10)
        for number, part in enumerate(parts, 1):
            subject = logs.table_part(revision, number)
            stored = await port.last(logs.tables, subject)
            if stored is not None and stored.data != part:  # not what an earlier try put there
                await port.purge(logs.tables, subject, _END)
            if stored is None or stored.data != part:
                await port.publish(subject, part, expect=0)
        await port.publish(logs.table(revision), first, expect=0)
        writer.published(snapshot)
        port.revisions.keep(snapshot)
    await port.publish(logs.head, write_number(snapshot.revision))


class TableCache(ABC):
    """Versions and routes that were asked for lately."""

    def __init__(self) -> None:
        self._snapshots: dict[int, Snapshot] = {}
        self._routes: dict[tuple[int, str, str], Routes | None] = {}
        self._stand_ins: dict[tuple[int, str, str, str], Child | None] = {}
        self._receivers: dict[str, tuple[int, dict[str, list[Receiver]]]] = {}

    @abstractmethod
    async def _load(self, version: int) -> Snapshot:
        """Get a version that is not known."""

    async def snapshot(self, version: int) -> Snapshot:
        """A version, waiting for it if need be; `GoneError` when it was deleted."""
        found = self._snapshots.pop(version, None) or await self._load(version)
        self.keep(found)
        return found

    def keep(self, snapshot: Snapshot) -> None:
        """Remember a version that is known; the service that publishes it need not read it again.

        What was asked for last stays: a reader of old rows needs old versions as often as new ones.
        """
        self._snapshots[snapshot.revision] = snapshot
        size = sum(len(each.subscription_ids) for each in self._snapshots.values())
        while len(self._snapshots) > (KEPT if size <= _KEPT_SUBSCRIPTIONS else _FEWEST):
            gone = next(iter(self._snapshots))
            size -= len(self._snapshots.pop(gone).subscription_ids)
            self._routes = {key: routes for key, routes in self._routes.items() if key[0] != gone}
            self._stand_ins = {key: child for key, child in self._stand_ins.items() if key[0] != gone}

    @property
    def size(self) -> int:
        """How many versions are remembered."""
        return len(self._snapshots)

    def known(self, version: int) -> Snapshot | None:
        """A version if it was read lately."""
        return self._snapshots.get(version)

    async def routes(self, version: int, site: str, stream: str) -> Routes | None:
        """A site's routes for a stream under a version."""
        key = (version, site, stream)
        if key not in self._routes:
            snapshot = await self.snapshot(version)
            self._routes[key] = build_routes(snapshot, site, stream, self._receivers_of(snapshot, stream))
        return self._routes[key]

    async def stand_in(self, version: int, site: str, stream: str, child: str) -> Child | None:
        """A site below another one as if it were its child, under a version."""
        key = (version, site, stream, child)
        if key not in self._stand_ins:
            self._stand_ins[key] = build_stand_in(await self.snapshot(version), site, stream, child)
        return self._stand_ins[key]

    def _receivers_of(self, snapshot: Snapshot, stream: str) -> dict[str, list[Receiver]]:
        """The receivers of a stream by site, found once for the routes of all sites."""
        version, last = self._receivers.get(stream, (0, {}))
        if version != snapshot.revision and stream in snapshot.deployment.streams:
            known = {receiver.id: receiver for found in last.values() for receiver in found}
            last = stream_receivers(snapshot, stream, known)
            self._receivers[stream] = (snapshot.revision, last)
        return last

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
        while True:
            await self._port.next(self._port.logs.state, self._port.logs.head, 0)
            try:
                revision = await head_revision(self._port)
            except FabricError:
                revision = None
            if revision is not None:
                try:
                    return await self.snapshot(revision)
                except GoneError:
                    continue  # newer ones were announced meanwhile, and this one was deleted
            await self._port.sleep(_RETRY_S)


class Tables(TableCache):
    """The tables of a connection, which reads them from their log."""

    def __init__(self, port: LogPort) -> None:
        super().__init__()
        self._port = port

    async def _load(self, version: int) -> Snapshot:
        while True:
            try:
                found = await self._published(version)
            except GoneError:
                raise
            except FabricError as error:  # the server is away: the version is asked for again until it is there
                FABRIC.debug("version %s of the catalog is asked for again: %s", version, error)
                found = None
            if found is not None:
                return found
            await self._port.sleep(_RETRY_S)

    async def _published(self, version: int) -> Snapshot | None:
        """A version, None while it was not announced; `UnreadableError` where something else is in its place."""
        found = await load_snapshot(self._port, version)
        if found is None and (await head_revision(self._port) or 0) >= version:
            # It may have been published between the two questions.
            found = await load_snapshot(self._port, version)
            if found is None:
                raise GoneError(version)
        return found

    async def newest(self) -> Snapshot:
        """The newest announced version, waiting for the first."""
        return await anext(self.heads())

    async def heads(self) -> AsyncIterator[Snapshot]:
        """The newest version, and each newer one as it is announced."""
        place, logs = 0, self._port.logs
        while True:
            place = (await self._port.next(logs.state, logs.head, place))[-1].sequence
            revision = await head_revision(self._port)
            if revision is None:
                continue
            try:
                yield await self.snapshot(revision)
            except UnreadableError as error:
                self._port.quarantine.add(error)
                revision = await newest_readable(self._port)
                if revision is not None:
                    yield await self.snapshot(revision)
