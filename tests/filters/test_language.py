"""The language by example: grammar, canonical text, context values, and answers that are easy to get wrong."""

import datetime as dt
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.filters import Filter, FilterError, context_types, parse_filter
from headgate.filters.functions import TABLE
from headgate.filters.functions.numeric import round_doubles
from headgate.model import Schema
from tests.filters.rows import CONTEXT, SCHEMA, table

TYPES = context_types(CONTEXT)

CANONICAL = [
    ("i>1", "i > 1"),
    ("I  =  1 and(flag)", "i = 1 AND flag"),
    ("i = 1 IS NULL", "(i = 1) IS NULL"),
    ("i < j = flag", "(i < j) = flag"),
    ("NOT i IN (1, 2)", "i NOT IN (1, 2)"),
    ("not (flag or i = 1) and j = 2", "NOT (flag OR i = 1) AND j = 2"),
    ("i between 1 and 2 and flag", "i >= 1 AND i <= 2 AND flag"),
    ("(flag and i = 1) and (j = 2 and flag)", "flag AND i = 1 AND j = 2 AND flag"),
    ("x - (y - 1) > 0", "x - (y - 1) > 0"),
    ("x - y - 1 > 0", "x - y - 1 > 0"),
    ("(x + 1) * 2 > 0", "(x + 1) * 2 > 0"),
    ("-(-i) = 1", "-(-i) = 1"),
    ("i = -2147483648", "i = -2147483648"),
    ("name = 'it''s' 'x'", r"name = 'it\'sx'"),
    (r"name = 'tab\t\u00e9\101'", r"name = 'tab\téA'"),
    ('name = "double"', "name = 'double'"),
    (r"name = r'raw\n'", r"name = 'raw\\n'"),
    ("`i` = 1 /* note */ -- and more", "i = 1"),
    ("x > .5", "x > 0.5"),
    ("x > 1e3", "x > 1000.0D"),
    ("flag is not true", "NOT flag <=> TRUE"),
    ("i is not distinct from j", "i <=> j"),
    ("at > timestamp '2026-01-31T12:00:00+01:00'", "at > TIMESTAMP '2026-01-31 11:00:00'"),
    ("at - interval 2 hours 30 minutes > at", "at - INTERVAL '9000' SECOND > at"),
    ("day + interval '1-2' year to month > day", "day + INTERVAL '14' MONTH > day"),
    ("extract(year from day) = 2026", "year(day) = 2026"),
    ("name || city = 'x'", "concat(name, city) = 'x'"),
    ("distance(x, y, $position) < 3", "distance(x, y, $position[0], $position[1]) < 3"),
    ("place['lat'] > 1", "place.lat > 1"),
    ("substring(name from 2 for 3) = 'a'", "substring(name, 2, 3) = 'a'"),
    ("ucase(name) = 'A'", "upper(name) = 'A'"),
]


@pytest.mark.parametrize(("text", "canonical"), CANONICAL)
def test_canonical_text(text, canonical):
    found = parse_filter(text, SCHEMA, TYPES)
    assert found.text == canonical
    again = parse_filter(canonical, SCHEMA, TYPES)
    assert again == found
    assert hash(again) == hash(found)
    assert pickle.loads(pickle.dumps(found)) == found


def test_columns_and_parameters():
    found = parse_filter("place.lat > $bound AND array_contains($watch, name) OR i IS NULL", SCHEMA, TYPES)
    assert found.columns == {"place", "name", "i"}
    assert found.parameters == {"bound", "watch"}


def test_the_same_text_over_another_type_is_another_filter():
    one, other = (parse_filter("v > 1", Schema.of({"v": kind})) for kind in ("int", "double"))
    assert one.text == other.text
    assert one != other


def test_names_are_found_without_case_only_when_that_is_unambiguous():
    schema = Schema.of({"a": "int", "A": "int", "Bc": "int"})
    assert parse_filter("bC = 1", schema).columns == {"Bc"}
    assert parse_filter("A = 1", schema).columns == {"A"}


def test_odd_column_names_round_trip():
    schema = Schema.of({"wind speed": "double", "a`b": "int", "and": "boolean", "interval": "int", "日本": "int"})
    text = "`wind speed` > 1 AND `a``b` = 2 AND `and` AND `interval` = 3 AND `日本` = 4"
    found = parse_filter(text, schema)
    assert found.text == text
    assert found.columns == set(schema.names)


def rows(where, schema, values, **context):
    batch = pa.RecordBatch.from_arrays([pa.array(values, schema.columns[0].type)], schema=schema.arrow)
    return parse_filter(where, schema, context_types(context)).evaluate(batch, context).tolist()


DOUBLE = Schema.of({"v": "double"})
NAN = float("nan")


def test_nan_equals_itself_and_is_the_greatest():
    assert rows("v = v", DOUBLE, [NAN, 1.0, None]) == [True, True, False]
    assert rows("v > 1e308", DOUBLE, [NAN, float("inf"), 1.0]) == [True, True, False]
    assert rows("v IN ($n, 2.5)", DOUBLE, [NAN, 2.5, 3.0], n=NAN) == [True, True, False]


