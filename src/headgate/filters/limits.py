"""Bounds on a filter, and those that one cheap scan of the text checks before any parser sees it.

Parsers recurse: sqlglot's own gives up near fifty parentheses and others crash the process. The scan is linear, never
recurses and stops at the first bound that is passed. What a text within these bounds can cost is estimated by `cost`
once it is a tree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np

from headgate.filters.errors import FilterError


def _most(limit: int, about: str) -> Any:
    return field(default=limit, metadata={"about": about})


@dataclass(frozen=True, slots=True)
class Limits:
    """What a filter may have at most; a filter past a limit is refused before the work is done.

    They are constants and no settings, because they bound the time of whoever reads a filter (about 8 us a token), and
    that is the same service for everybody. A list of 1,000 values takes 2,003 tokens, 500 comparisons take 2,000.
    """

    length: int = _most(65_536, "characters of the text")
    tokens: int = _most(3_072, "words, literals, symbols and comments")
    depth: int = _most(40, "nested parentheses, calls and negations")
    operators: int = _most(512, "operators of arithmetic")
    name: int = _most(256, "characters of a name or a number; no column has a longer one")
    literal: int = _most(4_096, "characters of a string, also of one in a context")
    pattern: int = _most(1_024, "characters of a regular expression; RE2 needs the square of longer ones in time")
    program: int = _most(12_288, "instructions of all LIKE and RLIKE patterns as RE2 compiles them, at 1 us each")
    values: int = _most(4_096, "values in all lists of a context; an index takes as many ranges of one class")


DEFAULT_LIMITS = Limits()

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_PIECE = re.compile(
    r"""(?P<quoted>[rR]'[^']*(?:'|\Z) | [rR]"[^"]*(?:"|\Z) | '(?:[^'\\]|\\.)*(?:'|\\?\Z) | "(?:[^"\\]|\\.)*(?:"|\\?\Z))
    | (?P<comment>--[^\n]* | /\*.*?(?:\*/|\Z)) | (?P<name>`[^`]*(?:`|\Z) | \w+) | \s+
    | (?P<symbol><=> | [<>!=]= | <> | \|\| | .)""",
    re.VERBOSE | re.DOTALL,
)
_OPERATORS = frozenset(("+", "-", "*", "/", "%", "||"))
_LISTS = "put long lists in the subscriber's context and use array_contains($list, column)"


def check_limits(text: str | bytes, limits: Limits = DEFAULT_LIMITS) -> str:
    """The text if it is within bounds; `FilterError` with the bound that it passes otherwise.

    >>> check_limits("t > 21")
    't > 21'
    """
    text = check_text(text, limits)
    _scan(text, limits)
    return text


def check_text(text: str | bytes, limits: Limits = DEFAULT_LIMITS) -> str:
    """The text of a filter in any language if it is not too long and all of it can be printed."""
    if len(text) > limits.length:
        raise FilterError(
            f"the filter is {len(text):,} long, at most {limits.length:,} characters are accepted",
            hint=f"split it, or {_LISTS}",
        )
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FilterError(f"byte {error.start} is not UTF-8", hint="filters are UTF-8 text") from None
    if bad := _CONTROL.search(text):
        raise FilterError(
            f"the character U+{ord(bad[0]):04X} cannot be part of a filter",
            text,
            bad.start(),
            hint=r"write it as an escape inside a string, such as '\u0001'",
        )
    return text


def _scan(text: str, limits: Limits) -> None:
    depth = tokens = operators = 0
    before = ""
    for piece in _PIECE.finditer(text):
        kind = piece.lastgroup
        if kind is None:
            continue
        found = piece[0]
        tokens += 1
        if kind == "symbol":
            if found in "([":
                depth += 1
            elif found in ")]":
                depth -= 1
            elif found in _OPERATORS and before not in ("", "(", ",", "["):  # a sign before a number is none
                operators += 1
        elif len(found) > limits.name and kind == "name":
            _refuse(text, piece, "a name or a number", len(found), limits.name, "characters", "shorten it")
        elif len(found) - 2 > limits.literal and kind == "quoted":
            _refuse(text, piece, "a string", len(found) - 2, limits.literal, "characters", "compare with a shorter one")
        before = before if kind == "comment" else found
        if operators > limits.operators:
            _refuse(text, piece, "the filter", operators, limits.operators, "operators", "split it")
        if depth > limits.depth:
            _refuse(text, piece, "the filter", depth, limits.depth, "levels of parentheses", "flatten it")
        if tokens > limits.tokens:
            _refuse(text, piece, "the filter", f"at least {tokens:,}", limits.tokens, "parts", _LISTS)


def _refuse(text: str, piece: re.Match[str], what: str, cost: int | str, limit: int, unit: str, hint: str) -> None:
    shown = cost if isinstance(cost, str) else f"{cost:,}"
    raise FilterError(f"{what} has {shown} {unit}, at most {limit:,} are accepted", text, piece.start(), hint=hint)


def is_number(value: Any) -> bool:
    """Whether a value is a truth value, a finite double or a whole number of 64 bits.

    One such number in the place of another of its type changes neither how a filter is read nor what it may cost.
    """
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, bool | int) and -(2**63) <= value < 2**63


def check_context(context: Mapping[str, Any], limits: Limits = DEFAULT_LIMITS) -> None:
    """Refuse context values that are too large, too long or nested too deep, without recursing into them."""
    values = 0
    pending: list[tuple[str, Any, int]] = [(name, [value], 0) for name, value in context.items()]
    while pending:
        name, inner, depth = pending.pop()
        if depth > limits.depth:
            _refuse_value(name, f"is nested {depth} deep", f"{limits.depth} levels", "flatten it")
        values += len(inner) if depth else 0
        if values > limits.values:
            _refuse_value(name, f"brings the context to {values:,} values", f"{limits.values:,}", "split the list")
        for one in inner:
            if isinstance(one, str | bytes):
                if len(one) > limits.literal:
                    most = f"{limits.literal:,} characters"
                    _refuse_value(name, f"is {len(one):,} long", most, "give a shorter text")
            elif isinstance(one, list | tuple | dict | np.ndarray | Mapping):
                pending.append((name, one.values() if isinstance(one, Mapping) else one, depth + 1))


def _refuse_value(name: str, what: str, most: str, hint: str) -> None:
    raise FilterError(f"the context value {name[:64]!r} {what}, at most {most} are accepted", hint=hint)
