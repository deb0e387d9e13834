"""The ledger read from the logs: the root's side from what is stored of it and the manifests since, and the whole.

A commit that cannot be read, or that does not follow the one before it, stops the books of its stream and of no other:
what was counted up to it stays, `StreamBooks.stopped` says why, and the reading is tried again until it can go on. One
that is followed by a commit which goes on from before it was none of the stream's, and is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate.model.start import NOW, takes
from headgate.protocol.port import LogPort, Stored
from headgate.protocol.published import head_revision
from headgate.relay.history import past_counts
from headgate.relay.root import committed
from headgate.relay.tables import TableCache
from headgate.wire.frame import WireError
from headgate.wire.ledger import Tally
from headgate.wire.manifest import Manifest
from headgate.wire.sealed import read_number
from headgate.wire.snapshot import Snapshot
from headgate.wire.sums import Entry, Matched
from headgate.wire.unreadable import UnreadableError, decode_message

STOPPED: Final = "the books of the stream stop before it"


@dataclass(frozen=True, slots=True)
class VersionMembers:
    """Whom a version serves on a stream: the delivery class of each, these classes, and who starts before it came."""

    version: int
    members: Mapping[int, int]
    classes: frozenset[int]
    earlier: tuple[str, ...]

    @classmethod
    def of(cls, snapshot: Snapshot, stream: str) -> VersionMembers:
        """Look through a version once, for all commits that are of it."""
        ids, subscriptions = snapshot.subscription_ids, snapshot.deployment.subscriptions
        names = [name for name, subscription in subscriptions.items() if subscription.stream == stream]
        members = {ids[name]: snapshot.class_ids[name] for name in names}
        earlier = tuple(name for name in names if subscriptions[name].start != NOW)
        return cls(snapshot.revision, members, frozenset(members.values()), earlier)


_NOBODY: Final = VersionMembers(-1, {}, frozenset(), ())


async def add(port: LogPort, tables: TableCache, matched: Matched, manifest: Manifest, served: VersionMembers) -> None:
    """Add a manifest, and before it the history of subscriptions that it serves first and that start earlier."""
    stream = matched.stream
    if served.earlier and not matched.has(manifest):
        snapshot = await tables.snapshot(manifest.version)
        for name in served.earlier:
            identity, subscription = snapshot.subscription_ids[name], snapshot.deployment.subscriptions[name]
            if identity not in matched.starts:
                past = [
                    each
                    async for each in committed(port, stream, manifest.after)
                    if takes(subscription.start, each.upto, each.time_ms)
                ]
                counts = await past_counts(port, tables, served.members[identity], past, snapshot)
                matched.add_history(identity, zip(past, counts, strict=True))
    matched.add(manifest, served.members, served.classes)


def read_tally(data: bytes, subject: str) -> Tally:
    """Read the acknowledgement that was stored on a subject."""
    tally, subscription = Tally.decode(data), read_number(subject.rsplit(".", 1)[1].encode())
    if tally.subscription != subscription:
        raise WireError(f"it is an acknowledgement of subscription {tally.subscription}, not of {subscription}")
    return tally


class Acknowledgements:
    """What every subscriber has acknowledged, as far as it can be read; each look reads what is new."""

    def __init__(self, port: LogPort) -> None:
        self._port = port
        self._place = 0
        self.tallies: dict[int, Tally] = {}

    async def look(self) -> dict[int, Tally]:
        """Everything that was acknowledged by now. One that cannot be read counts as none."""
        port, logs = self._port, self._port.logs
        while batch := await port.read(logs.state, f"{logs.namespace}.ack.*", self._place):
            self._place = batch[-1].sequence
            for stored in batch:
                tally = port.quarantine.take(logs.state, stored, partial(read_tally, subject=stored.subject))
                if tally is not None:
                    self.tallies[tally.subscription] = tally
                else:
                    token = stored.subject.rsplit(".", 1)[1]
                    self.tallies.pop(int(token) if token.isdecimal() else -1, None)
        return self.tallies


async def read_tallies(port: LogPort) -> dict[int, Tally]:
    """What every subscriber has acknowledged, as far as it can be read."""
    return await Acknowledgements(port).look()


async def stored_sums(port: LogPort, stream: str) -> tuple[Matched, int]:
    """The root's side as it was last stored, and the place of that in the state log, 0 when nothing was stored.

    Where it is not there or cannot be read, it is summed up again from the manifests that the root log holds. If some
    of those are gone too, `Matched.lost` says from where on rows are counted.
    """
    logs = port.logs
    stored = await port.last(logs.state, logs.ledger(stream))
    if stored is not None:
        reader = partial(Matched.decode, stream=stream)
        found = port.quarantine.take(logs.state, stored, reader, "summed up again from the manifests")
        if found is not None:
            return found, stored.sequence
    sequence, place = 0 if stored is None else stored.sequence, 0
    while batch := await port.read(logs.root(stream), logs.commit(stream), place, limit=16):
        place = batch[-1].sequence
        for each in batch:
            first = port.quarantine.take(logs.root(stream), each, port.codec.manifest)
            if first is not None:
                return Matched(stream, mark=first.after, lost=first.after), sequence
    return Matched(stream), sequence


class ManifestSums:
    """The manifests of one stream being summed up."""

    def __init__(self, port: LogPort, tables: TableCache, matched: Matched) -> None:
        self._port = port
        self._tables = tables
        self.matched = matched
        self._served = _NOBODY
        self.stopped: HeadgateError | None = None
        """Why it cannot go on, None when it can."""

    async def catch_up(self) -> None:
        """Add every manifest that is there, or stop at one that cannot be added."""
        logs, stream = self._port.logs, self.matched.stream
        while batch := await self._port.read(logs.root(stream), logs.commit(stream), self.matched.place):
            before = self.matched.place
            if not await self.take(batch) and self.matched.place == before:
                return

    async def take(self, batch: Sequence[Stored]) -> bool:
        """Add the manifests that follow, in the order of the log; False when it stops before the end of them."""
        port, log = self._port, self._port.logs.root(self.matched.stream)
        doubt: UnreadableError | None = None
        for stored in batch:
            try:
                manifest = decode_message(log.name, stored, port.codec.manifest)
            except UnreadableError as error:
                doubt = doubt or error
                continue
            trouble = await self._trouble(manifest)
            if trouble:
                doubt = doubt or UnreadableError(log.name, stored.subject, stored.sequence, trouble)
                break
            await add(port, self._tables, self.matched, manifest, await self._served_by(manifest))
            if doubt is not None:
                port.quarantine.add(doubt)
                doubt = None
            self.matched.place = stored.sequence
        if doubt is not None:
            port.quarantine.add(doubt, STOPPED)
        self.stopped = doubt
        return doubt is None

    async def _served_by(self, manifest: Manifest) -> VersionMembers:
        """Whom a commit serves. One without rows serves nobody: a subscription starts with the first that has some."""
        if not manifest.evaluated:
            return _NOBODY
        if self._served.version != manifest.version:
            self._served = VersionMembers.of(await self._tables.snapshot(manifest.version), self.matched.stream)
        return self._served

    async def _trouble(self, manifest: Manifest) -> str:
        """Why a manifest cannot be the next one, nothing when it can."""
        if manifest.stream != self.matched.stream:
            return f"it is a commit of stream {manifest.stream!r}"
        if not self.matched.has(manifest) and manifest.after != self.matched.head:
            end = self.matched.head
            return f"it goes on from row {manifest.after:,}, and what was committed before it ends at row {end:,}"
        if self._tables.known(manifest.version) is None:
            head = await head_revision(self._port) or 0
            if manifest.version > head:
                return f"it is of version {manifest.version} of the catalog, and the newest is {head}"
        return ""


@dataclass(frozen=True, slots=True)
class StreamBooks:
    """One stream's totals and its lines of the ledger.

    `lost` is where the sums begin if older ones were lost, `stopped` why manifests after `place` could not be added.
    """

    stream: str
    head: int
    rows_in: int
    evaluated: int
    dead: int
    shed: int
    gaps: int
    shed_updates: int
    partly_shed: int
    withheld: Mapping[str, int]
    unsent: Mapping[str, int]
    entries: tuple[Entry, ...]
    lost: int = 0
    stopped: str = ""
    ends: tuple[tuple[int, int], ...] = ()
    """The last commits that are not summed up: where each ends, and when it was made in milliseconds."""

    @classmethod
    def of(cls, matched: Matched, tallies: Mapping[int, Tally], stopped: HeadgateError | None = None) -> StreamBooks:
        """The books as they stand, with what subscribers have acknowledged."""
        return cls(
            matched.stream,
            matched.head,
            matched.rows_in,
            matched.evaluated,
            matched.dead,
            matched.shed,
            matched.gaps,
            matched.shed_updates,
            matched.partly_shed,
            dict(matched.withheld),
            dict(matched.unsent),
            tuple(matched.entries(tallies.values())),
            matched.lost,
            "" if stopped is None else str(stopped),
            tuple((each.upto, each.time_ms) for each in matched.recent),
        )

    @property
    def difference(self) -> int:
        """Rows that the stream took in and cannot account for."""
        return self.rows_in - self.evaluated - self.dead - self.shed

    def to_document(self) -> dict[str, Any]:
        """JSON-ready."""
        found = {**asdict(self), "difference": self.difference}
        del found["ends"]
        return found


async def read_books(port: LogPort, tables: TableCache, streams: Sequence[str]) -> list[StreamBooks]:
    """The whole ledger, read from the logs: stored sums first, then acknowledgements, then manifests.

    Sums are exact from their mark on, which is at or before what was acknowledged when they were stored, and every
    acknowledgement is at or before a manifest. In another order one of them could be ahead of what it is compared with.
    """
    readings = {stream: ManifestSums(port, tables, Matched(stream)) for stream in streams}
    for stream, reading in readings.items():
        try:
            reading.matched, _ = await stored_sums(port, stream)
        except HeadgateError as error:  # one stream's table or log is gone: the others are read all the same
            reading.stopped = error
    tallies = await read_tallies(port)
    for reading in readings.values():
        if reading.stopped is None:
            try:
                await reading.catch_up()
            except HeadgateError as error:
                reading.stopped = error
    return [StreamBooks.of(reading.matched, tallies, reading.stopped) for reading in readings.values()]
