"""The match pass: one Arrow pass over a micro-batch that matches, encodes and stages parts and dead letters.

It returns a small row per staged part and one with the matched counts of a partition, never the data itself. Nothing
that it stages counts until the driver's manifest names it, so a task that runs twice stages garbage, not duplicates.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate import faults
from headgate.deriving import derivation_of
from headgate.matching import ClassLists
from headgate.matching.admission import ALL, ToleranceLevel
from headgate.matching.metering import Meter
from headgate.pipeline.control import gate_of
from headgate.pipeline.counts import ClassCosts, Counted
from headgate.pipeline.deriving import MemoryHeads, derived_rows
from headgate.pipeline.letters import SHARE, mark_oversize, pack_dead, split_dead
from headgate.pipeline.matcher import MatchedRows, Matcher
from headgate.pipeline.ordering import micros
from headgate.pipeline.sampled_rows import draw
from headgate.pipeline.sources.declarations import take_declarations
from headgate.pipeline.staged import StagedRow, encode_staged
from headgate.pipeline.states import IndexRef
from headgate.pipeline.validate import DEAD
from headgate.pipeline.worker import Address, Bench, worker
from headgate.protocol.records import Pin
from headgate.wire.lists import encode_classes
from headgate.wire.manifest import of_class
from headgate.wire.part import Part, encode_part

_AHEAD_US: Final = 60_000_000  # clocks differ


@dataclass(slots=True)
class Spent:
    """What matching took in one batch, apart from the rest: CPU seconds to match, CPU seconds and bytes for classes."""

    match_s: float = 0.0
    class_s: float = 0.0
    class_bytes: int = 0


@dataclass(frozen=True)
class MatchPass:
    """The function that Spark runs on each partition; `pin` is what the micro-batch is matched with.

    `index` names the saved index of the pinned version. `row_cost_s` is what a row has taken in earlier batches and
    `began_s` when this one started: admission control decides by them how many rows still fit the latency bound.
    `levels` are the groups of classes by what they tolerate: rows withheld from some are matched for the rest alone.
    `in_order` says that some classes tolerate no wrong match, so that rows must not pass updates. `parts` are the
    classes that are evaluated on a part of the rows only, as their owners have used up their share of the matching.
    `memory` is what derived columns remember when the micro-batch begins, None where nothing is derived.
    """

    address: Address
    stream: str
    pin: Pin
    driver_pid: int | None = None
    row_cost_s: float = 0.0
    began_s: float = 0.0
    index: IndexRef | None = None
    levels: tuple[ToleranceLevel, ...] = ALL
    in_order: bool = False
    parts: Mapping[int, float] = field(default_factory=dict)
    memory: MemoryHeads | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Match and stage in a process of Spark; yields what was staged."""
        from pyspark import TaskContext

        context = TaskContext.get()
        return self.run(worker(self.address), batches, 0 if context is None else context.partitionId())

    def run(self, me: Bench, batches: Iterator[pa.RecordBatch], partition: int = 0) -> Iterator[pa.RecordBatch]:
        """Match with the state of a worker and stage into its log; yields what was staged."""
        place = max(self.pin.head, self.pin.context)
        held = me.state(self.stream, self.pin.version, self.index, place)
        stream, state = held.stream, held.state
        bound, bound_s = state.bound, state.bound_s
        gate = gate_of(stream.admission)
        matcher = Matcher(
            stream,
            replace(gate, order="arrival") if self.in_order else gate,
            self.pin,
            state,
            lambda tolerance: me.stricter(self.stream, self.pin.version, tolerance, place).state,
            self.levels,
        )
        trouble, counted, given, oldest_s = held.trouble, Counted(), 0, 0.0
        meter, costs = me.meter(self.stream), ClassCosts()
        derivation, remembered = None if self.memory is None else derivation_of(stream), list[StagedRow]()
        if derivation is not None and self.memory is not None:
            ordered, remembered = derived_rows(me.memory(self.stream), derivation, self.memory, partition, batches)
            batches = iter(ordered)
        for batch in batches:
            if not batch.num_rows:
                continue
            began = time.perf_counter()
            room = int(me.fabric.max_payload * SHARE)
            good, dead = split_dead(mark_oversize(batch, stream.schema.arrow, room), stream.schema.arrow)
            told = [] if dead is None else self._stage_dead(me, dead, room)
            age_s = self._age(good, stream.event_time)
            meter.serve(self.parts, self.pin.batch)
            begun = time.thread_time()
            matched = matcher.match(good, age_s, self.row_cost_s)
            spent = Spent(time.thread_time() - begun)
            told += self._stage(me, matched, spent, counted, whole=stream.keep_s is not None)
            told += [
                StagedRow(kind="withheld", tolerance=tolerance, withheld=count)
                for tolerance, count in matched.withheld().items()
            ]
            told += _left_out(meter)
            costs.add(meter.take_costs())
            meter.serve({}, 0)  # samples are matched in full, and are nobody's cost
            mean_ms, events = mean_event_ms(matched.evaluated, stream.event_time)
            busy_s = time.perf_counter() - began
            errors, of_classes = matched.errors()
            meter.take(), meter.take_costs()
            told.append(
                StagedRow(
                    kind="batch",
                    shed=matched.gated.shed,
                    partly_shed=matched.gated.partly,
                    late=matched.gated.late,
                    event_ms=mean_ms,
                    events=events,
                    busy_s=busy_s,
                    match_s=spent.match_s,
                    class_s=spent.class_s,
                    class_bytes=spent.class_bytes,
                    missed=errors.missed,
                    missed_var=errors.missed_var,
                    wrong=errors.wrong,
                    wrong_var=errors.wrong_var,
                    sampled=errors.sampled,
                    class_errors=json.dumps(of_classes) if of_classes else "",
                    sample=draw(matched.evaluated, self.pin.batch),
                    trouble=trouble,
                )
            )
            given, oldest_s, trouble = given + good.num_rows, max(oldest_s, age_s), ""
            yield encode_staged(told)
        classes, ids, counts = counted.packed()
        yield encode_staged(
            [
                *remembered,
                StagedRow(
                    kind="partition",
                    classes=classes,
                    class_ids=ids,
                    class_counts=counts,
                    given=given,
                    # Without what updates took: whoever plans the next ones adds what those will take.
                    age_s=max(0.0, oldest_s - (state.bound_s - bound_s)),
                    updates=state.bound - bound,
                    update_s=state.bound_s - bound_s,
                    **costs.packed(),
                ),
            ]
        )

    def _age(self, good: pa.RecordBatch, event_time: str | None) -> float:
        """The age of the oldest row; rows that do not say when they were made are as old as the micro-batch."""
        age_s = time.time() - self.began_s if self.began_s else 0.0
        if event_time is not None and good.num_rows:
            oldest = pc.min(possible_times(micros(good, event_time), int(time.time() * 1e6))).as_py()
            age_s = max(age_s, 0.0 if oldest is None else time.time() - oldest / 1e6)
        return age_s

    def _stage_dead(self, me: Bench, dead: pa.RecordBatch, room: int) -> list[StagedRow]:
        """Stage dead letters; senders' declarations travel among them and become rows of their own."""
        dead, unsent = take_declarations(dead, DEAD)
        told = [] if unsent is None else [StagedRow(kind="unsent", unsent=unsent.to_bytes().decode())]
        if dead.num_rows:
            counts, letters = zip(*pack_dead(dead, room), strict=True)
            places = me.fabric.publish_all(me.fabric.logs.dead(self.stream), list(letters))
            told += [
                StagedRow(kind="dead", log_sequence=place, dead=count)
                for place, count in zip(places, counts, strict=True)
            ]
        return told

    def _stage(
        self, me: Bench, matched: MatchedRows, spent: Spent, counted: Counted, *, whole: bool
    ) -> list[StagedRow]:
        """Stage the rows that matched, or all of them where they are kept, as one or more parts."""
        room = int(me.fabric.max_payload * SHARE)
        parts = list(cut(matched.evaluated, matched.lists, room, spent, whole=whole))
        data = [encoded for _, encoded in parts if encoded is not None]
        places = iter(me.fabric.publish_all(me.fabric.logs.part(self.stream), data) if data else [])
        if data:
            faults.reach("driver.after_part", self.driver_pid)
        began = time.thread_time()
        counted.add(matched.lists)
        spent.class_s += time.thread_time() - began
        return [
            StagedRow(
                kind="part",
                log_sequence=next(places) if encoded is not None else 0,
                evaluated=part.evaluated,
                kept=len(part.positions),
            )
            for part, encoded in parts
        ]


