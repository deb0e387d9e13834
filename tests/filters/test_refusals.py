"""What is refused, where and how: every refusal names the place, and limits fire before any parser runs."""

from pathlib import Path

import pytest

from headgate.errors import HeadgateError
from headgate.filters import FilterError, Limits, context_types, lexer, parse_filter
from headgate.filters.limits import check_limits
from tests.filters.rows import CONTEXT, SCHEMA

CASES = [
    line.split(" => ", 1) if not line.startswith(" => ") else ["", line[4:]]
    for line in Path(__file__).with_name("refusals.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
]
TYPES = context_types(CONTEXT)


@pytest.mark.parametrize(("text", "part"), CASES, ids=[case[0] or "empty" for case in CASES])
def test_refused_with_a_place_and_a_reason(text, part):
    with pytest.raises(FilterError) as caught:
        parse_filter(text, SCHEMA, TYPES)
    assert part in str(caught.value)
    assert str(caught.value).startswith("filter, line 1, column ")
    assert isinstance(caught.value, HeadgateError)


def test_the_position_counts_lines_and_columns():
    with pytest.raises(FilterError) as caught:
        parse_filter("i > 1\n  AND nam = 'x'", SCHEMA)
    assert (caught.value.line, caught.value.column, caught.value.position) == (2, 7, 12)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "flag" + ")" * 10_000,
        "[" * 10_000,
        " OR ".join(["i = 1"] * 1_000_000),
        "i IN (" + ",".join(map(str, range(20_000))) + ")",
        "name = '\ud800'",
        "i\0 = 1",
        "\x1b[31m i = 1",
        b"name = '\xff'",
        "x" * 70_000,
        "'" * 60_001,
        "i = 1" + "," * 60_000,
    ],
    ids=["parentheses", "brackets", "or", "in", "surrogate", "nul", "escape", "utf-8", "long", "quotes", "commas"],
)
def test_limits_fire_before_any_parser(text, monkeypatch):
    def never(_text):
        raise AssertionError("the tokenizer ran")

    monkeypatch.setattr(lexer, "tokenize", never)
    with pytest.raises(FilterError):
        check_limits(text)


@pytest.mark.parametrize(
    "text",
    [
        "NOT " * 200 + "flag",
        "i = " + "- " * 200 + "i",
        "i = 1" + " + 1" * 2_000,
        "x" + ".a" * 500,
        "abs(" * 39 + "i" + ")" * 39 + " = 1" + " + 1" * 300,
    ],
)
def test_chains_cannot_build_deep_trees(text):
    with pytest.raises(FilterError, match=r"nested|chains|operators|no field|unknown column"):
        parse_filter(text, SCHEMA)


def test_limits_can_be_set():
    parse_filter("((flag))", SCHEMA, limits=Limits(depth=2))
    with pytest.raises(FilterError, match="2 levels of parentheses, at most 1"):
        parse_filter("((flag))", SCHEMA, limits=Limits(depth=1))


def test_a_long_list_within_the_limits_is_accepted():
    assert parse_filter("i IN (" + ",".join(map(str, range(1_500))) + ")", SCHEMA).columns == {"i"}
