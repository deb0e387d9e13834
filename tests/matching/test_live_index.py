"""The index of a running stream: built, saved, mapped and changed in place, it answers like a scan of its classes."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.filters import context_types, parse_filter
from headgate.matching import ClassSpec, MatchingError, ScanIndex
from headgate.matching.compiled.boxes import Attribute
from headgate.matching.compiled.index import BoxIndex
from headgate.matching.compiled.pieces import boxes_of, pieces_of
from headgate.matching.compiled.saved import SavedIndexes
from headgate.matching.compiled.templates import RangeTemplate
from headgate.matching.definitions import ClassDefinition, RowReading, grouped
from headgate.matching.live import LiveIndex
from headgate.model import Schema

SCHEMA = Schema.of({"x": "double", "n": "int", "b": "bigint", "s": "string", "at": "timestamp"})
TEXTS = [
    "x BETWEEN $c - 5 AND $c + 5",
    "$c < x AND n >= $k",
    "b > $k AND b <= $k + 3L",
    "b = $k",
    "s = $s",
    "x > $c AND s LIKE 'a%c'",
    "s >= $s",
    "x < 3",
    "n IN (1, 2, 5) AND x > 40",
    "s LIKE '%b%'",
]


def compiled(template):
    where, types = json.loads(template)
    return parse_filter(where, SCHEMA, {name: pa.type_for_alias(kind) for name, kind in types.items()})


READING = RowReading(SCHEMA, compiled)


def drawn(rng, identity):
    where = TEXTS[int(rng.integers(len(TEXTS)))]
    context = {"c": float(rng.uniform(0, 60)), "k": int(rng.integers(0, 9)), "s": str(rng.choice(list("abcdef")))}
    if rng.random() < 0.1:
        context["c"] = rng.choice([float("inf"), float("-inf"), -0.0, None])
    types = {"c": "double", "k": "int64", "s": "string"}
    return ClassDefinition(identity, json.dumps([where, types]), context)


def rows(seed, count=80):
    rng = np.random.default_rng(seed)
    some = rng.random(count) < 0.1
    return pa.RecordBatch.from_pydict(
        {
            "x": pa.array(np.where(some, np.nan, rng.uniform(0, 60, count)), mask=rng.random(count) < 0.1),
            "n": pa.array(rng.integers(0, 9, count).astype(np.int32)),
            "b": pa.array(rng.integers(0, 12, count), mask=rng.random(count) < 0.1),
            "s": pa.array(rng.choice(["a", "abc", "b", "cb", "ac", "f", "zz"], count)),
            "at": pa.array(rng.integers(0, 10, count), pa.timestamp("us", tz="UTC")),
        }
    )


def oracle(definitions, batch):
    return ScanIndex(ClassSpec(each.id, compiled(each.template), each.context) for each in definitions).match(batch)


@settings(max_examples=10)
@given(st.integers(0, 2**32), st.sampled_from([10, 60]))
def test_deltas_and_bindings_lead_where_a_fresh_compile_leads(tmp_path_factory, seed, count):
    rng = np.random.default_rng(seed)
    saved = SavedIndexes(tmp_path_factory.mktemp("index"))
    first = {k: drawn(rng, k) for k in range(count)}
    driver = LiveIndex.build(READING, grouped(first.values()))
    saved.save(3, driver, {"position": 7})
    worker = saved.open(3, READING)
    assert saved.document(3) == {"position": 7}
    assert worker.match(rows(seed)).same(oracle(first.values(), rows(seed)))
    removed = np.array(sorted(rng.choice(count, 4, replace=False)), np.uint32)
    added = [drawn(rng, count + k) for k in range(5)]
    delta = driver.plan(removed, grouped(added))
    second = {**{k: each for k, each in first.items() if k not in removed}, **{each.id: each for each in added}}
    if delta is not None:
        driver.apply(delta)
        saved.append(9, delta, 3, {})
        worker.apply(saved.delta(9))
        assert saved.steps(9) == [3, 9]
        for index in (driver, worker, saved.open(9, READING)):
            assert index.match(rows(seed)).same(oracle(second.values(), rows(seed)))
            assert index.classes.tolist() == sorted(second)
    else:
        worker = LiveIndex.build(READING, grouped(second.values()))
    bound = {k: {**each.context, **drawn(rng, k).context, "s": f"new{k}"} for k, each in second.items()}
    worker.bind({**bound, 99_999: {"c": 1.0}})
    third = [ClassDefinition(k, each.template, bound[k]) for k, each in second.items()]
    assert worker.match(rows(seed)).same(oracle(third, rows(seed)))


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from(TEXTS[:4]))
def test_a_table_of_contexts_gives_the_boxes_of_each_alone(seed, where):
    rng = np.random.default_rng(seed)
    limits = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, None, 1e308]
    contexts = [
        {
            "c": rng.choice(limits) if rng.random() < 0.5 else rng.normal() * 10.0 ** rng.integers(-9, 9),
            "k": int(rng.choice([0, -1, 2**63 - 1, -(2**63), 2**63 - 3, 7])),
        }
        for _ in range(20)
    ]
    found = parse_filter(where, SCHEMA, context_types({"c": 1.0, "k": 1}))
    template = RangeTemplate.of(found)
    if "n >= $k" in where:  # an int column compared as a bigint
        assert template is None
        return
    batch = pa.RecordBatch.from_pydict(
        {
            "x": pa.array([*limits, *rng.normal(size=20)], pa.float64()),
            "n": pa.array([0] * 28, pa.int32()),
            "b": pa.array([2**63 - 1, -(2**63), 2**63 - 2, -1, 0, None, *range(22)], pa.int64()),
        }
    )
    attributes = [Attribute(name, SCHEMA.arrow.field(name).type) for name in sorted(template.columns)]
    ids = np.arange(20, dtype=np.uint32)
    index = BoxIndex.build(attributes, template.boxes(ids, template.table(contexts), attributes))
    expected = ScanIndex(ClassSpec(k, found, context) for k, context in enumerate(contexts)).match(batch)
    assert index.match(batch).same(expected)
    plain = [pieces_of(ClassSpec(k, found, context)) for k, context in enumerate(contexts)]
    exact = [piece for piece in plain if piece.exact]
    assert set(boxes_of(exact, attributes, {}).ids.tolist()) <= set(index.classes.tolist())


def test_a_damaged_file_is_refused_and_old_versions_go(tmp_path):
    rng = np.random.default_rng(1)
    classes = [drawn(rng, k) for k in range(60)]
    saved = SavedIndexes(tmp_path)
    index = LiveIndex.build(READING, grouped(classes))
    saved.save(1, index, {})
    for version in (2, 4, 5):
        delta = index.plan(np.array([version], np.uint32), [])
        index.apply(delta)
        saved.append(version, delta, {2: 1, 4: 2, 5: 4}[version], {})
    saved.save(6, index, {})
    saved.store.clean([5, 6])
    assert saved.store.versions() == [1, 2, 4, 5, 6]
    saved.store.clean([6])
    assert saved.store.versions() == [6]
    path = saved.store.snapshot(6)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(MatchingError, match="cannot be used: its checksum is wrong"):
        saved.open(6, READING)
    with pytest.raises(MatchingError, match="missing"):
        saved.open(7, READING)
