"""Keeping the books: the root's side of the ledger, folded and stored, and the whole ledger read from the logs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from headgate.fabric import Crew, Fabric, FabricError
from headgate.relay.root import EARLIEST, committed, manifests
from headgate.relay.tables import Tables
from headgate.wire.ledger import Entry, Matched, Tally
from headgate.wire.manifest import Manifest, decode_manifest

_STORE_S: Final = 1.0


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
                history = [found async for found in committed(fabric, stream, manifest.after)]
                matched.add_history(identity, served[identity], history)
    matched.add(manifest, served)


async def read_tallies(fabric: Fabric) -> dict[int, Tally]:
    """What every subscriber has acknowledged."""
    logs = fabric.logs
    found: dict[int, Tally] = {}
    place = 0
    while batch := await fabric.read(logs.state, f"{logs.namespace}.ack.*", place):
        place = batch[-1].sequence
        for stored in batch:
            tally = Tally.read(stored.data)
            if tally is not None:
                found[tally.subscription] = tally
    return found


async def _stored(fabric: Fabric, stream: str) -> tuple[Matched, int]:
    """The root's side as it was last stored, and the place of the last manifest in it."""
    logs = fabric.logs
    stored = await fabric.last(logs.state, logs.ledger(stream))
    if stored is None:
        return Matched(stream), 0
    place, _, document = stored.data.partition(b"\n")
    return Matched.from_json(document), int(place)


@dataclass(frozen=True, slots=True)
class StreamBooks:
    """One stream's totals and its lines of the ledger."""

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

    @property
    def difference(self) -> int:
        """Rows that the stream took in and cannot account for."""
        return self.rows_in - self.evaluated - self.dead - self.shed

    def to_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "difference": self.difference}


async def read_books(fabric: Fabric, tables: Tables, streams: list[str]) -> list[StreamBooks]:
    """The whole ledger, read from the logs: acknowledgements first, then manifests, so that none is missing."""
    tallies = await read_tallies(fabric)
    found = []
    logs = fabric.logs
    for stream in streams:
        matched, place = await _stored(fabric, stream)
        while batch := await fabric.read(logs.root(stream), logs.commit(stream), place):
            place = batch[-1].sequence
            for stored in batch:
                await add(fabric, tables, matched, decode_manifest(stored.data))
        found.append(
            StreamBooks(
                stream,
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
            )
        )
    return found


class Keeper:
    """Follows one stream's manifests and stores the sums, so that manifests need not be kept for the ledger."""

    def __init__(self, fabric: Fabric, tables: Tables, stream: str) -> None:
        self._fabric = fabric
        self._tables = tables
        self._stream = stream
        self.matched = Matched(stream)
        self._place = 0

    async def run(self) -> None:
        """Keep the books until cancelled."""
        self.matched, self._place = await _stored(self._fabric, self._stream)
        async with Crew() as crew:
            crew.spawn(self._store_loop())
            crew.spawn(self._follow())
            await crew.wait()

    async def _follow(self) -> None:
        async for place, manifest in manifests(self._fabric, self._stream, self._place):
            await add(self._fabric, self._tables, self.matched, manifest)
            self._place = place

    async def _store_loop(self) -> None:
        while True:
            await asyncio.sleep(_STORE_S)
            try:
                await self.store()
            except FabricError:
                continue

    async def store(self) -> None:
        """Fold what every subscriber has passed, and store."""
        tallies = await read_tallies(self._fabric)
        passed = [
            tallies[subscription].boundary if subscription in tallies else starts
            for subscription, starts in self.matched.starts.items()
        ]
        self.matched.fold(min(passed, default=self.matched.head))
        data = b"%d\n%s" % (self._place, self.matched.to_json())
        await self._fabric.publish(self._fabric.logs.ledger(self._stream), data)
