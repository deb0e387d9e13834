"""The match pass: one Arrow pass over a micro-batch that matches, encodes and stages parts and dead letters.

It returns a small row per staged part and one with the matched counts of a partition, never the data itself. Nothing
that it stages counts until the driver's manifest names it, so a task that runs twice stages garbage, not duplicates.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate import faults
from headgate.filters import parse_filter
from headgate.matching import ClassLists, ContextState
from headgate.matching.admission import ALL, BatchGate, Level, compare_lists, estimate_errors
from headgate.pipeline.control import gate_of
from headgate.pipeline.counts import Counted
from headgate.pipeline.graded import Graded
from headgate.pipeline.letters import SHARE, mark_oversize, pack_dead, split_dead
from headgate.pipeline.ordering import DRAWN, Ordering, micros
from headgate.pipeline.sources.declarations import take_declarations
from headgate.pipeline.staged import STAGED, staged_row
from headgate.pipeline.states import IndexRef
from headgate.pipeline.validate import DEAD
from headgate.pipeline.worker import Address, Worker, worker
from headgate.protocol.records import Pin
from headgate.wire.integers import encode_lists
from headgate.wire.part import Part, encode_part
from headgate.wire.unsent import Unsent

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
    `in_order` says that some classes tolerate no wrong match, so that rows must not pass updates.
    """

    address: Address
    stream: str
    pin: Pin
    driver_pid: int | None = None
    batch: int = 0
    row_cost_s: float = 0.0
    began_s: float = 0.0
    index: IndexRef | None = None
    levels: tuple[Level, ...] = ALL
    in_order: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Match and stage; yields what was staged."""
        me = worker(self.address)
        held = me.state(self.stream, self.pin.version, self.index, max(self.pin.head, self.pin.context))
        stream, state = held.stream, held.state
        gate = gate_of(stream.admission)
        if self.in_order:
            gate = replace(gate, order="arrival")
        ordering = Ordering.of(gate, self.pin)
        victims = None if gate.victims is None else parse_filter(gate.victims, stream.schema)
        trouble, counted = held.trouble, Counted()
        given, oldest_s, bound, bound_s = 0, 0.0, state.bound, state.bound_s
        ordering.settle(state)
        for batch in batches:
            if not batch.num_rows:
                continue
            began = time.perf_counter()
            room = int(me.fabric.max_payload * SHARE)
            good, dead = split_dead(mark_oversize(batch, stream.schema.arrow, room), stream.schema.arrow)
            rows: list[dict[str, object]] = []
            unsent: Unsent | None = None
            if dead is not None:
                dead, unsent = take_declarations(dead, DEAD)
            if unsent is not None:
                rows.append({"kind": "unsent", "unsent": unsent.to_bytes().decode()})
            if dead is not None and dead.num_rows:
                counts, letters = zip(*pack_dead(dead, room), strict=True)
                places = me.fabric.publish_all(me.fabric.logs.dead(self.stream), list(letters))
                rows += [
                    {"kind": "dead", "log_sequence": place, "dead": count}
                    for place, count in zip(places, counts, strict=True)
                ]
            age_s = self._age(good, stream.event_time)
            first = None if victims is None else victims.evaluate(good, {})
            gated = gate.admit(self.batch, good.num_rows, age_s, self.row_cost_s, first, self.levels)
            graded = Graded(good, gated, self.levels, state, partial(self._stricter, me))
            given, oldest_s = given + good.num_rows, max(oldest_s, age_s)
            begun = time.thread_time()
            lists = graded.match(ordering)
            spent = Spent(time.thread_time() - begun)
            rows.extend(self._stage(me, graded.evaluated, lists, spent, stream.event_time, counted))
            rows[-1].update({"shed": gated.shed, "partly_shed": gated.partly, "late": gated.late})
            rows[-1]["withheld"] = json.dumps(graded.withheld())
            rows[-1]["busy_s"] = time.perf_counter() - began
            rows[-1].update(self._estimate(gate, graded, ordering))
            rows[-1]["trouble"], trouble = trouble, ""
            yield pa.RecordBatch.from_pylist([staged_row(**row) for row in rows], schema=STAGED)
        row = {
            "kind": "counts",
            **counted.packed(),
            "given": given,
            # Without what updates took: whoever plans the next ones adds what those will take.
            "age_s": max(0.0, oldest_s - (state.bound_s - bound_s)),
            "updates": state.bound - bound,
            "update_s": state.bound_s - bound_s,
        }
        yield pa.RecordBatch.from_pylist([staged_row(**row)], schema=STAGED)

    def _stricter(self, me: Worker, tolerance: float) -> ContextState:
        """The classes that tolerate less."""
        return me.stricter(self.stream, self.pin.version, tolerance, max(self.pin.head, self.pin.context)).state

    def _age(self, good: pa.RecordBatch, event_time: str | None) -> float:
        """The age of the oldest row."""
        age_s = time.time() - self.began_s if self.began_s else 0.0
        if event_time is not None and good.num_rows:
            oldest = pc.min(possible_times(micros(good, event_time), int(time.time() * 1e6))).as_py()
            age_s = max(age_s, 0.0 if oldest is None else time.time() - oldest / 1e6)
        return age_s

    def _stage(
        self,
        me: Worker,
        good: pa.RecordBatch,
        lists: ClassLists,
        spent: Spent,
        event_time: str | None,
        counted: Counted,
    ) -> list[dict[str, object]]:
        parts = list(cut(good, lists, int(me.fabric.max_payload * SHARE), spent))
        data = [encoded for _, encoded in parts if encoded is not None]
        places = iter(me.fabric.publish_all(me.fabric.logs.part(self.stream), data) if data else [])
        if data:
            faults.reach("driver.after_part", self.driver_pid)
        rows: list[dict[str, object]] = [
            {
                "kind": "part",
                "log_sequence": next(places) if encoded is not None else 0,
                "evaluated": part.evaluated,
                "kept": len(part.positions),
            }
            for part, encoded in parts
        ]
        began = time.thread_time()
        counted.add(lists)
        spent.class_s += time.thread_time() - began
        rows[-1].update({"match_s": spent.match_s, "class_s": spent.class_s, "class_bytes": spent.class_bytes})
        if event_time is not None and good.num_rows:
            possible = possible_times(micros(good, event_time), int(time.time() * 1e6))
            mean = pc.mean(possible).as_py()
            if mean is not None:
                rows[0]["event_ms"] = float(mean) / 1000
                rows[0]["events"] = len(possible) - possible.null_count
        return rows

    def _estimate(self, gate: BatchGate, graded: Graded, ordering: Ordering) -> dict[str, object]:
        """What control has cost in matches: a seeded sample of shed and of reordered rows is matched in order.

        Where updates are shed or deferred, matches of shed rows are those with the state that there is.
        """
        found: dict[str, object] = {}
        missed, sampled = graded.missed(gate, self.batch, ordering)
        wrong, state, kept = [], graded.whole, graded.kept
        if ordering.behind and kept.num_rows:
            places = gate.sample(self.batch, np.arange(kept.num_rows), kept.num_rows, DRAWN, DRAWN)
            rows = kept.take(pa.array(places))
            negatives, positives = ordering.stale_errors(state, rows, kept.num_rows, (gate.seed, self.batch))
            missed.append(negatives)
            wrong.append(positives)
            sampled += len(places)
        elif ordering.reorders(state, kept):
            places = gate.sample(self.batch, np.arange(kept.num_rows), kept.num_rows)
            rows = kept.take(pa.array(places))
            fewer, more = compare_lists(ordering.exact(state, rows), ordering.match(state, rows))
            missed.append(estimate_errors(fewer.tolist(), kept.num_rows))
            wrong.append(estimate_errors(more.tolist(), kept.num_rows))
            sampled += len(places)
        for name, estimates in (("missed", missed), ("wrong", wrong)):
            found[name] = sum(each.errors for each in estimates)
            found[f"{name}_var"] = sum(each.variance for each in estimates)
        return {**found, "sampled": sampled}


def possible_times(times_us: pa.Array, now_us: int) -> pa.Array:
    """The times that a row can have been made at, without those before 1970 or more than a minute from now.

    A single row of the year 9999 would otherwise make a batch look as if it had no delay.

    >>> possible_times(pa.array([-5, 7, None, 253_402_300_799_000_000]), 1_000_000).to_pylist()
    [7]
    """
    return times_us.filter(pc.and_(pc.greater_equal(times_us, 0), pc.less(times_us, now_us + _AHEAD_US)))


def cut(
    good: pa.RecordBatch, lists: ClassLists, max_bytes: int, spent: Spent | None = None
) -> Iterator[tuple[Part, bytes | None]]:
    """Parts of at most so many bytes with their encoding, None for a run of rows that nobody wants."""
    matched = lists.rows_matched()
    rows = good.take(pa.array(matched)) if len(matched) < good.num_rows else good
    kept = ClassLists(np.concatenate((lists.offsets[matched], lists.offsets[-1:])), lists.ids)
    part = Part(good.num_rows, matched.astype(np.uint64), rows, kept)
    encoded = None
    if len(matched):
        began = time.thread_time()
        classes = encode_lists(kept.offsets, kept.ids)
        if spent is not None:
            spent.class_s += time.thread_time() - began
            spent.class_bytes += sum(map(len, classes))
        encoded = encode_part(part, classes)
    if encoded is None or len(encoded) <= max_bytes or good.num_rows == 1:
        yield part, encoded
        return
    half = good.num_rows // 2
    for start, stop in ((0, half), (half, good.num_rows)):
        offsets = lists.offsets[start : stop + 1]
        piece = ClassLists(offsets - offsets[0], lists.ids[offsets[0] : offsets[-1]])
        yield from cut(good.slice(start, stop - start), piece, max_bytes, spent)
