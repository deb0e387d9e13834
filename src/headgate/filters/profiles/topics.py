"""The type for feeds: a list of topic patterns over one column.

`channel: news/sport/#, weather.*.alerts` matches the rows whose `channel` matches any of the patterns. Without a column
it is the one that is called `topic`, or the only column of text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headgate.filters import build
from headgate.filters.errors import FilterError, RefusedError
from headgate.filters.expr import ColumnRef
from headgate.filters.filter import Filter
from headgate.filters.profiles.base import Counts, DefaultProfileType, Profile, ProfileIndex, parts_of
from headgate.filters.profiles.topic_pattern import ONE, REST, Level, TopicPattern, parse_pattern
from headgate.filters.profiles.translated import text_columns
from headgate.filters.types import STRING
from headgate.filters.vector import Mask
from headgate.model import Schema

_PATTERNS, _WILD = 1_024, 256  # each topic is compared with every pattern that has a wildcard


@dataclass(frozen=True, slots=True)
class TopicProfile:
    """Patterns over a column, none of which covers another, in the order of their texts."""

    column: str
    patterns: tuple[TopicPattern, ...]
    text: str
    filter: Filter

    @classmethod
    def of(cls, column: str, patterns: Iterable[TopicPattern]) -> TopicProfile:
        """A profile without superfluous patterns."""
        distinct = sorted(set(patterns), key=lambda each: each.text)
        wide: list[TopicPattern] = []
        for pattern in distinct:
            if not pattern.is_exact and not any(known.covers(pattern) for known in wide):
                wide = [known for known in wide if not pattern.covers(known)]
                wide.append(pattern)
        needed = set(wide)
        kept = [
            pattern
            for pattern in distinct
            if pattern in needed or (pattern.is_exact and not any(known.covers(pattern) for known in wide))
        ]
        term = ColumnRef(STRING, column)
        condition = build.disjunction(dict.fromkeys(pattern.condition(term) for pattern in kept))
        return cls(
            column, tuple(kept), f"{column}: {', '.join(pattern.text for pattern in kept)}", Filter.of(condition)
        )

    @property
    def columns(self) -> frozenset[str]:
        """The column of the topics."""
        return self.filter.columns

    @property
    def parameters(self) -> frozenset[str]:
        """It reads no context."""
        return frozenset()

    def evaluate(self, batch: pa.RecordBatch, context: Mapping[str, Any] | None = None) -> Mask:
        """For each row whether its topic matches."""
        return self.filter.evaluate(batch, context)


class Topics(DefaultProfileType):
    """Topic patterns.

    >>> found = PROFILE.compile("news/#, news/sport", Schema.of({"topic": "string"}), {})
    >>> found.text, found.filter.text
    ('topic: news/#', "topic = 'news' OR topic LIKE 'news/%'")
    """

    name: ClassVar[str] = "topics"

    def compile(self, where: str, schema: Schema, context: Mapping[str, pa.DataType]) -> TopicProfile:
        """The profile; patterns are separated by commas."""
        del context
        columns, rest, start = text_columns(where, schema, "topic")
        if len(columns) != 1:
            raise FilterError("topics stand in one column", where, 0, hint="write `column: pattern, pattern`")
        patterns, position, wild = [], start, 0
        for part in rest.split(","):
            try:
                patterns.append(parse_pattern(part.strip()))
            except RefusedError as error:
                at = position + len(part) - len(part.lstrip())
                raise FilterError(error.message, where, min(at, len(where)), hint=error.hint) from None
            position += len(part) + 1
            wild += not patterns[-1].is_exact
            if len(patterns) > _PATTERNS or wild > _WILD:
                what = f"there are more than {_PATTERNS:,} topics, or {_WILD} with a wildcard"
                raise FilterError(what, where, min(position, len(where)), hint="use one wildcard for many, or split it")
        return TopicProfile.of(columns[0], patterns)

    def covers(self, one: Profile, other: Profile) -> bool:
        """Whether each pattern of the other is covered by one of the first."""
        return all(any(_covers(known, part) for known in parts_of(one)) for part in parts_of(other))

    def merge(self, one: Profile, other: Profile) -> Profile:
        """All patterns of both, if they are over the same column."""
        if isinstance(one, TopicProfile) and isinstance(other, TopicProfile) and one.column == other.column:
            return TopicProfile.of(one.column, (*one.patterns, *other.patterns))
        return super().merge(one, other)

    def index(self) -> ProfileIndex:
        """An index over levels."""
        return TopicIndex()


def _covers(one: Profile, other: Profile) -> bool:
    assert isinstance(one, TopicProfile)
    assert isinstance(other, TopicProfile)
    return one.column == other.column and all(
        any(known.covers(pattern) for known in one.patterns) for pattern in other.patterns
    )


class TopicIndex:
    """Tries of levels and of prefixes, one pair per column: a distinct topic of a batch is looked up once."""

    def __init__(self) -> None:
        self._profiles: dict[int, TopicProfile] = {}
        self._roots: dict[tuple[str, str], _Node] = {}

    def add(self, number: int, profile: Profile) -> None:
        """Add a profile."""
        assert isinstance(profile, TopicProfile)
        if number in self._profiles:
            raise ValueError(f"profile {number} is in the index already")
        self._profiles[number] = profile
        for pattern in profile.patterns:
            self._place(profile.column, pattern).add(number)

    def remove(self, number: int) -> None:
        """Remove a profile."""
        profile = self._profiles.pop(number)
        for pattern in profile.patterns:
            self._place(profile.column, pattern).discard(number)

    def _place(self, column: str, pattern: TopicPattern) -> set[int]:
        """The set of numbers that a pattern belongs to, made on the way."""
        kind = "prefix" if pattern.prefix is not None else "exact" if pattern.is_exact else pattern.divider
        node = self._roots.setdefault((column, kind), _Node())
        steps = tuple[Level, ...](pattern.prefix) if pattern.prefix is not None else pattern.levels
        for step in (pattern.text,) if pattern.is_exact else steps:
            node = node.below.setdefault(step, _Node())
        return node.here

    def match(self, batch: pa.RecordBatch) -> tuple[Counts, Counts]:
        """For each row the numbers of the profiles that match it."""
        rows = batch.num_rows
        found: list[tuple[Counts, Counts]] = []
        for column in sorted({name for name, _ in self._roots}):
            encoded = batch.column(column).cast(STRING).dictionary_encode()
            lists = [
                np.array(sorted(self._matches(column, topic)), np.int64) for topic in encoded.dictionary.to_pylist()
            ]
            lists.append(np.zeros(0, np.int64))
            codes = encoded.indices.fill_null(len(lists) - 1).to_numpy(zero_copy_only=False)
            sizes = np.array([len(each) for each in lists], np.int64)
            starts = np.cumsum(sizes) - sizes
            counts = sizes[codes]
            total = int(counts.sum())
            row = np.repeat(np.arange(rows), counts)
            within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
            found.append((row, np.concatenate(lists)[starts[codes][row] + within]))
        if not found:
            return np.zeros(rows + 1, np.int64), np.zeros(0, np.int64)
        row, numbers = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.lexsort((numbers, row))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))]).astype(np.int64)
        return offsets, numbers[order]

    def _matches(self, column: str, topic: str) -> set[int]:
        found: set[int] = set()
        exact = self._roots.get((column, "exact"))
        if exact and topic in exact.below:
            found |= exact.below[topic].here
        node = self._roots.get((column, "prefix"))
        for letter in topic:
            node = node.below.get(letter) if node else None
            if node is None:
                break
            found |= node.here
        for divider in "/.":
            root = self._roots.get((column, divider))
            if root is not None:
                self._descend([root], topic.split(divider), divider, found)
        return found

    @staticmethod
    def _descend(nodes: list[_Node], levels: list[str], divider: str, found: set[int]) -> None:
        """Follow all nodes that match the levels so far."""
        for level in levels:
            below: list[_Node] = []
            for node in nodes:
                if REST in node.below and (divider == "/" or level):
                    found |= node.below[REST].here
                below += [node.below[level]] if level in node.below else []
                below += [node.below[ONE]] if ONE in node.below and (divider == "/" or level) else []
            nodes = below
        for node in nodes:
            found |= node.here
            if divider == "/" and REST in node.below:
                found |= node.below[REST].here


class _Node:
    __slots__ = ("below", "here")

    def __init__(self) -> None:
        self.here: set[int] = set()
        self.below: dict[Level, _Node] = {}


PROFILE = Topics()