def _left_out(meter: Meter) -> list[StagedRow]:
    """What is told of classes that took too long, and of the rows that were not looked at for a class."""
    found = []
    for identity, each in meter.take().items():
        if each.slow:
            row_us = each.seconds * 1e6 / max(each.rows, 1)
            found.append(StagedRow(kind="slow", slow_class=identity, slow_us=row_us, slow_limit_us=each.limit_us))
        if each.left_out:
            found.append(StagedRow(kind="withheld", tolerance=of_class(identity), withheld=each.left_out))
    return found


def mean_event_ms(rows: pa.RecordBatch, event_time: str | None) -> tuple[float, int]:
    """The mean time at which rows were made, and how many of them say so."""
    if event_time is None or not rows.num_rows:
        return 0.0, 0
    possible = possible_times(micros(rows, event_time), int(time.time() * 1e6))
    mean = pc.mean(possible).as_py()
    return (0.0, 0) if mean is None else (float(mean) / 1000, len(possible) - possible.null_count)


def possible_times(times_us: pa.Array, now_us: int) -> pa.Array:
    """The times that a row can have been made at, without those before 1970 or more than a minute from now.

    A single row of the year 9999 would otherwise make a batch look as if it had no delay.

    >>> possible_times(pa.array([-5, 7, None, 253_402_300_799_000_000]), 1_000_000).to_pylist()
    [7]
    """
    return times_us.filter(pc.and_(pc.greater_equal(times_us, 0), pc.less(times_us, now_us + _AHEAD_US)))


def cut(
    good: pa.RecordBatch, lists: ClassLists, max_bytes: int, spent: Spent | None = None, *, whole: bool = False
) -> Iterator[tuple[Part, bytes | None]]:
    """Parts of at most so many bytes with their encoding, None for a run of rows that nobody wants.

    With `whole` parts have all rows, for those who will want them later.
    """
    matched = np.arange(good.num_rows) if whole else lists.rows_matched()
    rows = good.take(pa.array(matched)) if len(matched) < good.num_rows else good
    kept = lists.take(matched) if len(matched) < good.num_rows else lists
    part = Part(good.num_rows, matched.astype(np.uint64), rows, kept)
    encoded = None
    if len(matched):
        began = time.thread_time()
        classes = encode_classes(kept)
        if spent is not None:
            spent.class_s += time.thread_time() - began
            spent.class_bytes += sum(map(len, classes[1]))
        encoded = encode_part(part, classes)
    if encoded is None or len(encoded) <= max_bytes or good.num_rows == 1:
        yield part, encoded
        return
    half = good.num_rows // 2
    for start, stop in ((0, half), (half, good.num_rows)):
        yield from cut(good.slice(start, stop - start), lists.slice(start, stop), max_bytes, spent, whole=whole)
