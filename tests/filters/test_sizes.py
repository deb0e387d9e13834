"""Selectivity and sizes: estimates lie within their stated error of the truth, for skew, drift and correlation."""

import numpy as np
import pyarrow as pa
import pytest

from headgate.filters import covers, merge_cover, parse_filter
from headgate.filters.algebra import Domain
from headgate.filters.sizes import Reservoir, SizedInterest, StreamStatistics, ValueHistogram
from headgate.filters.sizes.statistics import column_bytes
from headgate.filters.vector import from_arrow
from headgate.model import Schema

SCHEMA = Schema.of(
    {
        "at": "timestamp",
        "x": "double",
        "y": "double",
        "n": "int",
        "s": "string",
        "p": "struct<lat:double>",
        "w": "decimal(38,5)",
    }
)


def batch(rng, start, rows):
    x = rng.normal(size=rows) * 10
    return pa.RecordBatch.from_arrays(
        [
            pa.array((start + np.arange(rows)) * 1_000_000, pa.timestamp("us", tz="UTC")),
            pa.array(np.where(rng.random(rows) < 0.01, np.nan, x)),
            pa.array(x + rng.normal(size=rows)),  # nearly the same as x
            pa.array(rng.zipf(1.5, rows).clip(0, 10**6).astype(np.int32), mask=rng.random(rows) < 0.1),
            pa.array(rng.choice(["a", "ab", "b", "日本", None], rows, p=[0.5, 0.2, 0.1, 0.1, 0.1])),
            pa.array([{"lat": value} for value in rng.random(rows)], pa.struct([("lat", pa.float64())])),
            pa.array(rng.integers(0, 1000, rows)).cast(pa.decimal128(38, 5)),
        ],
        schema=SCHEMA.arrow,
    )


@pytest.fixture(scope="module")
def known():
    rng = np.random.default_rng(5)
    stats = StreamStatistics(SCHEMA, np.random.default_rng(6), capacity=1_000)
    batches = [batch(rng, start, 4_000) for start in range(0, 60_000, 4_000)]
    for each in batches:
        stats.update(each)
    return stats, pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


@pytest.mark.parametrize(
    "text",
    [
        "TRUE",
        "FALSE",
        "x > 0",
        "x > 25",
        "x > 32",
        "isnan(x)",
        "x BETWEEN 30 AND 31 AND y BETWEEN 29 AND 32",
        "n = 1",
        "n > 5000",
        "n IS NULL",
        "n IN (900, 901, 902)",
        "s LIKE 'a%' AND n = 3",
        "s = '日本' OR s IS NULL",
        "p.lat < 0.003",
        "w < 4",
        "at < TIMESTAMP '1970-01-01 00:01:00'",
        "at >= TIMESTAMP '1970-01-01 16:38:00'",
        "x > y",
        "NOT (x > 30 OR n > 2)",
    ],
)
def test_the_truth_lies_within_the_error(known, text):
    stats, rows = known
    found = parse_filter(text, SCHEMA)
    truth = float(found.evaluate(rows).mean())
    guess = stats.selectivity(found)
    assert guess.low - 1e-9 <= truth <= guess.high + 1e-9, guess
    assert guess.low <= guess.value <= guess.high
    assert guess.error <= 0.05


def test_rare_filters_are_taken_from_the_histograms(known):
    stats, rows = known
    rare = parse_filter("p.lat < 0.003", SCHEMA)
    guess = stats.selectivity(rare)
    assert guess.source == "histograms"
    assert guess.value == pytest.approx(float(rare.evaluate(rows).mean()), abs=0.002)


def test_a_reservoir_is_a_uniform_sample():
    counts = np.zeros(100)
    for seed in range(300):
        sample = Reservoir(10, np.random.default_rng(seed))
        for start in range(0, 100, 7):
            sample.update(pa.record_batch({"n": np.arange(start, min(100, start + 7))}))
        assert sample.seen == 100
        assert sample.rows.num_rows == 10
        assert len(set(sample.rows.column("n").to_pylist())) == 10
        counts[sample.rows.column("n").to_pylist()] += 1
    assert counts.sum() == 3_000
    assert ((counts - 30) ** 2 / 30).sum() < 150  # chi-square with 99 degrees of freedom


