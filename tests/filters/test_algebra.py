"""The algebra by example and against brute force; `headgate bench algebra` runs the same checks over 100,000 pairs."""

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.filters import (
    Domain,
    Filter,
    bind,
    context_types,
    covers,
    intersects,
    merge,
    merge_cover,
    normal_form,
    parse_filter,
    simplify,
)
from headgate.filters.algebra import intervals, order_keys
from headgate.filters.algebra.keys import first_at_least, key_of, prefix_end, space_of, value_of
from headgate.filters.types import DOUBLE, FLOAT
from headgate.filters.vector import from_arrow
from headgate.model import Schema, parse_type
from headgate_studies.bench import algebra as brute

SCHEMA = Schema.of({"x": "double", "n": "int", "s": "string", "f": "boolean"})
WIDE = Schema.of(
    {"a": "smallint", "b": "bigint", "r": "float", "d": "decimal(9,2)", "day": "date", "at": "timestamp"}
    | {"p": "struct<lat:double,lon:double>", "x": "double", "y": "double", "tags": "array<string>"}
)


def wide(text, **context):
    return parse_filter(text, WIDE, context_types(context))


@pytest.mark.slow
def test_a_hundredth_of_the_brute_force_run_finds_no_fault():
    counts = brute.check(brute.make_pool(300, seed=7), pairs=1_000, seed=7)
    assert {name: counts[name] for name in brute.FAULTS} == dict.fromkeys(brute.FAULTS, 0)
    assert counts["covers_yes"] > 50
    assert counts["transitivity_checked"] > 10


ROWS = brute.witnesses()
CONDITIONS = st.integers(0, 2**32).map(
    lambda seed: parse_filter(brute.generate(brute.random.Random(seed), depth=2), brute.SCHEMA)
)


@settings(max_examples=60, deadline=None)
@given(CONDITIONS, CONDITIONS, CONDITIONS)
def test_relations_agree_with_the_rows(a, b, c):
    one, other, third = (each.evaluate(ROWS) for each in (a, b, c))
    if covers(a, b):
        assert not (other & ~one).any()
    if normal_form(a).exact and normal_form(b).exact:
        assert covers(a, b) == (not (other & ~one).any())
        assert intersects(a, b) == bool((one & other).any())
    assert intersects(a, b) or not (one & other).any()
    assert (merge([a, b, c]).evaluate(ROWS) == (one | other | third)).all()
    assert (simplify(a).evaluate(ROWS) == one).all()
    assert covers(merge([a, b]), a) or not normal_form(merge([a, b])).exact
    assert covers(a, a)


@settings(max_examples=60, deadline=None)
@given(CONDITIONS)
def test_the_boxes_say_the_same_as_the_filter(a):
    form = normal_form(a)
    inside = np.zeros(ROWS.num_rows, bool)
    for box in form.boxes:
        found = np.ones(ROWS.num_rows, bool)
        for name, domain in box.domains.items():
            term = form.attributes[name]
            vector = from_arrow(ROWS.column(name), term.type)
            keys = vector.values.to_pylist() if name == "s" else order_keys(vector).tolist()
            null = np.broadcast_to(False if vector.missing is None else vector.missing, ROWS.num_rows)
            found &= [domain.holds(None if missing else key) for key, missing in zip(keys, null, strict=True)]
        inside |= found
    matched = a.evaluate(ROWS)
    assert not (matched & ~inside).any()
    assert not form.exact or (inside == matched).all()


def test_the_benchmark_reports_counts_and_refusals(capsys):
    figures = brute.run(pairs=50, pool=30, seed=2)
    assert figures["faults"] == 0
    assert figures["slowest_refusal_ms"] < float("inf")
    assert "a million-way OR" in capsys.readouterr().out


