"""Fair shares of the index: spans that some classes do not see, and who is served less while a stream is behind."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.filters import parse_filter
from headgate.matching.definitions import ClassGroup, RowReading
from headgate.matching.fair_shares import LEAST_PART, BatchLoad
from headgate.matching.hiding import LEVELS, level_of, spans_of
from headgate.matching.indexed_shares import NOBODY, IndexedLoad, IndexedShares, OwnerTable
from headgate.matching.live import LiveIndex
from headgate.matching.metering import Meter
from headgate.model import Schema

SCHEMA = Schema.of({"n": "int", "x": "double", "name": "string"})
TEXTS = [
    *(f"n >= {k} AND x < {0.02 * k}" for k in range(40)),
    *(f"n IN ({k}, {k + 7}, {k + 31}) OR x > {0.9 + k / 1000}" for k in range(20)),  # classes of several boxes
    *(f"name = 's{k}'" for k in range(10)),
    "x IS NULL OR n < 3",
    "name LIKE '%7' AND n > 20",  # checked behind its box
    "n % 3 = 1",  # evaluated on every row
]


def batch_of(rows: int, seed: int) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    x = pa.array(rng.random(rows), mask=rng.random(rows) < 0.1)
    names = [f"s{k}" for k in rng.integers(0, 12, rows)]
    return pa.record_batch({"n": pa.array(rng.integers(0, 60, rows), pa.int32()), "x": x, "name": names})


def index_of(texts: Iterable[str]) -> LiveIndex:
    groups = [ClassGroup(text, np.array([3 * k], np.uint32), [{}]) for k, text in enumerate(texts)]
    return LiveIndex.build(RowReading(SCHEMA, lambda text: parse_filter(text, SCHEMA)), groups)


@given(
    st.integers(1, 300),
    st.dictionaries(st.integers(0, 30), st.floats(LEAST_PART, 1, exclude_max=True)),
    st.floats(0, 1, exclude_max=True),
)
def test_a_class_sees_its_part_of_the_rows_and_the_others_are_counted(
    rows: int, parts: dict[int, float], turn: float
) -> None:
    spans, left_out = spans_of(rows, parts, turn)
    seen = {each: np.zeros(rows, np.int64) for each in parts}
    for span in spans:
        for each in set(parts) - set(span.hidden.tolist()):
            seen[each][span.start : span.stop] += 1
    assert len(spans) <= 2 * len(LEVELS)
    for each, part in parts.items():
        if spans:
            assert seen[each].max() == 1
            assert rows - seen[each].sum() == left_out.get(each, 0)
        assert rows - left_out.get(each, 0) == int(np.ceil(level_of(part) * rows))
        assert rows - left_out.get(each, 0) >= part * rows


@settings(max_examples=30)
@given(st.integers(1, 400), st.integers(0, 9), st.lists(st.sampled_from(range(len(TEXTS))), unique=True), st.data())
def test_the_index_keeps_to_the_spans_and_is_whole_again(
    rows: int, seed: int, cut: list[int], data: st.DataObject
) -> None:
    batch, index = batch_of(rows, seed), INDEX
    everything = index.match(batch)
    parts = {3 * k: data.draw(st.sampled_from([LEAST_PART, 0.1, 0.3, 0.5, 0.8, 0.95]), label=TEXTS[k]) for k in cut}
    meter = Meter(lambda: 0.0)
    meter.serve(parts, seed)
    index.measure(meter)
    try:
        found = index.match(batch)
    finally:
        index.measure(None)
    left_out = {each: spent.left_out for each, spent in meter.take().items()}
    table = np.zeros((rows, 3 * len(TEXTS)), np.bool_)
    table[found.row_of_id(), found.ids] = True
    for k, text in enumerate(TEXTS):
        expected = FILTERS[k].evaluate(batch, {})
        mine = table[:, 3 * k]
        assert not (mine & ~expected).any()
        if 3 * k not in parts:
            assert (mine == expected).all(), text
        assert int((expected & ~mine).sum()) <= left_out.get(3 * k, 0)
    assert index.match(batch).same(everything)


FILTERS = [parse_filter(text, SCHEMA) for text in TEXTS]
INDEX = index_of(TEXTS)


def test_what_the_index_leaves_out_is_all_but_a_window() -> None:
    """A class that every row matches gets half of them side by side, at another place in the next micro-batch."""
    rows = pa.record_batch({"n": pa.array(range(800), pa.int32()), "x": [0.5] * 800, "name": ["s"] * 800})
    index, meter = index_of([f"n >= -{k}" for k in range(30)]), Meter(lambda: 0.0)
    index.measure(meter)
    windows = []
    for turn in (0, 1):
        meter.serve({0: 0.5, 3: 0.01}, turn)
        found = index.match(rows)
        windows.append([row for row in range(800) if 0 in found.row(row)])
        assert len(windows[-1]) == 400
        assert sum(3 in found.row(row) for row in range(800)) == 13  # a sixty-fourth, at least
        assert found.counts().sum() == 28 * 800 + 400 + 13
        assert {each: spent.left_out for each, spent in meter.take().items()} == {0: 400, 3: 787}
    assert windows[0] != windows[1]
    meter.serve({}, 2)
    assert index.match(rows).counts().sum() == 30 * 800


def load_of(matches: dict[int, float], seconds: float, rows: int = 1_000) -> tuple[BatchLoad, IndexedLoad]:
    """A micro-batch in which everything was spent in the index, with so many matches a row of each class."""
    ids = np.array(sorted(matches), np.uint64)
    counts = np.array([matches[each] * rows for each in sorted(matches)]).astype(np.uint64)
    return BatchLoad(rows, seconds, 1, 0, {}), IndexedLoad(seconds, ids, counts)


people = st.sampled_from(["ada", "bob", "cyd", "dan", NOBODY])


@given(st.dictionaries(st.integers(0, 40), st.tuples(st.sets(people, min_size=1), st.integers(1, 50)), min_size=1))
def test_only_owners_above_the_median_and_above_their_share_are_served_less(
    classes: dict[int, tuple[set[str], int]],
) -> None:
    shares = IndexedShares(1.0)
    shares.learn(*load_of({each: count / 50 for each, (_, count) in classes.items()}, 3.0))
    serving = shares.serve(OwnerTable.of({each: mine for each, (mine, _) in classes.items()}))
    needs = {
        name: sum(count / len(mine) for mine, count in classes.values() if name in mine)
        for name in {each for mine, _ in classes.values() for each in mine}
    }
    median = sorted(needs.values())[(len(needs) - 1) // 2]
    for each, part in serving.parts.items():
        assert LEAST_PART <= part < 1
        assert all(name != NOBODY and needs[name] > median for name in classes[each][0])
    assert not serving.parts or len(serving.portions) == len(needs)
    for portion in serving.portions:
        assert portion.gets_us <= portion.needs_us + 1e-9


def test_one_identity_or_many_alike_are_not_served_less() -> None:
    """Nobody is to blame for a load that all have alike: admission control is for that."""
    for owners in ({k: ["ada"] for k in range(10)}, {k: [f"user-{k}"] for k in range(10)}, {0: [NOBODY], 1: ["ada"]}):
        shares = IndexedShares(1.0)
        matches = dict.fromkeys(owners, 1.0) | ({0: 900.0} if NOBODY in owners[0] else {})
        for _ in range(20):
            shares.learn(*load_of(matches, 5.0))
            assert shares.serve(OwnerTable.of(owners)).parts == {}


def test_the_stream_catches_up_and_only_the_one_with_many_matches_is_cut() -> None:
    """Eve has a thousand filters that take every row, nine others ten each: 3 s of a micro-batch of one."""
    owners = {k: ["eve"] if k < 1_000 else [f"user-{k % 9}"] for k in range(1_090)}
    shares, parts, took = IndexedShares(1.0), dict[int, float](), []
    rows, match_us = 3_000, 3e6 / 3_000 / 1_090
    for _ in range(40):
        counts = np.array([int(np.ceil(level_of(parts.get(k, 1.0)) * rows)) for k in range(1_090)], np.uint64)
        left_out = {k: rows - int(counts[k]) for k in parts}
        took.append(float(counts.sum()) * match_us / 1e6)
        load = BatchLoad(rows, took[-1], 1, 0, {})
        shares.learn(load, IndexedLoad(took[-1], np.arange(1_090, dtype=np.uint64), counts, left_out))
        parts = dict(shares.serve(OwnerTable.of(owners)).parts)
        assert not [each for each in parts if each >= 1_000]
    assert took[0] == pytest.approx(3.0)
    assert max(took[8:]) < 1.3
    for _ in range(40):  # a tenth of the rows come
        shares.learn(*load_of(dict.fromkeys(range(1_090), 1.0), 0.3, 300))
    assert (shares.budget_us, shares.serve(OwnerTable.of(owners)).parts) == (None, {})


def test_a_stream_that_keeps_up_is_not_looked_at() -> None:
    shares = IndexedShares(1.0)
    assert not shares.concerned(BatchLoad(1_000, 0.9, 1, 0, {}), 0.8)
    assert not shares.concerned(BatchLoad(1_000, 9.0, 2, 0, {}), 0.8)  # late, by something else
    assert shares.concerned(BatchLoad(1_000, 2.0, 1, 0, {}), 0.8)
    assert shares.concerned(BatchLoad(1_000, 0.9, 1, 5, {}), 0.8)  # rows are shed
