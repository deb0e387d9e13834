"""The door of a stream's root: takes parcels of what was published at sites, each message once, and stores them.

What is taken lies in the input log of the stream, one message a parcel, fenced by the one before it. The last such
message has the places that were reached of all sites, so that it is the only thing that a restart needs to know, and
of two processes that both believe to be the root's relay only one goes on. A message that a sender published at two
sites, as it did not hear of the first, is known by its id (`headgate.relay.seen_ids`). The ids are stored behind each
parcel; those of the last parcel may be missing after a crash, and are read from the parcel itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.protocol.kernel import Mutex, Signal
from headgate.protocol.port import MachinePort, Stored
from headgate.protocol.records import DoorIds, ParcelAnswer
from headgate.relay.seen_ids import SeenIds
from headgate.wire.parcel import Parcel, ParcelItem, SiteIntake

_EARLY_S: Final = 1.0
"""A parcel waits so long for the one before it, which may be on its way."""
_TOLD: Final = "the ids and places that were stored behind it are taken"


@dataclass
class _Intake:
    """What is known of one stream; `sequence` is the last parcel's place in the input log."""

    sequence: int
    taken: dict[str, SiteIntake]
    ids: SeenIds
    places: dict[int, int] = field(default_factory=dict)


class Door:
    """Takes parcels for the streams of one root."""

    def __init__(self, port: MachinePort) -> None:
        self._port = port
        self._known: dict[str, _Intake] = {}
        self._locks: dict[str, Mutex] = {}
        self._moved = Signal(port.machine)

    async def take(self, parcel: Parcel) -> ParcelAnswer:
        """Store what is new of a parcel; says how far the site of its messages is taken.

        Raises:
            FabricError: Whether it was stored is not known.
        """
        lock = self._locks.setdefault(parcel.stream, Mutex(self._port.machine))
        until_s = self._port.now + _EARLY_S
        while True:
            async with lock:
                known = self._known.get(parcel.stream) or await self._load(parcel.stream)
                place = known.taken.get(parcel.origin, SiteIntake()).upto
                if parcel.after <= place < parcel.upto:
                    await self._store(known, parcel)
                    self._moved.set()
                if parcel.after <= place or self._port.now >= until_s or not parcel.items:
                    found = known.taken.get(parcel.origin, SiteIntake())
                    return ParcelAnswer(upto=found.upto, messages=found.messages)
            self._moved.clear()
            await self._moved.wait(until_s - self._port.now)

    async def _store(self, known: _Intake, parcel: Parcel) -> None:
        logs, stream = self._port.logs, parcel.stream
        before = known.taken.get(parcel.origin, SiteIntake())
        came = [item for item in parcel.items if item.sequence > before.upto]
        fresh = _unseen(came, known.ids)
        now = SiteIntake(parcel.upto, before.messages + len(came), before.repeated + len(came) - len(fresh))
        taken = {**known.taken, parcel.origin: now}
        stored = Parcel(stream, parcel.origin, before.upto, parcel.upto, fresh, taken)
        self._known.pop(stream, None)  # where anything fails, what is stored is read again
        known.sequence = await self._port.publish(logs.carried(stream), stored.encode(), expect=known.sequence)
        known.taken = taken
        await self._remember(stream, known, fresh)
        self._known[stream] = known

    async def _remember(self, stream: str, known: _Intake, items: Sequence[ParcelItem]) -> None:
        """Store the ids of messages that were taken."""
        for number in known.ids.add(item.identity for item in items if item.identity):
            slot = known.ids.slot(number)
            record = DoorIds(
                number=number,
                ids=known.ids.record(number),
                taken={site: (each.upto, each.messages, each.repeated) for site, each in known.taken.items()},
            )
            subject = self._port.logs.door(stream, slot)
            known.places[slot] = await self._port.publish(subject, record.encode(), expect=known.places.get(slot, 0))

    async def _load(self, stream: str) -> _Intake:
        """What was stored: the ids, the places, and what only the last parcel has."""
        port, logs = self._port, self._port.logs
        ids = SeenIds()
        found = await port.gather(*(port.last(logs.state, logs.door(stream, slot)) for slot in range(ids.slots)))
        places, records = {}, []
        for slot, stored in enumerate(found):
            if stored is not None:
                places[slot] = stored.sequence
                record = port.quarantine.take(logs.state, stored, DoorIds.decode, "ids of messages are forgotten")
                records += [] if record is None else [record]
        ids.load(records)
        newest = max(records, key=lambda each: each.number, default=None)
        known = _Intake(0, {} if newest is None else _places(newest), ids, places)
        last: Stored | None = await port.last(logs.input(stream), logs.carried(stream))
        if last is not None:
            known.sequence = last.sequence
            parcel = port.quarantine.take(logs.input(stream), last, Parcel.decode, _TOLD)
            if parcel is not None:
                known.taken = dict(parcel.taken)
                missing = [item for item in parcel.items if item.identity and item.identity not in ids]
                await self._remember(stream, known, missing)
        self._known[stream] = known
        return known


def _places(record: DoorIds) -> dict[str, SiteIntake]:
    return {site: SiteIntake(*each) for site, each in record.taken.items()}


def _unseen(items: Sequence[ParcelItem], ids: SeenIds) -> list[ParcelItem]:
    """Messages that are not known by their id, and of those with the same id the first."""
    fresh, here = [], set()
    for item in items:
        if not item.identity or (item.identity not in ids and item.identity not in here):
            fresh.append(item)
            here.add(item.identity)
    return fresh
