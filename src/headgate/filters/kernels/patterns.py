"""LIKE and RLIKE: patterns become the cheapest Arrow search that decides them; none can take more than linear time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.filters.types import STRING
from headgate.filters.vector import Vector, truth


def like(value: Vector, pattern: str, escape: str) -> Vector:
    """`value LIKE pattern`."""
    pieces = like_pieces(pattern, escape)
    wild = [piece for piece in pieces if piece in (ANY, ONE)]
    text = "".join(piece[1] for piece in pieces if piece not in (ANY, ONE))
    if not wild:
        return _apply(value, lambda array: pc.equal(array, text))
    if wild == [ANY] and len(pieces) <= 2:
        if pieces[-1] == ANY:
            return _apply(value, lambda array: pc.starts_with(array, text))
        return _apply(value, lambda array: pc.ends_with(array, text))
    if pieces[0] == pieces[-1] == ANY and len(pieces) == 3 and len(wild) == 2:
        return _apply(value, lambda array: pc.match_substring(array, text))
    return rlike(value, like_regex(pattern, escape))


ANY, ONE = ("%", ""), ("_", "")


def like_pieces(pattern: str, escape: str) -> list[tuple[str, str]]:
    r"""The pattern as literal text `("=", text)` and the marks `ANY` and `ONE`.

    Marks side by side are brought to one form, first every `ONE` and then at most one `ANY`, so that a run of `%` is as
    cheap as one.

    >>> like_pieces("a!%b%", "!")
    [('=', 'a%b'), ('%', '')]
    >>> like_pieces("%%_%a", "\\")
    [('_', ''), ('%', ''), ('=', 'a')]
    """
    pieces: list[tuple[str, str]] = []
    text: list[str] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            position += 1
            text.append(pattern[position])
        elif character in "%_":
            if text:
                pieces.append(("=", "".join(text)))
                text = []
            _add_mark(pieces, ANY if character == "%" else ONE)
        else:
            text.append(character)
        position += 1
    return [*pieces, ("=", "".join(text))] if text or not pieces else pieces


def _add_mark(pieces: list[tuple[str, str]], mark: tuple[str, str]) -> None:
    if not pieces or pieces[-1] != ANY:
        pieces.append(mark)
    elif mark == ONE:
        pieces.insert(-1, ONE)


def like_regex(pattern: str, escape: str) -> str:
    """The RE2 expression that a LIKE pattern means."""
    parts = {ANY: ".*", ONE: "."}
    return "(?s)^" + "".join(parts.get(piece) or quote(piece[1]) for piece in like_pieces(pattern, escape)) + r"\z"


def quote(text: str) -> str:
    """The text as an RE2 expression that matches just it."""
    return "".join(one if one.isalnum() or ord(one) > 127 else f"\\x{{{ord(one):x}}}" for one in text)


def rlike(value: Vector, pattern: str) -> Vector:
    """`value RLIKE pattern`: Arrow runs RE2 over the whole column."""
    return _apply(value, lambda array: pc.match_substring_regex(array, pattern))


def _apply(value: Vector, kernel: Any) -> Vector:
    if isinstance(value.values, pa.Scalar):
        return truth(kernel(pa.array([value.values.as_py()], STRING))[0])
    return truth(kernel(value.values))