PAIRS = [
    line.split(" => ")
    for line in Path(__file__).with_name("simplify.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_simplify(before, after):
    found = simplify(parse_filter(before, SCHEMA))
    assert found.text == after
    assert simplify(found).text == after


def test_normal_form_keeps_a_residual_for_what_is_no_box():
    form = normal_form(parse_filter("n > 3 AND x > n", SCHEMA))
    (box,) = form.boxes
    assert not form.exact
    assert form.residual == parse_filter("n > 3 AND x > n", SCHEMA)
    assert box.domains["n"].bounds() == ((4, 2**31 - 1),) or box.domains["n"].bounds() == ((4, None),)
    assert pickle.loads(pickle.dumps(form)) == form


def test_the_blow_up_is_estimated_and_declined():
    text = " AND ".join(f"(n > {i} OR x > {i} OR s > '{i}')" for i in range(12))
    form = normal_form(parse_filter(text, SCHEMA), limit=64)
    assert len(form.boxes) <= 64
    assert not form.exact
    long = normal_form(parse_filter(" OR ".join(f"n = {i}" for i in range(750)), SCHEMA))
    assert long.exact
    assert len(long.boxes) == 1
    many = normal_form(parse_filter(" OR ".join(f"n = {i} AND x = {i}" for i in range(100)), SCHEMA), limit=64)
    assert len(many.boxes) == 1
    assert not many.exact


def test_residuals_still_narrow_the_search():
    near = bind(wide("distance(x, y, $at) < 5", at=[10.0, -3.0]), {"at": [10.0, -3.0]})
    (box,) = normal_form(near).boxes
    ((low, high),) = box.domains["x"].bounds()
    assert 4.9 < low < 5.0 < 15.0 < high < 15.1
    (box,) = normal_form(parse_filter("s LIKE 'ab_d%'", SCHEMA)).boxes
    assert box.domains["s"].prefixes() == ("ab",)


def test_binding_makes_boxes_of_context_values():
    found = wide("b > $least AND array_contains($days, day) AND p.lat < $place[0]", least=5, days=[], place=[1.0, 2.0])
    import datetime as dt

    bound = bind(found, {"least": 7, "days": [dt.date(2026, 1, 1)], "place": [1.5, 2.0]})
    assert bound.text == "b > 7L AND day IN (DATE '2026-01-01') AND p.lat < 1.5D"
    assert normal_form(bound).exact
    assert bind(found, {"least": 7, "days": [], "place": None}).text == "b > 7L AND FALSE AND p.lat < NULL"
    unbindable = wide("x < $limit", limit=1.0)
    assert bind(unbindable, {"limit": float("nan")}).parameters == {"limit"}


def test_covering_includes_the_projection():
    one, other = wide("x > 1"), wide("x > 2")
    assert covers(one, other, select=["x", "y"], other_select=["x"])
    assert covers(one, other, select=None, other_select=["x"])
    assert not covers(one, other, select=["x"], other_select=None)
    assert not covers(one, other, select=["x"], other_select=["y"])


@pytest.mark.parametrize(
    ("one", "other", "answer"),
    [
        ("a > 1.5", "a >= 2", True),
        ("a >= 2", "a > 1.5", True),
        ("b > 9007199254740992.0D", "b > 9007199254740993", True),
        ("b >= 9007199254740993.0D", "b >= 9007199254740992", True),
        ("d >= 1.005", "d > 1.00", True),
        ("d > 1.00", "d >= 1.01", True),
        ("d > 0.1D", "d >= 0.11", True),
        ("r > 0.1D", "r > 0.1F", True),
        ("at >= DATE '2026-01-01'", "at > TIMESTAMP '2025-12-31 23:59:59.999999'", True),
        ("day > TIMESTAMP '2026-01-01 00:00:00.5'", "day >= DATE '2026-01-02'", True),
        ("day >= TIMESTAMP '2026-01-01 00:00:00.5'", "day >= DATE '2026-01-01'", False),
        ("p.lat > 1", "p.lat > 2 AND p.lon = 3", True),
        ("x < 1 OR x > 0", "x = 0.5 OR y = 1", False),
        ("x < 1 OR x >= 1", "x IS NOT NULL", True),
        ("array_contains(tags, 'a')", "array_contains(tags, 'a') AND x > 1", True),
        ("array_contains(tags, 'a') OR x > 1", "array_contains(tags, 'a')", True),
        ("array_contains(tags, 'a')", "array_contains(tags, 'b')", False),
    ],
)
def test_covers_across_types(one, other, answer):
    assert covers(wide(one), wide(other)) is answer


class Halves:
    """Every value of n from 0 to 9 is equally likely."""

    def mass(self, attribute: str, domain: Domain) -> float:
        assert attribute == "n"
        return sum(domain.holds(value) for value in range(10)) / 10


def test_an_imperfect_cover_knows_its_extra_volume():
    parts = [parse_filter(text, SCHEMA) for text in ("n = 0 AND f", "n = 1 AND f", "n = 8 AND NOT f")]

    class Both(Halves):
        def mass(self, attribute, domain):
            return (domain.holds(0) + domain.holds(1)) / 2 if attribute == "f" else super().mass(attribute, domain)

    exact = merge_cover(parts, 3, Both())
    assert exact.extra == 0
    assert exact.volume == pytest.approx(0.15)
    one = merge_cover(parts, 1, Both())
    assert one.volume == pytest.approx(0.3)
    assert one.extra == pytest.approx(0.15)
    assert all(covers(one.filter, part) for part in parts)


@settings(max_examples=40, deadline=None)
@given(st.lists(CONDITIONS, min_size=1, max_size=4), st.integers(1, 3))
def test_a_cover_covers_and_its_extra_is_counted_exactly(parts, boxes):
    class Uniform:
        """Each column's witnesses are equally likely, so volumes are fractions of the witness rows."""

        def mass(self, attribute, domain):
            values = {"x": brute._X, "n": brute._N, "s": brute._S}[attribute]
            kind = brute.SCHEMA.column(attribute).type
            return sum(domain.holds(None if one is None else key_of(one, kind)) for one in values) / len(values)

    cover = merge_cover(parts, boxes, Uniform())
    found = cover.filter.evaluate(ROWS)
    union = np.any([part.evaluate(ROWS) for part in parts], axis=0)
    assert not (union & ~found).any()
    if all(normal_form(part).exact for part in parts):
        assert cover.volume == pytest.approx(found.mean())
        assert cover.extra == pytest.approx((found & ~union).mean())


@given(st.floats(), st.floats())
def test_double_keys_keep_sparks_order(a, b):
    one, other = key_of(a, DOUBLE), key_of(b, DOUBLE)
    if a == b or (np.isnan(a) and np.isnan(b)):
        assert one == other
    elif np.isnan(b) or a < b:
        assert one < other
    assert key_of(value_of(one, DOUBLE), DOUBLE) == one
    assert order_keys(from_arrow(pa.array([a]), DOUBLE)).tolist() == [one]


@given(st.lists(st.integers(0, 20)), st.lists(st.integers(0, 20)))
def test_interval_operations_are_those_of_sets(a, b):
    one, other = (tuple(sorted(set(each))) for each in (a, b))

    def values(cuts):
        return {key for key in range(-1, 25) if intervals.holds(cuts, key)}

    assert values(intervals.union(one, other)) == values(one) | values(other)
    assert values(intervals.intersection(one, other)) == values(one) & values(other)
    assert values(intervals.difference(one, other)) == values(one) - values(other)


@given(st.text(max_size=5), st.text(max_size=8))
def test_a_prefix_ends_where_strings_stop_beginning_with_it(prefix, text):
    end = prefix_end(prefix)
    assert text.startswith(prefix) == (text >= prefix and (end is None or text < end))


@given(
    st.sampled_from(
        [("smallint", "double"), ("bigint", "double"), ("decimal(9,2)", "double"), ("decimal(9,2)", "decimal(20,1)")]
    ),
    st.integers(-(10**9) + 1, 10**9 - 1),
    st.integers(-3, 3),
)
def test_bounds_of_converted_values_are_exact(kinds, near, step):
    from headgate.filters.algebra.keys import _converted

    source, target = (parse_type(each) for each in kinds)
    space = space_of(source)
    near = max(space.least, min(near, space.end - 1))
    bound = _converted(near, source, target) + step
    found = first_at_least(space, target, bound)
    assert found == space.end or _converted(found, source, target) >= bound
    assert found == space.least or _converted(found - 1, source, target) < bound


def test_filters_from_the_algebra_parse_back():
    for text in (
        "x > 1 AND NOT isnan(x)",
        "x <= 21.5 OR x IS NULL",
        "s > 'a' AND s < 'b'",
        "n NOT IN (1, 2)",
        "x != 3",
    ):
        found = merge([parse_filter(text, SCHEMA), parse_filter("f AND n = 77", SCHEMA)])
        assert isinstance(found, Filter)
        assert parse_filter(found.text, SCHEMA) == found


def test_floats_have_the_keys_of_their_doubles():
    assert order_keys(from_arrow(pa.array([0.1], FLOAT), FLOAT)).tolist() == [
        key_of(np.float64(np.float32(0.1)), DOUBLE)
    ]
