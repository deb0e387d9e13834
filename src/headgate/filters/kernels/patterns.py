"""LIKE and RLIKE: patterns become the cheapest Arrow search that decides them; none can take more than linear time.

What a pattern costs is the size of its program, the instructions that RE2 compiles it to: compiling takes time in
proportion to it, once for every batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

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


_EDGE: Final = r"[^\pL\pN_]"
_EDGE_SIZE: Final = 1_360  # instructions of an edge
_START: Final = rf"(?i)(?:\A|{_EDGE})"
_MARK_SIZE: Final = 9  # instructions of a wildcard of LIKE: any character is up to four bytes
_MEMORY_BYTES: Final = 1 << 20


def word_regex(words: Sequence[str], *, prefix: bool) -> str:
    """The RE2 expression that finds whole words in a row, in any case; with `prefix` the last may go on."""
    tail = r"[\pL\pN_]*" if prefix else ""
    return f"{_START}{f'{_EDGE}+'.join(quote(word) for word in words)}{tail}(?:\\z|{_EDGE})"


def like_size(pattern: str, escape: str) -> int:
    """About how many instructions a LIKE pattern takes, told from its text."""
    return sum(_MARK_SIZE if mark in "%_" else len(text.encode()) for mark, text in like_pieces(pattern, escape))


def regex_size(pattern: str) -> int:
    """How many instructions a pattern takes; one that `word_regex` made is not compiled to tell."""
    if pattern.startswith(_START):
        return len(pattern) + _EDGE_SIZE * pattern.count(r"\pL")
    return compiled_size(pattern)


@lru_cache(maxsize=4_096)
def compiled_size(pattern: str) -> int:
    """How many instructions a pattern takes; `re2.error` if it is none, or needs more than a megabyte."""
    import re2  # the base install of a subscriber or relay has no patterns to check

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES
    return int(re2.compile(pattern, options).programsize)


def rlike(value: Vector, pattern: str) -> Vector:
    """`value RLIKE pattern`: Arrow runs RE2 over the whole column."""
    return _apply(value, lambda array: pc.match_substring_regex(array, pattern))


def _apply(value: Vector, kernel: Any) -> Vector:
    if isinstance(value.values, pa.Scalar):
        return truth(kernel(pa.array([value.values.as_py()], STRING))[0])
    return truth(kernel(value.values))
