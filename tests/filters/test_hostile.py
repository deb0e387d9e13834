"""Hostile filters are refused before the work that they ask for is begun; large honest ones are cheap to normalise."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headgate.catalog import parse_subscription, profiles
from headgate.errors import HeadgateError
from headgate.filters import (
    FilterError,
    Limits,
    bind,
    context_types,
    covers,
    filter_cost,
    normal_form,
    parse_filter,
    parser,
)
from headgate.filters.algebra import Box, intervals, normal
from headgate.filters.algebra.bind import MAX_BOUND, bound_size
from headgate.filters.algebra.relate import PIECES, forms_cover
from headgate.filters.cost import MAX_BOXES, MAX_CUTS, ROW_US, evaluation, form_size
from headgate.filters.filter import Filter
from headgate.filters.limits import DEFAULT_LIMITS, check_context, check_limits
from headgate.model import Deployment, Schema, Site, Source, Stream
from headgate_studies.bench.filters import LARGE
from headgate_studies.bench.hostile_filters import HOSTILE, SCHEMA
from tests.filters.generate import Generator

DEPLOYMENT = Deployment({"events": Stream("events", SCHEMA, Source("rate", {}), "root")}, {"root": Site("root")})


def subscribe(where, *, profile="relational", context=None, deployment=DEPLOYMENT, **wishes):
    document = {"site": "root", "stream": "events", "where": where, "profile": profile, **wishes}
    return parse_subscription("mine", {**document, "context": dict(context or {})}, deployment)


@pytest.fixture
def untouched(monkeypatch):
    """Forbids the work that comes after a refusal: by stage, what must not be done."""

    def forbid(stage):
        def never(*_args, **_options):
            raise AssertionError(f"work was done that {stage} refuses")

        monkeypatch.setattr(normal, "_Builder", never)
        monkeypatch.setattr(Filter, "evaluate", never)
        if stage != "cost":
            monkeypatch.setattr(profiles, "bind", never)
            monkeypatch.setattr(profiles, "evaluation", never)
        if stage == "scan":
            monkeypatch.setattr(parser, "tokenize", never)

    profiles.forget_filters()
    return forbid


def test_the_table_is_long_enough_and_names_are_used_once():
    assert len({each.name for each in HOSTILE}) == len(HOSTILE) >= 60


@pytest.mark.parametrize("hostile", HOSTILE, ids=[each.name for each in HOSTILE])
def test_refused_with_its_message_before_the_work(hostile, untouched):
    untouched(hostile.stage)
    with pytest.raises(HeadgateError) as caught:
        subscribe(hostile.where, profile=hostile.profile, context=hostile.context)
    message = str(caught.value)
    assert hostile.says in message
    place = "at character" if hostile.stage != "scan" or not (hostile.context or "million" in hostile.name) else "mine"
    assert place in message
    assert len(message) < 1_000


@pytest.mark.parametrize("where", LARGE.values(), ids=LARGE)
def test_large_honest_filters_are_accepted(where):
    (found,) = subscribe(where)
    assert found.where == where


# At the limits.


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("tokens", lambda count: "n IN (" + "1," * ((count - 5) // 2) + ("1)" if count % 2 else "-1)")),
        ("depth", lambda count: "(" * count + "flag" + ")" * count),
        ("operators", lambda count: "n = 1" + " + 1" * count),
        ("name", lambda count: "n = " + "1" * count),
        ("literal", lambda count: f"s = '{'a' * count}'"),
    ],
)
def test_a_scan_accepts_what_is_at_its_limit_and_nothing_more(field, make):
    limit = getattr(DEFAULT_LIMITS, field)
    for count in (limit - 1, limit):
        check_limits(make(count))
    with pytest.raises(FilterError, match=f"at most {limit:,}"):
        check_limits(make(limit + 1))


def test_patterns_are_accepted_up_to_their_limits():
    parse_filter(f"s RLIKE '{'a' * 1_024}'", SCHEMA)
    with pytest.raises(FilterError, match=r"1,025 characters, at most 1,024"):
        parse_filter(f"s RLIKE '{'a' * 1_025}'", SCHEMA)
    limits = Limits(program=300)
    one = "s RLIKE 'abc'"  # 7 instructions, and 100 for compiling any
    parse_filter(f"{one} OR {one}", SCHEMA, limits=limits)
    with pytest.raises(FilterError, match="321 instructions, at most 300") as caught:
        parse_filter(f"{one} OR {one} OR {one}", SCHEMA, limits=limits)
    assert caught.value.position == len(f"{one} OR {one} OR s ")


def test_contexts_are_accepted_up_to_their_limits():
    check_context({"many": [1] * 4_096, "text": "a" * 4_096})
    for context in ({"many": [1] * 4_097}, {"one": [1] * 4_000, "two": {"three": [1] * 97}}, {"text": "a" * 4_097}):
        with pytest.raises(FilterError, match=r"at most 4,096"):
            check_context(context)
    deep = {"deep": 1}
    for _ in range(100_000):
        deep = {"deep": deep}
    with pytest.raises(FilterError, match="nested 41 deep"):
        context_types(deep)


# What a row may cost.


def costly(count):
    return " OR ".join(f"contains(s, 'a{number}')" for number in range(count))


def test_a_deployment_says_what_a_row_may_cost():
    cost_us = evaluation(parse_filter(costly(100), SCHEMA).expr).row_us
    subscribe(costly(100))
    low = Deployment(DEPLOYMENT.streams, DEPLOYMENT.sites, options={"filter_row_cost": f"{cost_us * 0.9} us"})
    with pytest.raises(
        HeadgateError, match=r"evaluating the filter up to here takes about .* us a row, at most"
    ) as error:
        subscribe(costly(100), deployment=low)
    assert "filter_row_cost" in str(error.value)
    high = Deployment(DEPLOYMENT.streams, DEPLOYMENT.sites, options={"filter_row_cost": "1 ms"})
    subscribe(costly(400), deployment=high)
    with pytest.raises(HeadgateError, match="at most 20 are accepted"):
        subscribe(costly(400))


def test_values_of_a_context_count():
    where = " OR ".join(f"(array_contains($many, s) AND n = {number})" for number in range(200))
    subscribe(where, context={"many": ["a"] * 10})
    with pytest.raises(HeadgateError, match=r"for 'array_contains\(\$many, s\)'"):
        subscribe(where, context={"many": [f"k{number}" for number in range(4_000)]})


def test_policies_are_bounded_too():
    with pytest.raises(HeadgateError, match=r"policy.*us a row, at most 20"):
        subscribe("true", policy={"levels": [{"drop_where": costly(400)}]})
    with pytest.raises(HeadgateError, match=r"50,000 characters, at most 1,024"):
        subscribe("true", policy={"levels": [{"drop": {"match": "a?" * 25_000, "attribute": "s"}}]})


def test_estimates_follow_what_a_filter_does():
    def row_us(where):
        return filter_cost(parse_filter(where, SCHEMA).expr).row_us

    assert row_us("n = 1") < row_us("s = 'a'") < row_us("contains(s, 'a')") < row_us("contains(s, 'a') OR n = 1")
    assert row_us("n = 1") * 10 < row_us("h = 1")
    assert row_us("n IN (" + "1, " * 999 + "1)") < row_us(" OR ".join(["n = 1"] * 500)) / 10
    assert row_us("s LIKE '%%%%a%%%%'") == row_us("s LIKE '%a%'")
    assert 3 * max(row_us(where) for where in LARGE.values()) < ROW_US


# The normal form.


def sizes(found):
    return len(found.boxes), sum(box.cuts for box in found.boxes)


def nested(rng, depth):
    """A condition of few attributes, with long lists and many alternatives."""
    if depth == 0 or rng.random() < 0.2:
        values = ", ".join(map(str, rng.integers(0, 50, rng.integers(1, 12))))
        texts = ", ".join(f"'{one}'" for one in rng.integers(0, 9, rng.integers(1, 6)))
        atoms = [f"n IN ({values})", f"n NOT IN ({values})", f"x > {values[:1]}", f"s IN ({texts})", "s LIKE 'a_%'"]
        return str(rng.choice([*atoms, "flag", "s IS NULL", "x + n > 3", "n <=> 4", "NOT s LIKE '1%'"]))
    word = str(rng.choice([" AND ", " OR "]))
    inner = word.join(nested(rng, depth - 1) for _ in range(rng.integers(2, 6)))
    return f"{'NOT ' if rng.random() < 0.3 else ''}({inner})"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_no_form_is_larger_than_predicted(seed):
    rng = np.random.default_rng(seed)
    expressions = [parse_filter(nested(rng, 3), SCHEMA).expr for _ in range(5)]
    generator = Generator(seed)
    expressions += [generator.boolean(4) for _ in range(10)]
    for expr in expressions:
        predicted = form_size(expr)
        boxes, cuts = sizes(normal_form(Filter.of(expr)))
        assert boxes <= predicted.boxes <= MAX_BOXES
        assert cuts <= predicted.cuts


def test_a_product_past_the_limit_is_never_made(monkeypatch):
    made = []
    whole = Box.intersect
    monkeypatch.setattr(Box, "intersect", lambda one, other: made.append(1) or whole(one, other))
    found = normal.build_form(parse_filter(LARGE["AND of 200 three-way OR"], SCHEMA))
    assert len(made) <= 2 * MAX_BOXES
    assert len(found.boxes) <= MAX_BOXES
    assert not found.exact


def test_lists_are_not_multiplied_past_the_limit():
    listed = "n IN (" + ", ".join(str(2 * number) for number in range(1_000)) + ")"
    alternatives = " OR ".join(f"x = {number} AND s = 'a'" for number in range(30))
    found = normal_form(parse_filter(f"{listed} AND ({alternatives})", SCHEMA))
    assert sum(box.cuts for box in found.boxes) <= MAX_CUTS
    assert not found.exact
    assert normal_form(parse_filter(f"{listed} AND (x = 1 OR flag)", SCHEMA)).exact


@pytest.mark.parametrize(
    "make",
    [
        lambda count: " OR ".join(f"n = {3 * number}" for number in range(count)),
        lambda count: " AND ".join(f"n != {3 * number}" for number in range(count)),
        lambda count: "n IN (" + ", ".join(str(3 * number) for number in range(count)) + ")",
        lambda count: " OR ".join(f"(n = {number} AND s = 'k{number}')" for number in range(count)),
        lambda count: " AND ".join(f"(n = {number} OR s = 'k{number}' OR flag)" for number in range(count)),
    ],
    ids=["or", "and", "in", "or of pairs", "and of three"],
)
def test_work_grows_with_the_filter_and_not_with_its_square(make, monkeypatch):
    steps = []
    for name in ("_merge", "_sweep"):
        whole = getattr(intervals, name)

        def counted(one, other, *rest, whole=whole):
            steps.append(len(one) + (len(other) if rest else sum(map(len, one))))
            return whole(one, other, *rest)

        monkeypatch.setattr(intervals, name, counted)

    def work(count):
        steps.clear()
        normal.build_form(parse_filter(make(count), SCHEMA))
        return sum(steps)

    few, many = work(64), work(256)
    assert many < 6 * few


def test_long_unions_and_intersections_say_what_they_mean():
    batch = pa.record_batch({"n": pa.array([0, 1, 2, 3, 300, None], pa.int32())})
    schema = SCHEMA.select(["n"])
    some = parse_filter(" OR ".join(f"n = {3 * number}" for number in range(400)), schema)
    none = parse_filter(" AND ".join(f"n != {3 * number}" for number in range(400)), schema)
    assert some.evaluate(batch).tolist() == [True, False, False, True, True, False]
    assert none.evaluate(batch).tolist() == [False, True, True, False, False, False]
    (one,), (other,) = normal_form(some).boxes, normal_form(none).boxes
    for key in (0, 1, 2, 3, 300, 1_197, 1_200, -1, None):
        assert one.domains["n"].holds(key) == (key is not None and 0 <= key < 1_200 and key % 3 == 0)
        assert other.domains["n"].holds(key) == (key is not None and not (0 <= key < 1_200 and key % 3 == 0))


def grid(side, *, without=None):
    """A square of tiles that together are one box."""
    tiles = [(x, n) for x in range(side) for n in range(side) if (x, n) != without]
    return parse_filter(
        " OR ".join(f"(x >= {x} AND x < {x + 1} AND n BETWEEN {10 * n} AND {10 * n + 9})" for x, n in tiles), SCHEMA
    )


def test_covering_by_many_boxes_is_still_seen():
    whole = parse_filter("x >= 0 AND x < 7 AND n BETWEEN 0 AND 69", SCHEMA)
    assert covers(grid(7), whole)
    assert not covers(grid(7, without=(3, 3)), whole)
    assert not covers(grid(7, without=(0, 0)), whole)


def test_a_comparison_takes_no_more_pieces_than_its_budget(monkeypatch):
    """Slabs that each leave two corners alone: taking them out of one another doubles the pieces each time."""
    names = ("x", "y", "z", "u", "v", "w")
    schema = Schema.of(dict.fromkeys(names, "double"))
    rng = np.random.default_rng(1)

    def slabs(count):
        found = [" AND ".join(f"{name} {end} 0.5" for name in names) for end in ("<=", ">=")]
        for _ in range(count):
            lows = {name: rng.random() for name in rng.choice(names, 4, replace=False)}
            found.append(" AND ".join(f"{name} BETWEEN {low}D AND {low + 0.3}D" for name, low in lows.items()))
        return normal_form(parse_filter(" OR ".join(f"({each})" for each in found), schema))

    one = slabs(60)
    whole = normal_form(parse_filter(" AND ".join(f"{name} BETWEEN 0 AND 1" for name in names), schema))
    made = []
    minus = Box.minus
    monkeypatch.setattr(Box, "minus", lambda box, other: made.append(1) or minus(box, other))
    assert not forms_cover(one, whole)
    assert 10 < len(made) <= PIECES


# Contexts and patterns.


def test_a_context_is_not_put_in_where_a_filter_would_grow_too_much():
    context = {"many": [f"k{number}" for number in range(4_000)]}
    types = context_types(context)
    twice = parse_filter("array_contains($many, s) OR NOT array_contains($many, s)", SCHEMA, types)
    often = parse_filter(" OR ".join(["array_contains($many, s)"] * 3), SCHEMA, types)
    assert bound_size(twice, context) <= MAX_BOUND < bound_size(often, context)
    assert not bind(twice, context).parameters
    assert bind(often, context).parameters == {"many"}
    rows = pa.record_batch({"s": ["k1", "k5000", None]})
    assert often.evaluate(rows, context).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("pattern", "same"),
    [("%%%a%%", "%a%"), ("%_%", "_%"), ("a%__%%b", "a__%b"), ("%%", "%"), ("_%_", "__%"), ("%\\%%%", "%\\%%")],
)
def test_runs_of_wildcards_mean_what_one_means(pattern, same):
    texts = ["", "a", "ab", "aab", "aaab", "axyb", "b", "%", "x%y", "é", None]
    rows = pa.record_batch({"s": texts})

    def matched(text):
        return parse_filter(f"s LIKE r'{text}'", SCHEMA).evaluate(rows).tolist()

    assert matched(pattern) == matched(same)
    assert any(matched(pattern))


def test_every_hostile_filter_stands_in_the_table_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "hostile-filters.md").read_text(encoding="utf-8")
    rows = {cells[0].strip(): float(cells[1]) for line in page.splitlines() if len(cells := line.split("|")[1:-1]) == 3
            and cells[1].strip()[:1].isdigit()}  # fmt: skip
    assert rows.keys() == {each.name for each in HOSTILE}
    assert max(rows.values()) < 50.0
