"""The compiled index against brute force over plain Python values: types, nulls, extremes, changes, growth."""

import datetime as dt
import decimal
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.matching import ClassLists, MatchingError
from headgate.matching.compiled.boxes import Attribute, Boxes
from headgate.matching.compiled.coding import ALSO_NULLS, HIGHEST, LOWEST, NO_NULLS, ONLY_NULLS, make_coder
from headgate.matching.compiled.index import BoxIndex
from headgate.matching.compiled.keys import column_keys, float_keys
from headgate.matching.compiled.labels import Labels
from headgate.matching.compiled.single import RowMatcher
from headgate.matching.compiled.tree import build_tree

relaxed = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def oracle(boxes: Boxes, keys: np.ndarray, valid: np.ndarray) -> ClassLists:
    """Rows x boxes x attributes, all compared; `keys` and `valid` are rows x attributes."""
    key = keys[:, None, :]
    inside = (boxes.exact[None, :, :, 0] <= key) & (key <= boxes.exact[None, :, :, 1])
    passed = np.where(valid[:, None, :] == 0, boxes.nulls[None] != NO_NULLS, inside & (boxes.nulls[None] != ONLY_NULLS))
    rows, hits = np.nonzero(passed.all(axis=2))
    return ClassLists.from_pairs(rows, boxes.ids[hits], len(keys))


def random_case(rng, count, attributes, span, rows, ids=None):
    exact = np.sort(rng.integers(-span, span + 1, (count, attributes, 2)), axis=2)
    nulls = np.zeros((count, attributes), np.uint8)
    loose = rng.random((count, attributes)) < 0.3
    exact[loose] = (LOWEST, HIGHEST)
    nulls[loose] = rng.choice([NO_NULLS, ALSO_NULLS], int(loose.sum()))
    nulls[rng.random((count, attributes)) < 0.05] = ONLY_NULLS
    nulls[(nulls == ALSO_NULLS) & (exact[:, :, 0] != LOWEST)] = NO_NULLS
    ids = np.arange(count, dtype=np.uint32) * 3 if ids is None else ids
    keys = rng.integers(-span - 2, span + 3, (rows, attributes))
    valid = (rng.random((rows, attributes)) > 0.1).astype(np.uint8)
    return Boxes(ids, exact, nulls), keys, valid


def batch_of(keys, valid):
    columns = [pa.array(keys[:, k], pa.int64(), mask=valid[:, k] == 0) for k in range(keys.shape[1])]
    return pa.RecordBatch.from_arrays(columns, names=[f"a{k}" for k in range(keys.shape[1])])


def attributes_of(count):
    return [Attribute(f"a{k}", pa.int64()) for k in range(count)]


@relaxed
@given(st.integers(0, 2**32), st.integers(0, 300), st.integers(1, 5), st.sampled_from([1, 5, 1000, 2**62]))
def test_equals_brute_force(seed, count, attributes, span):
    rng = np.random.default_rng(seed)
    boxes, keys, valid = random_case(rng, count, attributes, span, 40)
    keys[:4] = boxes.exact[:4, :, 0].copy() if count >= 4 else keys[:4]
    index = BoxIndex.build(attributes_of(attributes), boxes, sample=batch_of(keys, valid) if seed % 2 else None)
    found = index.match(batch_of(keys, valid))
    assert found.same(oracle(boxes, keys, valid))
    assert index.match(batch_of(keys, valid), threads=2).same(found)
    matcher = RowMatcher(index, capacity=8)
    for row in range(0, 40, 7):
        end = matcher.match_keys(keys[row].copy(), valid[row].copy())
        assert matcher.out[:end].tolist() == found.row(row).tolist()


