"""A stream's driver in virtual time: a model of Spark that plans and replays micro-batches, around the real committer.

Spark writes down what a batch reads before it runs, and that it has ended after it. A driver that starts again replays
the batch that had not ended, with the same rows and any other partitions. Both notes lie in `SimulatedSource`, which
outlives every driver, as a checkpoint directory does.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching import ClassLists
from headgate.matching.admission import UpdatePlan
from headgate.protocol.codec import Codec
from headgate.protocol.commits import Batch, LineageError, commit, pin_batch
from headgate.protocol.kernel import Machine
from headgate.protocol.port import FabricError, LogPort, MachinePort
from headgate.wire.logs import Logs
from headgate.wire.manifest import Manifest, PartRef, SourceRange
from headgate.wire.part import Part
from headgate_studies.testing.world.matched_contexts import FIRST_CLASS, DriverContexts, overloaded
from headgate_studies.testing.world.oracle import Ints, wanted
from headgate_studies.testing.world.scenario import SCHEMA

LINEAGE: Final = "one"
MOST_ROWS: Final = 240
"""A micro-batch reads at most so many rows, as sources with a limit of files or messages do."""
_RESTART_S: Final = 0.5
Hits = Callable[[Ints], dict[int, npt.NDArray[np.bool_]]]


@dataclass(frozen=True, slots=True)
class Planned:
    """A micro-batch: its number, and the rows [first, last) of the source that it reads."""

    number: int
    first: int
    last: int

    @property
    def ranges(self) -> tuple[SourceRange, ...]:
        """What it reads, as a manifest states it."""
        return (SourceRange(str(self.first) if self.number else None, str(self.last)),)


@dataclass
class SimulatedSource:
    """The rows of a stream's source, and the checkpoint of its query. `empty` batches are due that read nothing."""

    values: list[int] = field(default_factory=list)
    planned: list[Planned] = field(default_factory=list)
    ended: int = 0
    empty: int = 0

    def next(self) -> Planned | None:
        """The batch that is to run: one that did not end, or a new one; None when there is nothing new."""
        if self.ended < len(self.planned):
            return self.planned[self.ended]
        first = self.planned[-1].last if self.planned else 0
        if first == len(self.values) and not self.empty:
            return None
        self.empty = max(self.empty - 1, 0)
        self.planned.append(Planned(len(self.planned), first, min(len(self.values), first + MOST_ROWS)))
        return self.planned[-1]

    def end(self, batch: Planned) -> None:
        """Note that a batch has ended."""
        self.ended = max(self.ended, batch.number + 1)


class DriverMachine(Machine):
    """Runs the query of one stream: asks for a batch, pins it, stages its parts, commits it."""

    def __init__(self, stream: str, source: SimulatedSource, logs: Logs, random: Random, codec: Codec) -> None:
        super().__init__(f"driver {stream}")
        self._stream = stream
        self._source = source
        self._random = random
        self._port = MachinePort(self, logs, 1 << 20, codec)
        self._purged = 0
        self._contexts = DriverContexts(stream)
        self.spawn(self._query(), "query")

    async def _query(self) -> None:
        while True:
            batch: Planned = await self._port.hand_over(self._source)
            try:
                await self._run_batch(batch)
            except (FabricError, LineageError):  # the query is started again, from where the root log ends
                await self._port.sleep(_RESTART_S)
            else:
                self._source.end(batch)

    async def _run_batch(self, batch: Planned) -> None:
        pin = await pin_batch(self._port, self._stream, batch.number, self._control)
        snapshot = await self._port.table(pin.version)
        subscriptions = snapshot.deployment.subscriptions.items()
        classes = sorted({snapshot.class_ids[name] for name, each in subscriptions if each.stream == self._stream})
        watched = any(each >= FIRST_CLASS for each in classes)
        if watched:
            await self._contexts.prepare(self._port, snapshot, pin)
        values = np.array(self._source.values[batch.first : batch.last], dtype=np.int64)
        refs, totals = [], Counter[int]()
        for part, counts in cut(values, classes, self._random, self._contexts.hits if watched else None):
            totals.update(counts)
            kept = len(part.positions)
            place = await self._port.publish(self._port.logs.part(self._stream), part) if kept else 0
            refs.append(PartRef(place, part.evaluated, kept))

        async def draft(last: Manifest | None, now_ms: int) -> Manifest:
            return Manifest(
                stream=self._stream,
                lineage=LINEAGE,
                batch=batch.number,
                version=pin.version,
                after=last.upto if last else 0,
                parts=tuple(refs),
                class_ids=np.array(sorted(totals), dtype=np.uint64),
                class_counts=np.array([totals[each] for each in sorted(totals)], dtype=np.uint64),
                time_ms=now_ms,
                context=pin.context,
                skipped=np.array(pin.skipped, np.uint64),
                partly=pin.left_out.partly,
                shed_updates=pin.shed_updates,
                ranges=batch.ranges,
            )

        await commit(self._port, Batch(self._stream, LINEAGE, batch.number, batch.ranges), draft)
        base = snapshot.contexts.get(self._stream, 0)
        if base > self._purged:  # as the product does: what the version has in it is not read again
            logs, self._purged = self._port.logs, base
            await self._port.purge(logs.root(self._stream), logs.context(self._stream), base)

    async def _control(self, port: LogPort, batch: int, version: int, after: int, head: int) -> UpdatePlan:
        """What happens to updates that wait."""
        del version
        return await overloaded(port, self._stream, batch, after, head)


def cut(
    values: Ints, classes: list[int], random: Random, watched: Hits | None = None
) -> list[tuple[Part, Counter[int]]]:
    """The parts of a batch, cut at random, and the matches of each class in them; `watched` has those by contexts."""
    found = []
    count = len(values)
    cuts = sorted({0, count, *(random.randint(0, count) for _ in range(random.randint(0, 2)))})
    for start, end in itertools.pairwise(cuts):
        mine = values[start:end]
        hits = {each: wanted(each, mine) for each in classes} | ({} if watched is None else watched(mine))
        lists = [[each for each in classes if hits[each][row]] for row in range(len(mine))]
        kept = [row for row in range(len(mine)) if lists[row]]
        offsets = np.cumsum([0, *(len(lists[row]) for row in kept)]).astype(np.int64)
        ids = np.array([each for row in kept for each in lists[row]], dtype=np.uint32)
        rows = pa.RecordBatch.from_arrays([pa.array(mine[kept]), pa.array(mine[kept] % 7)], schema=SCHEMA.arrow)
        part = Part(len(mine), np.array(kept, dtype=np.uint64), rows, ClassLists(offsets, ids))
        found.append((part, Counter(each for row in lists for each in row)))
    return found
