"""Classes that take far longer than was estimated: left out of a batch when their time is up, and named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.filters import parse_filter
from headgate.matching.index import ClassSpec
from headgate.matching.metering import ALLOWED_US, GRACE_S, TRUSTED_ROWS, Meter
from headgate.matching.recheck import recheck
from headgate.matching.scan import ScanIndex
from headgate.model import Schema

SCHEMA = Schema.of({"n": "int"})
ROWS = pa.record_batch({"n": pa.array(range(10_000), pa.int32())})


class Clock:
    """A clock that only filters move on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Slow:
    """A filter that takes its time."""

    def __init__(self, clock: Clock, row_us: float, text: str = "n % 2 = 0") -> None:
        self.clock, self.row_us = clock, row_us
        self.filter = parse_filter(text, SCHEMA)
        self.text, self.columns, self.parameters = text, self.filter.columns, frozenset[str]()
        self.calls: list[int] = []

    def evaluate(self, batch: pa.RecordBatch, context: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
        self.calls.append(batch.num_rows)
        self.clock.now_s += self.row_us * batch.num_rows / 1e6
        return self.filter.evaluate(batch, context)


def test_a_class_within_its_allowance_gets_every_row_and_is_soon_trusted() -> None:
    clock = Clock()
    fine = Slow(clock, ALLOWED_US * 0.9)
    index = ScanIndex([ClassSpec(7, fine)])
    index.meter = Meter(clock)
    for _ in range(3):
        assert index.match(ROWS).counts().tolist() == [1, 0] * 5_000
    assert index.meter.take() == {}
    assert len(fine.calls) > 3
    assert fine.calls[-2:] == [10_000, 10_000]  # in one piece, once it is trusted
    assert sum(fine.calls[:-2]) == 10_000 >= TRUSTED_ROWS


def test_a_class_that_takes_too_long_is_stopped_and_the_others_are_served() -> None:
    clock = Clock()
    slow, fine = Slow(clock, 1_000.0), Slow(clock, 1.0)
    index = ScanIndex([ClassSpec(1, fine), ClassSpec(2, slow), ClassSpec(3, fine)])
    index.meter = Meter(clock)
    before_s = clock.now_s
    found = index.match(ROWS)
    spent_s = clock.now_s - before_s
    counts = dict(zip(*np.unique(found.ids, return_counts=True), strict=True))
    assert counts[1] == counts[3] == 5_000
    left = index.meter.take()
    assert set(left) == {2}
    assert left[2].rows + left[2].left_out == 10_000
    assert left[2].left_out > 0
    assert counts.get(2, 0) == (left[2].rows + 1) // 2
    allowed_s = GRACE_S + ALLOWED_US * 1e4 / 1e6
    assert spent_s < 5 * allowed_s  # the last slice may be four times those before it
    assert index.meter.take() == {}


def test_an_estimate_raises_the_limit_and_rows_that_boxes_name_count_too() -> None:
    clock = Clock()
    slow = Slow(clock, 150.0)
    spec = ClassSpec(4, slow)
    dear = Meter(clock, lambda _: 20.0)
    assert dear.evaluate(spec, ROWS).sum() == 5_000
    assert dear.take() == {}
    cheap = Meter(clock, lambda _: 1.0)
    everything = ScanIndex([ClassSpec(4, parse_filter("true", SCHEMA))]).match(ROWS)
    kept = recheck(everything, ROWS, {4: spec}, cheap)
    assert len(kept.ids) < 5_000
    assert cheap.take()[4].limit_us == ALLOWED_US


def test_a_class_that_became_slow_is_watched_again() -> None:
    clock = Clock()
    changing = Slow(clock, 1.0)
    meter, spec = Meter(clock), ClassSpec(1, changing)
    for _ in range(2):
        meter.evaluate(spec, ROWS)
    changing.row_us = 2_000.0
    assert meter.evaluate(spec, ROWS).sum() == 5_000  # it was trusted: this batch is done
    assert meter.take()[1].left_out == 0
    meter.evaluate(spec, ROWS)
    assert meter.take()[1].left_out > 9_000
    meter.forget(np.array([2], np.uint32))
    changing.row_us = 1.0
    changing.calls.clear()
    meter.evaluate(spec, ROWS)
    assert changing.calls[0] == 32


def test_a_class_that_is_served_less_is_evaluated_on_another_part_of_the_rows_each_time() -> None:
    clock = Clock()
    one, other = Slow(clock, 5.0, "true"), Slow(clock, 5.0, "true")
    index = ScanIndex([ClassSpec(1, one), ClassSpec(2, other)])
    index.meter = meter = Meter(clock)
    looked_at = []
    for turn in range(8):
        meter.serve({2: 0.25}, turn)
        hits = index.match(ROWS).rows_by_class()
        assert len(hits[1]) == 10_000
        assert np.array_equal(hits[2], np.arange(hits[2][0], hits[2][0] + 2_500))
        looked_at.append(int(hits[2][0]))
        left = meter.take()
        assert {each: (spent.rows, spent.left_out, spent.slow) for each, spent in left.items()} == {
            2: (2_500, 7_500, False)
        }
        assert {each: rows for each, (rows, _) in meter.take_costs().items()} == {1: 10_000, 2: 2_500}
    assert len(set(looked_at)) == 8
    meter.serve({}, 9)
    assert index.match(ROWS).counts().sum() == 20_000
    assert meter.take() == {}