@relaxed
@given(st.integers(0, 2**32), st.integers(1, 400), st.sampled_from([3, 40, 2**40]))
def test_stays_exact_through_changes_additions_and_removals(seed, count, span):
    rng = np.random.default_rng(seed)
    boxes, keys, valid = random_case(rng, count, 3, span, 30)
    index = BoxIndex.build(attributes_of(3), boxes)
    exact, nulls, ids = boxes.exact.copy(), boxes.nulls.copy(), boxes.ids.copy()
    for step in range(4):
        size = int(rng.choice([2, 50]))
        chosen = rng.integers(0, len(ids), size)
        which = rng.integers(0, 3, size)
        ranges = np.sort(rng.integers(-span, span + 1, (size, 2)), axis=1)
        index.change(ids[chosen], which, ranges[:, 0].copy(), ranges[:, 1].copy())
        for place, attribute, new in zip(chosen, which, ranges, strict=True):
            exact[place, attribute], nulls[place, attribute] = new, NO_NULLS
        new_ids = (10_000_000 + 1000 * step + np.arange(rng.integers(0, 120))).astype(np.uint32)
        more, _, _ = random_case(rng, len(new_ids), 3, span, 1, new_ids)
        index.add(more)
        gone = rng.choice(ids, min(len(ids) - 1, int(rng.integers(0, 60))), replace=False)
        assert index.remove(np.append(gone, np.uint32(4_000_000_000))) == len(gone)
        keep = ~np.isin(ids, gone)
        ids = np.concatenate([ids[keep], more.ids])
        exact = np.concatenate([exact[keep], more.exact])
        nulls = np.concatenate([nulls[keep], more.nulls])
        if step == 2:
            index.tighten()
        assert index.match(batch_of(keys, valid)).same(oracle(Boxes(ids, exact, nulls), keys, valid))
        assert index.classes.tolist() == sorted(ids.tolist())
    index.repack()
    assert index.match(batch_of(keys, valid)).same(oracle(Boxes(ids, exact, nulls), keys, valid))


def test_inexact_codes_are_rechecked():
    rng = np.random.default_rng(11)
    boxes, keys, valid = random_case(rng, 500, 3, 1000, 300)
    coder = make_coder(boxes.exact, boxes.nulls, np.zeros(3, np.uint8), limit=7)
    assert coder.inexact.all()
    index = BoxIndex(attributes_of(3), build_tree(boxes.ids, boxes.exact, boxes.nulls, coder), {})
    assert index.match(batch_of(keys, valid)).same(oracle(boxes, keys, valid))


floats = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, -0.0, 5e-324, 2.0**53, 1e308, -1e308])


@relaxed
@given(st.lists(st.tuples(floats, floats), min_size=1, max_size=40), st.lists(floats | st.none(), max_size=30))
def test_floats_compare_as_spark_does(ranges, values):
    def rank(x):
        return (1, 0.0) if math.isnan(x) else (0, x)

    pairs = [(a, b) if rank(a) <= rank(b) else (b, a) for a, b in ranges]
    exact = np.stack([float_keys(np.array(side)) for side in zip(*pairs, strict=True)], axis=1)[:, None, :]
    boxes = Boxes(np.arange(len(pairs), dtype=np.uint32), exact, np.zeros((len(pairs), 1), np.uint8))
    index = BoxIndex.build([Attribute("x", pa.float64())], boxes)
    found = index.match(pa.RecordBatch.from_pydict({"x": pa.array(values, pa.float64(), from_pandas=False)}))
    matcher = RowMatcher(index)
    for row, value in enumerate(values):
        expected = []
        if value is not None:
            expected = [k for k, (a, b) in enumerate(pairs) if rank(a) <= rank(value) <= rank(b)]
            end = matcher.match_floats(np.array([value]))
            assert matcher.out[:end].tolist() == expected
        assert found.row(row).tolist() == expected


texts = st.text(alphabet="abå☃\x00z", max_size=4)


@relaxed
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=25), st.lists(texts | st.none(), max_size=25), texts)
def test_strings_compare_by_their_bytes(ranges, values, extra):
    pairs = [tuple(sorted((a.encode(), b.encode()))) for a, b in ranges]
    labels = Labels.of(text for pair in pairs for text in pair)
    grown = labels.grown([extra.encode(), b"zzzzzz"])
    assert grown is not None
    ends = [grown.of_bytes(np.array([p[side] for p in pairs] + [None], object)[:-1]) for side in (0, 1)]
    opened = np.stack([ends[0], ends[1] - 1], axis=1)  # [low, high)
    proper = opened[:, 0] <= opened[:, 1]
    boxes = Boxes(
        np.flatnonzero(proper).astype(np.uint32), opened[proper][:, None, :], np.zeros((int(proper.sum()), 1), np.uint8)
    )
    index = BoxIndex.build([Attribute("s", pa.string())], boxes, {"s": grown})
    found = index.match(pa.RecordBatch.from_pydict({"s": pa.array(values, pa.string())}))
    for row, value in enumerate(values):
        expected = [] if value is None else [k for k, (a, b) in enumerate(pairs) if a <= value.encode() < b]
        assert found.row(row).tolist() == expected


