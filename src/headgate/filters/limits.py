"""Bounds on a filter's text that are checked by one cheap scan, before any parser sees it.

Parsers recurse: sqlglot's own gives up near fifty parentheses and others crash the process. The scan is linear, never
recurses and stops at the first bound that is passed, so hostile text costs microseconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headgate.filters.errors import FilterError


@dataclass(frozen=True, slots=True)
class Limits:
    """Longest text in characters, deepest nesting, most tokens, and most operators of arithmetic."""

    length: int = 65_536
    depth: int = 40
    tokens: int = 16_384
    operators: int = 512


DEFAULT_LIMITS = Limits()

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_PIECE = re.compile(
    r"""'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `[^`]*` | --[^\n]* | /\*.*?\*/ | [()\[\]] | \w+ | \s+ | .""",
    re.VERBOSE | re.DOTALL,
)


def check_limits(text: str | bytes, limits: Limits = DEFAULT_LIMITS) -> str:
    """The text if it is within bounds; `FilterError` with the bound that it passes otherwise.

    >>> check_limits("t > 21")
    't > 21'
    """
    if len(text) > limits.length:
        raise FilterError(
            f"the filter is {len(text):,} long, at most {limits.length:,} characters are accepted",
            hint="split it, or put the values in the subscriber's context and use array_contains($list, column)",
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
    _scan(text, limits)
    return text


def _scan(text: str, limits: Limits) -> None:
    depth = tokens = operators = 0
    before = ""
    for piece in _PIECE.finditer(text):
        found = piece[0]
        if found.isspace() or found.startswith(("--", "/*")):
            continue
        tokens += 1
        if found in "([":
            depth += 1
        elif found in ")]":
            depth -= 1
        elif found in "+-*/%|" and before not in ("", "(", ",", "["):  # a sign before a number is none
            operators += 1
        before = found
        if operators > limits.operators:
            raise FilterError(
                f"the filter has more than {limits.operators:,} operators", text, piece.start(), hint="split it"
            )
        if depth > limits.depth:
            raise FilterError(
                f"parentheses are nested more than {limits.depth} deep", text, piece.start(), hint="flatten the filter"
            )
        if tokens > limits.tokens:
            raise FilterError(
                f"the filter has more than {limits.tokens:,} parts",
                text,
                piece.start(),
                hint="put long lists in the subscriber's context and use array_contains($list, column)",
            )