def test_a_small_stream_is_known_exactly():
    stats = StreamStatistics(Schema.of({"n": "int"}), np.random.default_rng(1), capacity=50)
    assert stats.selectivity(parse_filter("n > 1", stats.schema)).high == 1.0
    stats.update(pa.record_batch({"n": pa.array([1, 2, 3, None], pa.int32())}))
    assert stats.selectivity(parse_filter("n > 1", stats.schema)) == stats.selectivity(
        parse_filter("n >= 2", stats.schema)
    )
    assert stats.selectivity(parse_filter("n > 1", stats.schema)).error == 0


def test_histograms_follow_a_drift_within_their_error():
    kind = pa.int64()
    histogram = ValueHistogram(kind)
    total = []
    for step in range(200):
        values = np.arange(step * 500, step * 500 + 500) * 1_000 + 1_700_000_000_000_000
        total.append(values)
        histogram.update(from_arrow(pa.array(values), kind))
    values = np.concatenate(total)
    for low, high in ((0.1, 0.2), (0.45, 0.5), (0.9, 0.99), (0.999, 2.0)):
        first, last = (int(1_700_000_000_000_000 + share * 100_000_000) for share in (low, high))
        domain = Domain.of(kind, (first, last))
        truth = ((values >= first) & (values < last)).mean()
        assert abs(histogram.mass(domain) - truth) <= histogram.error(domain) + 1e-12
        assert histogram.error(domain) < 0.2
        assert abs(histogram.mass(domain) - truth) < 0.03


def test_sizes_of_rows():
    rows = pa.record_batch(
        {
            "n": pa.array([1, 2], pa.int32()),
            "s": pa.array(["abc", None]),
            "l": pa.array([["a"], ["b", "cc"]]),
            "m": pa.array([[("k", 1.0)], []], pa.map_(pa.string(), pa.float64())),
            "p": pa.array([{"lat": 1.0, "s": "x"}, None], pa.struct([("lat", pa.float64()), ("s", pa.string())])),
        }
    )
    assert [column_bytes(rows.column(name)).tolist() for name in rows.schema.names] == [
        [4.0, 4.0],
        [7.0, 4.0],
        [9.0, 15.0],
        [17.0, 4.0],
        [13.0, 12.0],
    ]
    assert column_bytes(rows.column("l").slice(1, 1)).tolist() == [15.0]


def test_amortised_size_is_selectivity_times_projected_row(known):
    stats, rows = known
    where = parse_filter("x > 0", SCHEMA)
    size = stats.amortised_bytes(where, ["x", "n"])
    truth = float(where.evaluate(rows).mean()) * 12
    assert size.low <= truth <= size.high
    assert size.value == pytest.approx(truth, rel=0.1)
    assert stats.row_bytes().value > stats.row_bytes(["x"]).value == 8.0


def test_interests_cover_merge_and_know_their_size(known):
    stats, _ = known
    wide = SizedInterest.of(parse_filter("x > 0", SCHEMA), None, stats)
    narrow = SizedInterest.of(parse_filter("x > 5", SCHEMA), ["x", "s"], stats)
    other = SizedInterest.of(parse_filter("x < -5", SCHEMA), ["x", "n"], stats)
    assert wide.covers(narrow)
    assert not narrow.covers(wide)
    assert narrow.size < wide.size
    both = narrow.merge(other)
    assert both.select == {"x", "s", "n"}
    assert both.covers(narrow)
    assert both.covers(other)
    assert both.size >= max(narrow.size, other.size)


def test_statistics_measure_an_imperfect_cover(known):
    stats, rows = known
    parts = [parse_filter(text, SCHEMA) for text in ("p.lat < 0.1 AND x > 0", "p.lat > 0.8 AND x > 5")]
    cover = merge_cover(parts, 1, stats)
    assert all(covers(cover.filter, part) for part in parts)
    union = parts[0].evaluate(rows) | parts[1].evaluate(rows)
    assert cover.extra == pytest.approx(float((cover.filter.evaluate(rows) & ~union).mean()), abs=0.02)