def test_every_indexable_type_has_exact_keys():
    when = dt.datetime(2024, 5, 1, 12, 0, 0, 1, tzinfo=dt.UTC)
    cases = {
        "timestamp": (pa.timestamp("us", tz="UTC"), [when, when + dt.timedelta(microseconds=1), None]),
        "date": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29), None]),
        "bool": (pa.bool_(), [False, True, None]),
        "int": (pa.int64(), [2**53, 2**53 + 1, -(2**63), 2**63 - 1, None]),
        "small": (pa.int8(), [-128, 127, None]),
        "float": (pa.float32(), [1.5, 2.5, None]),
        "decimal": (pa.decimal128(12, 3), [decimal.Decimal("-1.001"), None]),
    }
    for kind, values in cases.values():
        present = [value for value in values if value is not None]
        keys, _ = column_keys(pa.array(present, kind), kind, None)
        boxes = Boxes(
            np.arange(len(present), dtype=np.uint32),
            np.stack([keys, keys], 1)[:, None, :],
            np.zeros((len(present), 1), np.uint8),
        )
        index = BoxIndex.build([Attribute("x", kind)], boxes)
        found = index.match(pa.RecordBatch.from_pydict({"x": pa.array(values, kind)}).slice(1))
        expected = [[k for k, own in enumerate(present) if own == value and value is not None] for value in values[1:]]
        assert found.same(ClassLists.of(expected)), kind


