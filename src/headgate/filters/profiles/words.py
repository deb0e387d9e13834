"""The index of keywords: every profile waits at a few words, one of which a text must have for the profile to match it.

Texts are split into words once for all profiles; a profile is evaluated only on the rows that have one of its words.
Words are compared as plain ASCII; a row with any other character is evaluated for every profile, because case folding
beyond ASCII is the pattern matcher's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.filters.profiles.base import Counts, Profile
from headgate.filters.profiles.translated import Translated

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Worded(Translated):
    """A profile of words over columns: it matches no row of plain text that has none of `words`; None is not known."""

    texts: tuple[str, ...] = ()
    words: frozenset[str] | None = None


class AwaitedWords:
    """Rows of a batch by the words that somebody waits at, in the given columns."""

    def __init__(self, batch: pa.RecordBatch, columns: tuple[str, ...], words: Iterable[str]) -> None:
        known = pa.array(sorted(set(words)), pa.string())
        rows, places = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        odd = np.zeros(batch.num_rows, bool)
        for name in columns:
            texts = pc.fill_null(batch.column(name), "")
            odd |= ~pc.string_is_ascii(texts).to_numpy(zero_copy_only=False)
            split = pc.split_pattern_regex(pc.ascii_lower(texts), pattern="[^a-z0-9_]+")
            found = pc.index_in(pc.list_flatten(split), value_set=known)
            inside = pc.is_valid(found).to_numpy(zero_copy_only=False)
            rows.append(pc.list_parent_indices(split).to_numpy(zero_copy_only=False)[inside])
            places.append(pc.drop_null(found).to_numpy(zero_copy_only=False).astype(np.int64))
        row, place = np.concatenate(rows), np.concatenate(places)
        order = np.argsort(place, kind="stable")
        ends = np.searchsorted(place[order], np.arange(len(known) + 1))
        self._rows, self._ends, self._odd = row[order], ends, np.flatnonzero(odd)
        self._places: Mapping[str, int] = {word: place for place, word in enumerate(known.to_pylist())}

    def rows(self, words: Iterable[str]) -> Rows:
        """The rows that may match a profile which waits at these words, ascending."""
        spans = [self._rows[self._ends[k] : self._ends[k + 1]] for k in (self._places[word] for word in words)]
        return np.unique(np.concatenate([self._odd, *spans])).astype(np.int64)


def evaluate_worded(
    batch: pa.RecordBatch, profiles: Mapping[int, tuple[Worded, Mapping[str, Any]]]
) -> Iterable[tuple[int, Rows]]:
    """For each profile, by number, the rows that match it."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, (profile, _) in profiles.items():
        groups.setdefault(profile.texts, []).append(number)
    for columns, numbers in groups.items():
        wanted = {word for number in numbers for word in profiles[number][0].words or ()}
        waiting = AwaitedWords(batch, columns, wanted)
        for number in numbers:
            profile, context = profiles[number]
            every = profile.words is None
            rows = np.arange(batch.num_rows) if profile.words is None else waiting.rows(profile.words)
            if len(rows):
                some = batch if every else batch.select(sorted(profile.columns)).take(pa.array(rows))
                yield number, rows[profile.evaluate(some, context)]


class WordIndex:
    """A `ProfileIndex` of keywords."""

    def __init__(self) -> None:
        self._profiles: dict[int, tuple[Worded, Mapping[str, Any]]] = {}

    def add(self, number: int, profile: Profile) -> None:
        """Add a profile under a number that is not in use."""
        if isinstance(profile, Worded):
            self._profiles[number] = (profile, {})
        elif isinstance(profile, Translated):
            self._profiles[number] = (Worded(profile.text, profile.filter), {})
        else:
            raise TypeError(f"{type(profile).__name__} is no profile of keywords")

    def remove(self, number: int) -> None:
        """Remove the profile of that number."""
        del self._profiles[number]

    def match(self, batch: pa.RecordBatch) -> tuple[Counts, Counts]:
        """For each row the numbers of the profiles that match it, ascending, as offsets and numbers."""
        found = [(rows, np.full(len(rows), number)) for number, rows in evaluate_worded(batch, self._profiles)]
        row = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in found)])
        number = np.concatenate([np.empty(0, np.int64), *(numbers for _, numbers in found)])
        offsets = np.zeros(batch.num_rows + 1, np.int64)
        np.cumsum(np.bincount(row, minlength=batch.num_rows), out=offsets[1:])
        return offsets, number[np.lexsort((number, row))]
