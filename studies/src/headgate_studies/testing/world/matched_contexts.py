"""Classes whose filter depends on a context: what the simulated driver matches them with, and what is true of them.

The driver brings the product's own index (`headgate.matching.ContextState`) to the place that its pin names, as workers
of Spark do. What a row should match is worked out from the list of updates alone, by brute force.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching import ContextState, ContextUpdate
from headgate.matching.admission import UpdatePlan
from headgate.matching.definitions import grouped
from headgate.matching.live import LiveIndex
from headgate.matching.skipped import NOTHING, Skipped
from headgate.model import Subscription
from headgate.pipeline.classes import definition_of, reading_of, subscribers_of
from headgate.protocol.port import LogPort
from headgate.protocol.records import Pin
from headgate.wire.context import context_size, decode_context
from headgate.wire.manifest import Manifest
from headgate.wire.snapshot import Snapshot
from headgate_studies.testing.world.scenario import SCHEMA

Ints = npt.NDArray[np.int64]
FIRST_CLASS: Final = 1000
"""Classes from this one on take the values of a window that their context names."""
WHERE: Final = "value >= $low AND value < $high"
_OVERLOADED: Final = 0.4
_SHED: Final = 0.3


@dataclass(frozen=True, slots=True)
class Window:
    """The values from `low` on and below `high`."""

    low: int
    high: int

    @classmethod
    def any(cls, random: Random) -> Window:
        """Any window, empty ones and such that take everything too."""
        low = random.randrange(60)
        return cls(low, low + random.choice((0, 5, 25, 60)))

    def takes(self, values: Ints) -> npt.NDArray[np.bool_]:
        """Which values lie in it."""
        return (values >= self.low) & (values < self.high)

    def context(self) -> dict[str, int]:
        """The values of a context that says this."""
        return {"low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class TrueUpdate:
    """An update as it was stored: its place, and the new window of each class in the order in which it names them."""

    place: int
    windows: tuple[tuple[int, Window], ...]


def watching(subscription: Subscription, window: Window) -> Subscription:
    """The subscription with a filter that its context decides."""
    return Subscription(
        **{name: getattr(subscription, name) for name in subscription.__dataclass_fields__}
        | {"where": WHERE, "context": window.context(), "shared": None}
    )


def windows_at(first: Mapping[int, Window], updates: Sequence[TrueUpdate], manifest: Manifest) -> dict[int, Window]:
    """The window of each class that a batch has to be matched with: all updates up to its place but those left out."""
    found, left_out = dict(first), set(manifest.skipped.tolist())
    for update in updates:
        if update.place > manifest.context or update.place in left_out:
            continue
        bits = "".join(f"{byte:08b}" for byte in manifest.partly.get(update.place, b""))
        found.update(each for number, each in enumerate(update.windows) if bits[number : number + 1] != "1")
    return found


async def overloaded(port: LogPort, stream: str, batch: int, after: int, head: int) -> UpdatePlan:
    """What a driver that has too much to do decides: some updates wait, some are shed, some in part."""
    random = Random(f"control {stream} {batch} {after} {head}")
    if random.random() >= _OVERLOADED:
        return UpdatePlan(head)
    logs = port.logs
    waiting = [
        each for each in await port.read(logs.root(stream), logs.context(stream), after) if each.sequence <= head
    ]
    upto = random.choice([after, head, *(each.sequence for each in waiting)])
    taken = [each for each in waiting if each.sequence <= upto]
    if not taken:
        return UpdatePlan(upto)
    sizes = np.array([context_size(each.data) for each in taken], np.int64)
    chosen = np.array([random.random() < _SHED for _ in range(int(sizes.sum()))], np.bool_)
    places = np.array([each.sequence for each in taken], np.int64)
    return UpdatePlan(upto, Skipped.of(places, sizes, chosen), int(chosen.sum()))


class DriverContexts:
    """What a driver holds of the contexts of its stream, from one micro-batch to the next."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._index: LiveIndex | None = None
        self._state: ContextState | None = None
        self._pin = Pin(0)
        self._version = 0

    async def prepare(self, port: LogPort, snapshot: Snapshot, pin: Pin) -> None:
        """Be at a version of the catalog, with the updates read up to the place of a pin."""
        base = snapshot.contexts.get(self._stream, 0)
        mine = {
            identity: definition_of(identity, each)
            for identity, each in subscribers_of(snapshot, self._stream).items()
            if identity >= FIRST_CLASS
        }
        if self._state is not None and self._version != pin.version and not self._advance(mine, base, pin):
            self._state = None
        if self._state is None or self._state.base > pin.context:
            reading = reading_of(snapshot.deployment.streams[self._stream])
            self._index = LiveIndex.build(reading, grouped(mine.values()))
            self._state = ContextState(self._index, base)
        self._version, self._pin = pin.version, pin
        logs, upto = port.logs, max(pin.head, pin.context)
        place = self._state.head
        while place < upto and (found := await port.read(logs.root(self._stream), logs.context(self._stream), place)):
            self._state.record(
                ContextUpdate(each.sequence, decode_context(each.data)) for each in found if each.sequence <= upto
            )
            place = found[-1].sequence

    def _advance(self, wanted: Mapping[int, Any], base: int, pin: Pin) -> bool:
        """Bring what is held to another version in place, as workers do; False where that cannot be."""
        assert self._state is not None
        assert self._index is not None
        if self._state.head < base or self._state.base > pin.context:
            return False
        known = set(self._index.classes.tolist())
        removed = np.array(sorted(known - wanted.keys()), np.uint32)
        delta = self._index.plan(removed, grouped(wanted[each] for each in sorted(wanted.keys() - known)))
        if delta is None:
            return False
        self._state.advance(delta)
        return True

    def hits(self, values: Ints) -> dict[int, npt.NDArray[np.bool_]]:
        """By class whose filter depends on a context, which values it takes."""
        if self._state is None or not len(self._state.classes):
            return {}
        rows = pa.RecordBatch.from_arrays([pa.array(values), pa.array(values % 7)], schema=SCHEMA.arrow)
        skipped = self._pin.left_out or NOTHING
        lists = self._state.match(rows, self._pin.context, skipped)
        found = [set(lists.row(number).tolist()) for number in range(len(values))]
        return {
            identity: np.array([identity in each for each in found], np.bool_)
            for identity in self._state.classes.tolist()
        }