def test_a_class_of_several_boxes_is_named_once():
    rng = np.random.default_rng(5)
    boxes, keys, valid = random_case(rng, 600, 2, 30, 200, ids=(np.arange(600) // 7).astype(np.uint32))
    index = BoxIndex.build(attributes_of(2), boxes)
    expected = oracle(boxes, keys, valid)
    assert index.match(batch_of(keys, valid)).same(expected)
    assert index.remove(np.array([3], np.uint32)) == 7
    assert index.match(batch_of(keys, valid)).same(expected.restrict(np.setdiff1d(expected.ids, [3])))


@pytest.mark.parametrize("shape", ["equal", "empty", "nested", "one hot value"])
def test_awkward_sets_are_still_exact(shape):
    rng = np.random.default_rng(8)
    count = 3000
    boxes, keys, valid = random_case(rng, count, 2, 100, 200)
    exact = boxes.exact.copy()
    if shape == "equal":
        exact[:] = (-5, 5)
    elif shape == "nested":
        exact[:, :, 0] = -np.arange(count)[:, None]
        exact[:, :, 1] = np.arange(count)[:, None]
    elif shape == "one hot value":
        exact[100:] = (7, 7)
    boxes = Boxes(boxes.ids, exact, np.zeros_like(boxes.nulls))
    if shape == "empty":
        boxes = Boxes(boxes.ids[:0], boxes.exact[:0], boxes.nulls[:0])
    index = BoxIndex.build(attributes_of(2), boxes)
    assert index.match(batch_of(keys, valid)).same(oracle(boxes, keys, valid))
    if shape == "equal":
        ids = boxes.ids[rng.integers(0, count, 5000)]
        ends = np.full(5000, 6)
        index.change(ids, np.zeros(5000, np.int64), -ends, ends)
        exact = exact.copy()
        exact[np.searchsorted(boxes.ids, ids), 0] = (-6, 6)
        assert index.match(batch_of(keys, valid)).same(oracle(Boxes(boxes.ids, exact, boxes.nulls), keys, valid))


def test_bad_boxes_and_changes_are_refused_with_nothing_changed():
    ids = np.array([1, 2], np.uint32)
    with pytest.raises(MatchingError, match="NaN bound"):
        Boxes.of_floats(ids, np.array([[0.0], [np.nan]]), np.array([[1.0], [1.0]]))
    with pytest.raises(MatchingError, match="class 2 has a reversed range on attribute 0"):
        Boxes.of_floats(ids, np.array([[0.0], [2.0]]), np.array([[1.0], [1.0]]))
    index = BoxIndex.build([Attribute("x", pa.float64())], Boxes.of_floats(ids, np.zeros((2, 1)), np.ones((2, 1))))
    batch = pa.RecordBatch.from_pydict({"x": [0.5, 3.0]})
    zero, low, high = np.zeros(2, np.int64), float_keys(np.array([2.0, 4.0])), float_keys(np.array([5.0, 3.0]))
    with pytest.raises(MatchingError, match="class 2 is reversed"):
        index.change(ids, zero, low, high)
    with pytest.raises(MatchingError, match="class 9 is not in the index"):
        index.change(np.array([1, 9], np.uint32), zero, low, low)
    assert index.match(batch).same(ClassLists.of([[1, 2], []]))
    with pytest.raises(ValueError, match="have no keys"):
        Attribute("x", pa.list_(pa.int64()))


@pytest.mark.long
@pytest.mark.slow
def test_the_benchmark_agrees_with_brute_force_at_small_size(capsys):
    from headgate_studies.bench.matching import run

    found = run(profiles=3000, batch=200, peers="rtree,duckdb,polars,scan", growth=[500], portable=False, repeats=1)
    assert found["oracle_mismatches"] == 0
    wanted = ("a_vs_rtree", "b_vs_rtree", "a_vs_duckdb", "a_us_per_message", "b_us_per_message", "update_us")
    assert all(found[name] > 0 for name in (*wanted, "single_message_p50_us", "update_vs_rtree", "bytes_per_profile"))
    assert "matches a message" in capsys.readouterr().out


def test_threads_may_match_on_one_index_at_once():
    rng = np.random.default_rng(21)
    boxes, _, _ = random_case(rng, 2000, 3, 50, 1)
    index = BoxIndex.build(attributes_of(3), boxes)
    cases = [random_case(rng, 1, 3, 50, 300)[1:] for _ in range(8)]
    expected = [index.match(batch_of(keys, valid)) for keys, valid in cases]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = list(pool.map(lambda case: index.match(batch_of(*case)), cases))
            assert all(one.same(other) for one, other in zip(found, expected, strict=True))


def test_bounds_are_tightened_for_many_rows_and_left_loose_for_few():
    rng = np.random.default_rng(12)
    boxes, keys, valid = random_case(rng, 600, 3, 1000, 500)
    index = BoxIndex.build(attributes_of(3), boxes)
    other, _, _ = random_case(rng, 600, 3, 1000, 1)
    index.remove(boxes.ids)
    index.add(other)
    assert index.changed == 600
    few = slice(0, 3)
    assert index.match(batch_of(keys[few], valid[few])).same(oracle(other, keys[few], valid[few]))
    assert index.changed == 600
    for adapt, left in ((False, 600), (True, 0)):
        assert index.match(batch_of(keys, valid), adapt=adapt).same(oracle(other, keys, valid))
        assert index.changed == left


def test_rows_with_the_same_codes_are_looked_up_once_and_share_a_set():
    rng = np.random.default_rng(5)
    lows = rng.uniform(0, 10, (64, 2))
    index = BoxIndex.build(
        [Attribute("x", pa.float64()), Attribute("y", pa.float64())],
        Boxes.of_floats(np.arange(64, dtype=np.uint32) + 900, lows, lows + 4),
    )
    points = rng.uniform(0, 10, (7, 2))[rng.integers(0, 7, 3000)]
    found = index.match(pa.RecordBatch.from_pydict({"x": points[:, 0], "y": points[:, 1]}))
    assert found.rows == 3000
    assert len(found.starts) - 1 == 7
    for row in range(0, 3000, 100):
        inside = ((lows <= points[row]) & (points[row] <= lows + 4)).all(axis=1)
        assert found.row(row).tolist() == (np.flatnonzero(inside) + 900).tolist()


def test_a_buffer_is_used_again_only_when_no_list_looks_at_it():
    rng = np.random.default_rng(6)
    lows = rng.uniform(0, 10, (40, 3))
    boxes = Boxes.of_floats(np.arange(40, dtype=np.uint32), lows, lows + 6)
    index = BoxIndex.build([Attribute(name, pa.float64()) for name in "xyz"], boxes)
    low, high = (pa.RecordBatch.from_pydict({name: rng.uniform(2, 12, 200) for name in "xyz"}) for _ in range(2))
    first = index.match(low)
    expected = [first.row(k).tolist() for k in range(200)]
    second = index.match(high)
    assert first.names is not None
    assert not np.shares_memory(first.numbers, second.numbers)
    assert [first.row(k).tolist() for k in range(200)] == expected
    place = first.numbers.ctypes.data
    del first
    assert index.match(low).numbers.ctypes.data == place
