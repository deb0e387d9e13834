"""Filters that were written to hurt: each is refused, with the message that says why.

Anyone can add one to the table. `headgate bench filters` measures how long each takes to be refused; the tests check
what it is refused with and that the work which it asks for was not begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.model import Schema

SCHEMA = Schema.of(
    {
        "n": "int",
        "x": "double",
        "s": "string",
        "h": "decimal(30,5)",
        "at": "timestamp",
        "flag": "boolean",
        "tags": "array<string>",
        "place": "struct<lat: double>",
    }
)


@dataclass(frozen=True, slots=True)
class Hostile:
    """A filter by what it does, a part of its refusal, and when it is refused.

    `scan` is before the tokenizer runs, `read` while the text becomes a tree, `cost` before the tree is normalised or
    evaluated.
    """

    name: str
    where: str
    says: str
    stage: str = "scan"
    profile: str = "relational"
    context: Mapping[str, Any] = field(default_factory=dict)


def _any(pattern: str, count: int) -> str:
    return " OR ".join(pattern.format(number) for number in range(count))


def _list(count: int, form: str = "{}") -> str:
    return ", ".join(form.format(number) for number in range(count))


def _deep(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


_DEPTH = "levels of parentheses, at most 40"
_PARTS = "parts, at most 3,072"
_STRING = "a string has"
_NAME = "a name or a number has"
_PROGRAM = "instructions, at most 12,288"
_ROWS = "us a row, at most 20"

TEXTS = (
    Hostile("an OR of a million", " OR ".join(["n = 1"] * 1_000_000), "at most 262,144 are"),
    Hostile("an OR of 4,000", _any("n = {}", 4_000), _PARTS),
    Hostile("an OR of 1,000 pairs", _any("(n = {0} AND s = 'k{0}')", 1_000), _PARTS),
    Hostile("an IN of 8,000", f"n IN ({_list(8_000)})", _PARTS),
    Hostile("an IN of 5,000 texts", f"s IN ({_list(5_000, 'k{}')})".replace("k", "'k").replace(",", "',"), _PARTS),
    Hostile("65,537 blanks", "n = 1" + " " * 65_532, "at most 65,536 characters"),
    Hostile("15,000 NOT", "NOT " * 15_000 + "flag", _PARTS),
    Hostile("10,000 parentheses", "(" * 10_000 + "flag" + ")" * 10_000, _DEPTH),
    Hostile("41 parentheses", "(" * 41 + "flag" + ")" * 41, _DEPTH),
    Hostile("10,000 brackets", "tags[" * 10_000, _DEPTH),
    Hostile("41 nested calls", "abs(" * 41 + "n" + ")" * 41 + " = 1", _DEPTH),
    Hostile("CASE 2,000 times", "CASE WHEN n = 1 THEN TRUE END OR " * 1_900 + "flag", _PARTS),
    Hostile("513 additions", "n = 0" + " + 1" * 513, "513 operators, at most 512"),
    Hostile("60,000 minus signs", "n = " + "-" * 60_000, "the filter ends where", "read"),
    Hostile("60,000 plus signs", "n = " + "+" * 60_000, "operators, at most 512"),
    Hostile("60,000 commas", "n = 1" + "," * 60_000, _PARTS),
    Hostile("60,000 points", "n" + "." * 60_000, _PARTS),
    Hostile("60,000 dollars", "$" * 60_000, _PARTS),
    Hostile("60,000 braces", "{" * 60_000, _PARTS),
    Hostile("60,000 hash signs", "#" * 60_000, _PARTS),
    Hostile("60,001 quotes", "'" * 60_001, _PARTS),
    Hostile("16,000 comments", "/**/" * 16_000 + "flag", _PARTS),
    Hostile("a symbol flood behind a raw string", "s = r'\\' " + "+" * 60_000, "operators, at most 512"),
    Hostile("a literal of 60,000 characters", f"s = '{'a' * 60_000}'", _STRING),
    Hostile("a literal of 60,000 escapes", "s = '" + "\\u0041" * 10_000 + "'", _STRING),
    Hostile("a raw literal of 60,000", f"s = r'{'a' * 60_000}'", _STRING),
    Hostile("hexadecimal of 60,000 digits", f"s = X'{'1F' * 30_000}'", _STRING),
    Hostile("quotes that never close", 's = "' + '\\"' * 30_000, _STRING),
    Hostile("a number of 60,000 digits", "n = " + "9" * 60_000, _NAME),
    Hostile("an identifier of 60,000 characters", "n" * 60_000 + " = 1", _NAME),
    Hostile("a quoted name of 60,000 characters", f"`{'n' * 60_000}` = 1", _NAME),
    Hostile("a function of 60,000 characters", "f" * 60_000 + "(n) = 1", _NAME),
    Hostile("a NUL", "n = 1\0", "U+0000 cannot be part"),
    Hostile("a terminal's escape", "\x1b[2J n = 1", "U+001B cannot be part"),
    Hostile("LIKE with 20,000 %", f"s LIKE '{'%' * 20_000}'", _STRING),
    Hostile("RLIKE of 50,000 characters", f"s RLIKE '{'a?' * 25_000}'", _STRING),
)

TREES = (
    Hostile("comments that never close", "n = 1 " + "/* " * 20_000, "not closed", "read"),
    Hostile("3,000 strings side by side", "s = " + "'ab' " * 3_000, "strings side by side", "read"),
    Hostile("40 NOT inside 40", "NOT " * 41 + "flag", "nested more than 40 deep", "read"),
    Hostile("200 signs", "n = " + "- " * 200 + "n", "nested more than 40 deep", "read"),
    Hostile("200 comparisons in a row", "flag" + " = flag" * 200, "chains too many", "read"),
    Hostile("200 concatenations", "s = s" + " || s" * 200, "chains too many", "read"),
    Hostile("500 fields", "place" + ".lat" * 500 + " > 1", "has no field", "read"),
    Hostile("LIKE with 2,000 pieces", f"s LIKE '{'%a' * 2_000}'", _PROGRAM, "read"),
    Hostile("LIKE with 4,000 _", f"s LIKE '{'_' * 4_000}'", _PROGRAM, "read"),
    Hostile("400 LIKE of 20 pieces", _any("s LIKE '{}" + "%a" * 20 + "'", 400), _PROGRAM, "read"),
    Hostile("RLIKE of 4,000 characters", f"s RLIKE '{'a?' * 2_000}'", "at most 1,024 are accepted", "read"),
    Hostile("a repeated repetition", "s RLIKE '((a{100}){100}){100}'", "bad regular expression", "read"),
    Hostile("100 letters of any script", "s RLIKE r'\\pL{100}'", "bad regular expression", "read"),
    Hostile("letters of any script, 12 times", "s RLIKE r'\\pL{12}'", _PROGRAM, "read"),
    Hostile("20 patterns of 900 instructions", _any("s RLIKE '{}[a-z]{{900}}'", 20), _PROGRAM, "read"),
    Hostile("60 patterns of any script", _any("s RLIKE r'{}\\pL'", 60), _PROGRAM, "read"),
    Hostile("300 regular expressions", _any("s RLIKE 'a{}'", 300), _PROGRAM, "read"),
    Hostile("a back reference", r"s RLIKE r'(a)\1'", "bad regular expression", "read"),
    Hostile("look-ahead", "s RLIKE '(?=a)b'", "bad regular expression", "read"),
    Hostile("an interval of a million digits", "at > at - INTERVAL '1e900000' SECOND", "interval is longer", "read"),
    Hostile("an interval of 4,000 digits", f"at > at - INTERVAL '{'9' * 4_000}' MONTH", "interval is longer", "read"),
    Hostile("an interval that is no number", "at > at - INTERVAL 'NaN' SECOND", "not a number", "read"),
    Hostile("a decimal of a billion digits", "n = 1e999999999BD", "more than 38 digits", "read"),
    Hostile("a date of 4,000 digits", f"at > DATE '{'9' * 4_000}'", "is not a date", "read"),
    Hostile("an unknown column after 750", _any("n = {}", 750) + " OR m = 1", "unknown column 'm'", "read"),
    Hostile("a wrong type after 1,500 values", f"n IN ({_list(1_500)}, 'x')", "cannot compare", "read"),
    Hostile("a missing parenthesis after 500", "(" + _any("(n = {})", 500), "where ')' was expected", "read"),
    Hostile("a context value after 750", _any("n = {}", 750) + " OR n = $m", "unknown context value", "read"),
)

COSTS = (
    Hostile("400 searches by LIKE", _any("s LIKE '%a{}%'", 400), _ROWS, "cost"),
    Hostile("400 searches by contains", _any("contains(s, 'a{}')", 400), _ROWS, "cost"),
    Hostile("300 searches in lower case", _any("contains(lower(s), 'a{}')", 300), _ROWS, "cost"),
    Hostile("400 additions of wide decimals", "h > 0" + _any(" AND h + {} > h", 400).replace(" OR", ""), _ROWS, "cost"),
    Hostile("1,000 columns in a list", f"h IN ({', '.join(['h'] * 1_000)})", _ROWS, "cost"),
    Hostile("300 searches in elements", _any("contains(tags[{}], 'a')", 300), _ROWS, "cost"),
    Hostile("240 searches in two texts", _any("contains(concat(s, s), 'a{}')", 240), _ROWS, "cost"),
    Hostile("300 wide decimals", _any("abs(h) > h - {}", 300), _ROWS, "cost"),
    Hostile(
        "a list of 4,000, 215 times",
        _any("(array_contains($many, s) AND n = {})", 215),
        _ROWS,
        "cost",
        context={"many": [f"k{number}" for number in range(4_000)]},
    ),
)

CONTEXTS = (
    Hostile("a context of 5,000 values", "array_contains($many, n)", "5,000 values", context={"many": [1] * 5_000}),
    Hostile("a context text of 5,000", "s = $text", "5,000 long", context={"text": "a" * 5_000}),
    Hostile("a context nested 30 deep", "true", "nested", context={"deep": _deep(60)}),
    Hostile("a context of many lists", "true", "values", context={f"v{each}": [1] * 50 for each in range(99)}),
)

PROFILES = (
    Hostile("2,000 topics", "s: " + _list(2_000, "a/{}"), "more than 1,024 topics", "read", "topics"),
    Hostile("300 topics with wildcards", "s: " + _list(300, "a/{}/#"), "256 with a wildcard", "read", "topics"),
    Hostile("600 words", "s: " + _any("w{}", 600), "more than 512 words", "read", "keywords"),
    Hostile("200 words", "s: " + _any("w{}", 200), _ROWS, "cost", "keywords"),
    Hostile("a phrase of 5,000 words", 's: "' + "w " * 5_000 + '"', "5,000 words, at most 16", "read", "keywords"),
    Hostile("words nested 60 deep", "s: " + "(" * 60 + "w" + ")" * 60, "nested more than 40", "read", "keywords"),
    Hostile("topics of 100,000 characters", "s: " + "a/" * 50_000, "at most 65,536 characters", "scan", "topics"),
)

HOSTILE = (*TEXTS, *TREES, *COSTS, *CONTEXTS, *PROFILES)