def test_long_lists_are_searched_like_short_ones():
    listed = ", ".join(["1", "2", "-0.0D", "7", "8", "NULL", "$n"])
    assert rows(f"v IN ({listed})", DOUBLE, [NAN, 2.0, 0.0, 3.0, None], n=NAN) == [True, True, True, False, False]
    assert rows(f"v NOT IN ({listed})", DOUBLE, [3.0, 2.0], n=NAN) == [False, False]
    assert rows("v NOT IN (1, 2, 3, 4, 5, 6)", DOUBLE, [3.0, 7.0, None]) == [False, True, False]
    ints = Schema.of({"v": "bigint"})
    top = 2**63 - 1
    assert rows(f"v IN (1, 2, 3, 4, 5, {top})", ints, [top, top - 1, 5]) == [True, False, True]


def test_errors_are_null_and_null_is_not_true():
    bigint = Schema.of({"v": "bigint"})
    top = 2**63 - 1
    assert rows("v + 1 > 0", bigint, [top, 0]) == [False, True]
    assert rows("NOT v + 1 > 0", bigint, [top, 0]) == [False, False]
    assert rows("v / 0 = 1 OR v = 1", bigint, [1, 2]) == [True, False]
    assert rows("v * v >= 0", bigint, [2**32, -(2**63), 3, -1]) == [False, False, True, True]
    assert rows("abs(v) >= 0", bigint, [-(2**63), -1]) == [False, True]


def test_decimal_literals_compare_exactly_with_whole_numbers():
    bigint = Schema.of({"v": "bigint"})
    assert rows("v > 9007199254740992.5", bigint, [2**53, 2**53 + 1]) == [False, True]


def test_context_values_that_are_missing_or_do_not_fit_are_null():
    found = parse_filter("v > $limit", DOUBLE, {"limit": pa.float64()})
    batch = pa.record_batch({"v": [1.0, 3.0]})
    assert found.evaluate(batch, {"limit": 2}).tolist() == [False, True]
    assert found.evaluate(batch, {}).tolist() == [False, False]
    assert found.evaluate(batch, {"limit": "two"}).tolist() == [False, False]
    assert found.evaluate(batch).tolist() == [False, False]


def test_a_watch_list_and_a_position():
    names = Schema.of({"v": "string"})
    assert rows("array_contains($watch, v)", names, ["a", "b", None, "c"], watch=["a", "c"]) == [
        True,
        False,
        False,
        True,
    ]
    assert rows("array_contains($watch, v)", names, ["a"], watch=[]) == [False]
    empty = parse_filter("array_contains($watch, v)", names, context_types({"watch": []}))
    assert empty.evaluate(pa.record_batch({"v": ["a", "b"]}), {"watch": ["b"]}).tolist() == [False, True]
    assert empty.evaluate(pa.record_batch({"v": ["a", "b"]}), {"watch": [1]}).tolist() == [False, False]
    places = Schema.of({"v": "struct<lat:double,lon:double>"})
    values = [{"lat": 52.5, "lon": 13.4}, {"lat": 48.9, "lon": 2.4}, None]
    for here in ({"lat": 52.52, "lon": 13.405}, [52.52, 13.405]):
        assert rows("distance_km(v.lat, v.lon, $here) < 10", places, values, here=here) == [True, False, False]


def test_context_types():
    found = context_types(
        {
            "n": 1,
            "t": 1.5,
            "s": "x",
            "b": True,
            "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
            "mixed": [1, 2.5],
            "none": None,
        }
    )
    assert [str(kind) for kind in found.values()] == [
        "int64",
        "double",
        "string",
        "bool",
        "timestamp[us, tz=UTC]",
        "list<element: double>",
        "null",
    ]
    with pytest.raises(FilterError, match="mixes types"):
        context_types({"bad": [1, "x"]})
    with pytest.raises(FilterError, match="a number, a string"):
        context_types({"bad": object()})


def test_other_arrow_encodings_of_a_column_are_read():
    schema = Schema.of({"s": "string", "at": "timestamp"})
    found = parse_filter("s = 'a' AND year(at) = 2026", schema)
    when = pa.array(
        [dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2025, 1, 1, tzinfo=dt.UTC)], pa.timestamp("ms", tz="UTC")
    )
    batch = pa.record_batch({"s": pa.array(["a", "a"]).dictionary_encode(), "at": when})
    assert found.evaluate(batch).tolist() == [True, False]


def test_every_function_has_a_signature_and_a_line():
    assert all(entry.signature.startswith(entry.names[0]) and entry.about for entry in TABLE)


@example([536870912.1172014], 6)
@given(st.lists(st.floats(-1e9, 1e9, allow_nan=False), min_size=1), st.integers(-3, 6))
def test_rounding_is_half_up_in_decimal(values, scale):
    from decimal import ROUND_HALF_UP, Decimal

    expected = [float(Decimal(repr(one)).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)) for one in values]
    assert round_doubles(np.array(values), scale).tolist() == expected


@given(st.text(max_size=40))
def test_no_text_escapes_as_another_error(text):
    try:
        found = parse_filter(text, SCHEMA, TYPES)
    except FilterError:
        return
    assert isinstance(found, Filter)


WORDS = (
    "i x name ( ) [ ] , . $ bound = <=> + - * / % div not and or in is null like 'a' 1 2.5 between interval day date "
    "abs if tags ||"
)
TOKENS = st.sampled_from(WORDS.split())


@given(st.lists(TOKENS, max_size=14).map(" ".join))
def test_no_sequence_of_tokens_escapes_as_another_error(text):
    try:
        found = parse_filter(text, SCHEMA, TYPES)
    except FilterError:
        return
    assert found.evaluate(table(1, 5), CONTEXT).shape == (5,)
