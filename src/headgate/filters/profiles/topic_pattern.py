"""One pattern of topics: exact, prefix, or with wildcards for levels, as MQTT and NATS write them.

| pattern         | matches |
|-----------------|---------|
| `news.sport`    | just that topic |
| `news*`         | everything that begins so |
| `news/+/goals`  | any one level in the middle (MQTT; the level may be empty) |
| `news/#`        | `news` itself and everything below it (MQTT) |
| `news.*.goals`  | any one level in the middle (NATS; the level is not empty) |
| `news.>`        | everything below `news` (NATS) |

A pattern with a slash, or with a level that is `+` or `#`, has levels divided by slashes; any other by points.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from headgate.filters import build
from headgate.filters.errors import RefusedError
from headgate.filters.expr import Expr, IsNull, Literal, Not, Rlike
from headgate.filters.kernels.patterns import quote
from headgate.filters.types import STRING


class Wildcard(Enum):
    """A level that is not text: any one level, or all that follow."""

    ONE = "one"
    REST = "rest"


ONE, REST = Wildcard.ONE, Wildcard.REST
Level: TypeAlias = str | Wildcard
_MARKS = {"/": ("+", "#"), ".": ("*", ">")}


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """A pattern by its text, what divides its levels, and its levels; `prefix` for one that ends in a bare star."""

    text: str
    divider: str
    levels: tuple[Level, ...]
    prefix: str | None = None

    @property
    def is_exact(self) -> bool:
        """Whether it matches one topic only."""
        return self.prefix is None and all(isinstance(level, str) for level in self.levels)

    @property
    def stem(self) -> str:
        """The text that every matching topic begins with."""
        if self.prefix is not None:
            return self.prefix
        known = []
        for level in self.levels:
            if not isinstance(level, str):
                break
            known.append(level)
        rest = len(known) < len(self.levels)
        if rest and self.levels[len(known)] is REST and self.divider == "/":
            return self.divider.join(known)
        return self.divider.join(known) + (self.divider if rest and known else "")

    def covers(self, other: TopicPattern) -> bool:
        """Whether every topic that matches the other matches this one; complete within one style of wildcards."""
        if self.prefix is not None:
            return other.stem.startswith(self.prefix)
        if other.prefix is not None or (self.divider != other.divider and not other.is_exact):
            return self.levels == (REST,) and self.divider == "/"
        levels = tuple(other.text.split(self.divider)) if other.is_exact else other.levels
        return self._covers_levels(levels)

    def _covers_levels(self, levels: tuple[Level, ...]) -> bool:
        for index, level in enumerate(self.levels):
            if level is REST:
                rest = levels[index:]
                return self.divider == "/" or (bool(rest) and rest[0] != "")
            if index >= len(levels) or levels[index] is REST:
                return False
            theirs = levels[index]
            if level is ONE and (self.divider == "/" or theirs != ""):
                continue
            if level != theirs:
                return False
        return len(levels) == len(self.levels)

    def condition(self, term: Expr) -> Expr:
        """The same as a condition on a column."""
        if self.prefix is not None:
            return _begins(term, self.prefix)
        if self.is_exact:
            return build.compare("=", term, Literal(STRING, self.text))
        if self.levels == (REST,) and self.divider == "/":
            return Not(IsNull(term))
        if self.divider == "/" and all(isinstance(level, str) for level in self.levels[:-1]):
            stem = self.divider.join(str(level) for level in self.levels[:-1])
            if self.levels[-1] is REST:
                return build.disjunction(
                    [build.compare("=", term, Literal(STRING, stem)), _begins(term, stem + self.divider)]
                )
        found = Rlike(term, self.regex)
        return build.conjunction([_begins(term, self.stem), found]) if self.stem else found

    @property
    def regex(self) -> str:
        """The same as an RE2 expression."""
        divider = quote(self.divider)
        one = f"[^{divider}]*" if self.divider == "/" else f"[^{divider}]+"
        parts = "".join(
            (divider if index else "") + (quote(level) if isinstance(level, str) else one)
            for index, level in enumerate(self.levels)
            if level is not REST
        )
        if self.levels[-1] is not REST:
            return rf"(?s)\A{parts}\z"
        if self.divider == "/":
            return rf"(?s)\A{parts}({divider}.*)?\z"
        return rf"(?s)\A{parts}{divider if len(self.levels) > 1 else ''}[^{divider}].*\z"


def _begins(term: Expr, prefix: str) -> Expr:
    escaped = "".join("\\" + one if one in "%_\\" else one for one in prefix)
    return build.like(term, Literal(STRING, escaped + "%"))


def parse_pattern(text: str) -> TopicPattern:
    """The pattern that a text means; `RefusedError` if it means none.

    >>> parse_pattern("news/+/goals").covers(parse_pattern("news/sport/goals"))
    True
    """
    if not text:
        raise RefusedError("a topic is empty", "write a topic, or # for all")
    slashes = "/" in text or text in ("+", "#")
    divider = "/" if slashes else "."
    one, rest = _MARKS[divider]
    levels = text.split(divider)
    if levels[-1].endswith("*") and len(levels[-1]) > 1 and not slashes:
        prefix = text[:-1]
        if "*" in prefix or ">" in prefix:
            raise RefusedError(f"{text!r} has a wildcard before its end", "a star ends a prefix, or is a whole level")
        return TopicPattern(text, divider, (), prefix)
    found: list[Level] = []
    for index, level in enumerate(levels):
        if level == rest and index < len(levels) - 1:
            raise RefusedError(f"{rest} stands before the end of {text!r}", f"{rest} is the last level")
        if level not in (one, rest) and any(mark in level for mark in (one, rest)):
            raise RefusedError(f"{level!r} mixes text and a wildcard in {text!r}", f"{one} and {rest} are whole levels")
        found.append(ONE if level == one else REST if level == rest else level)
    return TopicPattern(text, divider, tuple(found))
