"""Keeping the books: the root's side of the ledger, folded and stored, and the whole ledger read from the logs.

A commit that cannot be read, or that does not follow the one before it, stops the books of its stream and of no other:
what was counted up to it stays, `StreamBooks.stopped` says why, and the reading is tried again until it can go on. One
that is followed by a commit which goes on from before it was none of the stream's, and is passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate.fabric import Crew, Fabric, FabricError, Stored
from headgate.protocol.published import head_revision
from headgate.relay.root import EARLIEST
from headgate.relay.tables import Tables
from headgate.wire.frame import WireError
from headgate.wire.ledger import Entry, Matched, Tally
from headgate.wire.manifest import Manifest, decode_manifest
from headgate.wire.sealed import read_number
from headgate.wire.unreadable import UnreadableError, decode_message

_STORE_S: Final = 1.0
STOPPED: Final = "the books of the stream stop before it"


async def members(tables: Tables, stream: str, version: int) -> dict[int, int]:
    """For each subscription that a version serves on a stream, its delivery class."""
    snapshot = await tables.snapshot(version)
    return {
        snapshot.subscription_ids[name]: snapshot.class_ids[name]
        for name, subscription in snapshot.deployment.subscriptions.items()
        if subscription.stream == stream
    }


async def add(fabric: Fabric, tables: Tables, matched: Matched, manifest: Manifest) -> None:
    """Add a manifest, and before it the history of subscriptions that it serves first and that start earlier."""
    stream = matched.stream
    served = await members(tables, stream, manifest.version)
    if not matched.has(manifest):
        snapshot = await tables.snapshot(manifest.version)
        for name, subscription in snapshot.deployment.subscriptions.items():
            identity = snapshot.subscription_ids[name]
            if subscription.start == EARLIEST and identity in served and identity not in matched.starts:
                matched.add_history(identity, served[identity], await _history(fabric, stream, manifest.after))
    matched.add(manifest, served)


async def _history(fabric: Fabric, stream: str, upto: int) -> list[Manifest]:
    """The manifests with rows that the root log still holds up to a sequence number, oldest first."""
    logs, place = fabric.logs, 0
    found: list[Manifest] = []
    while batch := await fabric.read(logs.root(stream), logs.commit(stream), place):
        place = batch[-1].sequence
        for stored in batch:
            manifest = fabric.quarantine.take(logs.root(stream), stored, decode_manifest)
            if manifest is not None and manifest.upto > upto:
                return found
            if manifest is not None and manifest.evaluated:
                found.append(manifest)
    return found


def read_tally(data: bytes, subject: str) -> Tally:
    """Read the acknowledgement that was stored on a subject."""
    tally, subscription = Tally.from_json(data), read_number(subject.rsplit(".", 1)[1].encode())
    if tally.subscription != subscription:
        raise WireError(f"it is an acknowledgement of subscription {tally.subscription}, not of {subscription}")
    return tally


async def read_tallies(fabric: Fabric) -> dict[int, Tally]:
    """What every subscriber has acknowledged, as far as it can be read."""
    logs = fabric.logs
    found: dict[int, Tally] = {}
    place = 0
    while batch := await fabric.read(logs.state, f"{logs.namespace}.ack.*", place):
        place = batch[-1].sequence
        for stored in batch:
            tally = fabric.quarantine.take(logs.state, stored, partial(read_tally, subject=stored.subject))
            if tally is not None:
                found[tally.subscription] = tally
    return found


def read_sums(data: bytes, stream: str) -> tuple[Matched, int]:
    """Read the stored sums of a stream, and the place of the last manifest in them."""
    place, _, document = data.partition(b"\n")
    matched = Matched.from_json(document)
    if (matched.stream, matched.place) != (stream, read_number(place)):
        raise WireError(f"these are the sums of stream {matched.stream!r} up to message {matched.place}")
    return matched, matched.place


async def stored_sums(fabric: Fabric, stream: str) -> tuple[Matched, int]:
    """The root's side as it was last stored, and the place of the last manifest in it.

    Where it is not there or cannot be read, it is summed up again from the manifests that the root log holds. If some
    of those are gone too, `Matched.lost` says from where on rows are counted.
    """
    logs = fabric.logs
    stored = await fabric.last(logs.state, logs.ledger(stream))
    if stored is not None:
        reader = partial(read_sums, stream=stream)
        found = fabric.quarantine.take(logs.state, stored, reader, "summed up again from the manifests")
        if found is not None:
            return found
    place = 0
    while batch := await fabric.read(logs.root(stream), logs.commit(stream), place, limit=16):
        place = batch[-1].sequence
        for each in batch:
            first = fabric.quarantine.take(logs.root(stream), each, decode_manifest)
            if first is not None:
                return Matched(stream, mark=first.after, lost=first.after), 0
    return Matched(stream), 0


class Reading:
    """The manifests of one stream being summed up: `place` is the last one that is in `matched`."""

    def __init__(self, fabric: Fabric, tables: Tables, matched: Matched, place: int) -> None:
        self._fabric = fabric
        self._tables = tables
        self.matched = matched
        self.place = place
        self.stopped: HeadgateError | None = None
        """Why it cannot go on, None when it can."""

    async def take(self, batch: Sequence[Stored]) -> bool:
        """Add the manifests that follow, in the order of the log; False when it stops before the end of them."""
        log = self._fabric.logs.root(self.matched.stream)
        doubt: UnreadableError | None = None
        for stored in batch:
            try:
                manifest = decode_message(log.name, stored, decode_manifest)
            except UnreadableError as error:
                doubt = doubt or error
                continue
            trouble = await self._trouble(manifest)
            if trouble:
                doubt = doubt or UnreadableError(log.name, stored.subject, stored.sequence, trouble)
                break
            await add(self._fabric, self._tables, self.matched, manifest)
            if doubt is not None:
                self._fabric.quarantine.add(doubt)
                doubt = None
            self.place = self.matched.place = stored.sequence
        if doubt is not None:
            self._fabric.quarantine.add(doubt, STOPPED)
        self.stopped = doubt
        return doubt is None

    async def _trouble(self, manifest: Manifest) -> str:
        """Why a manifest cannot be the next one, nothing when it can."""
        if manifest.stream != self.matched.stream:
            return f"it is a commit of stream {manifest.stream!r}"
        if not self.matched.has(manifest) and manifest.after != self.matched.head:
            end = self.matched.head
            return f"it goes on from row {manifest.after:,}, and what was committed before it ends at row {end:,}"
        if self._tables.known(manifest.version) is None:
            head = await head_revision(self._fabric) or 0
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


async def read_books(fabric: Fabric, tables: Tables, streams: list[str]) -> list[StreamBooks]:
    """The whole ledger, read from the logs: acknowledgements first, then manifests, so that none is missing."""
    tallies = await read_tallies(fabric)
    found = []
    logs = fabric.logs
    for stream in streams:
        reading = Reading(fabric, tables, Matched(stream), 0)
        try:
            reading.matched, reading.place = await stored_sums(fabric, stream)
            while batch := await fabric.read(logs.root(stream), logs.commit(stream), reading.place):
                before = reading.place
                if not await reading.take(batch) and reading.place == before:
                    break
        except HeadgateError as error:  # one stream's table or log is gone: the others are read all the same
            reading.stopped = error
        found.append(StreamBooks.of(reading.matched, tallies, reading.stopped))
    return found


class Keeper:
    """Follows one stream's manifests and stores the sums, so that manifests need not be kept for the ledger."""

    def __init__(self, fabric: Fabric, tables: Tables, stream: str) -> None:
        self._fabric = fabric
        self._tables = tables
        self._stream = stream
        self._reading: Reading | None = None

    @property
    def matched(self) -> Matched:
        """The sums so far."""
        return Matched(self._stream) if self._reading is None else self._reading.matched

    async def run(self) -> None:
        """Keep the books until cancelled."""
        while self._reading is None:
            try:
                self._reading = Reading(self._fabric, self._tables, *await stored_sums(self._fabric, self._stream))
            except FabricError:
                await asyncio.sleep(_STORE_S)
        async with Crew() as crew:
            crew.spawn(self._store_loop())
            crew.spawn(self._follow(self._reading))
            await crew.wait()

    async def _follow(self, reading: Reading) -> None:
        logs = self._fabric.logs
        while True:
            batches = self._fabric.follow(logs.root(self._stream), logs.commit(self._stream), reading.place)
            try:
                async for batch in batches:
                    if not await reading.take(batch):
                        break
            except HeadgateError as error:
                reading.stopped = error
            finally:
                await batches.aclose()  # type: ignore[attr-defined] # it is a generator
            await asyncio.sleep(_STORE_S)  # what stops it may be taken out, or be followed by a commit that goes on

    async def _store_loop(self) -> None:
        while True:
            await asyncio.sleep(_STORE_S)
            try:
                await self.store()
            except FabricError:
                continue

    async def store(self) -> None:
        """Fold what every subscriber has passed, and store."""
        if self._reading is None:
            return
        matched, place = self._reading.matched, self._reading.place
        tallies = await read_tallies(self._fabric)
        passed = [
            tallies[subscription].boundary if subscription in tallies else starts
            for subscription, starts in matched.starts.items()
        ]
        matched.fold(min(passed, default=matched.head))
        await self._fabric.publish(self._fabric.logs.ledger(self._stream), b"%d\n%s" % (place, matched.to_json()))
