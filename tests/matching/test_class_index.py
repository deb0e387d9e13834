"""Classes of the filter language through the compiled index, against evaluating every filter on every row."""

import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.filters import Limits, context_types, parse_filter
from headgate.matching import ClassSpec, MatchingError, ScanIndex, build_index
from headgate.matching.compiled.class_index import ClassIndex
from headgate.model import Schema

SCHEMA = Schema.of(
    {
        "x": "double",
        "n": "bigint",
        "b": "boolean",
        "s": "string",
        "t": "timestamp",
        "d": "decimal(9,2)",
        "f": "float",
        "tags": "array<string>",
    }
)
WORDS = ["", "a", "ab", "abc", "b", "ba", "é", "zz"]
PARTS = [
    "x > {f}",
    "x <= {f}",
    "x BETWEEN {f} AND {f} + 2",
    "n = {n}",
    "n >= {n}",
    "n IN ({n}, {n} + 1, 9007199254740993)",
    "n != {n}",
    "b",
    "NOT b",
    "s = '{s}'",
    "s LIKE '{s}%'",
    "s >= '{s}'",
    "s IN ('{s}', 'zz')",
    "s IS NULL",
    "x IS NOT NULL",
    "x IS NULL OR x < {f}",
    "isnan(x)",
    "t < TIMESTAMP '2024-01-01 00:00:0{m}'",
    "d > {f}",
    "f <= {f}",
    "length(s) > {m}",
    "x * 2 > n",
    "array_contains(tags, '{s}')",
    "true",
    "n > $limit",
    "x > $limit AND s = $word",
]


def rows(rng, count):
    def maybe(values):
        return [None if rng.random() < 0.15 else value for value in values]

    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(
                maybe(rng.choice([-1.0, -0.0, 0.0, 0.5, 1.0, 2.5, 3.0, np.nan, np.inf], count).tolist()), pa.float64()
            ),
            pa.array(
                maybe(rng.choice([-1, 0, 1, 2, 3, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)], count).tolist()), pa.int64()
            ),
            pa.array(maybe((rng.random(count) < 0.5).tolist()), pa.bool_()),
            pa.array(maybe([WORDS[k] for k in rng.integers(0, len(WORDS), count)]), pa.string()),
            pa.array(
                maybe([start + dt.timedelta(seconds=int(k)) for k in rng.integers(-2, 5, count)]),
                pa.timestamp("us", "UTC"),
            ),
            pa.array(maybe([decimal.Decimal(int(k)) / 4 for k in rng.integers(-8, 9, count)]), pa.decimal128(9, 2)),
            pa.array(maybe(rng.choice([0.0, 0.5, 1.5, 2.0], count).tolist()), pa.float32()),
            pa.array(
                maybe([[WORDS[k]] for k in rng.integers(0, len(WORDS), count)]),
                pa.list_(pa.field("element", pa.string())),
            ),
        ],
        schema=SCHEMA.arrow,
    )


def _filled(part, rng):
    return part.format(
        f=rng.choice([-1.0, 0.0, 0.5, 2.5]), n=rng.integers(-1, 4), s=rng.choice(WORDS), m=rng.integers(0, 4)
    )


def classes(rng, count, first=0):
    found = []
    for k in range(count):
        parts = [f"({_filled(part, rng)})" for part in rng.choice(PARTS, rng.integers(1, 4))]
        text = rng.choice([" AND ", " OR "]).join(parts)
        context = {"limit": int(rng.integers(-1, 4)), "word": str(rng.choice(WORDS))}
        found.append(ClassSpec(first + 2 * k, parse_filter(text, SCHEMA, context_types(context)), context))
    return found


@pytest.mark.slow
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_compiled_classes_equal_scanned_ones(seed):
    rng = np.random.default_rng(seed)
    specs, batch = classes(rng, 40), rows(rng, 60)
    index = build_index(SCHEMA, specs, sample=batch)
    assert isinstance(index, ClassIndex)
    assert index.match(batch).same(ScanIndex(specs).match(batch))
    more = classes(rng, 10, first=1001)
    index.add(more)
    index.remove([0, 4, 12345])
    kept = [spec for spec in [*specs, *more] if spec.id not in (0, 4)]
    changed = kept[3]
    index.bind(changed.id, {"limit": 2, "word": "new word"})
    kept[3] = ClassSpec(changed.id, changed.filter, {"limit": 2, "word": "new word"})
    assert index.match(batch).same(ScanIndex(kept).match(batch))
    assert index.classes.tolist() == sorted(spec.id for spec in kept)


def test_a_long_list_stays_exact_past_the_limit_of_boxes():
    listed = ", ".join(f"'w{k}'" for k in range(0, 9000, 2))
    text = f"s IN ({listed}) AND n > 1"
    spec = ClassSpec(1, parse_filter(text, SCHEMA, limits=Limits(tokens=10_000)))
    index = ClassIndex(SCHEMA, [spec])
    batch = rows(np.random.default_rng(1), 50)
    batch = batch.set_column(3, SCHEMA.arrow.field(3), pa.array([f"w{k}" for k in range(50)]))
    assert index.match(batch).same(ScanIndex([spec]).match(batch))


def test_classes_that_are_no_boxes_are_evaluated():
    specs = [ClassSpec(k, parse_filter(f"length(s) = {k}", SCHEMA)) for k in range(3)]
    index = ClassIndex(SCHEMA, specs)
    assert index.boxes is None
    batch = rows(np.random.default_rng(2), 30)
    assert index.match(batch).same(ScanIndex(specs).match(batch))
    with pytest.raises(MatchingError, match="class 9 is not in the index"):
        index.bind(9, {})
