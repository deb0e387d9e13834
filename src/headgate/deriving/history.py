"""What is remembered of the rows that came before: of each key the newest rows, as far back as some column looks.

New rows are put among the remembered ones of their keys by time (`Merged`). From there derived columns are computed and
the next memory is made. Memory is a value: the same rows in the same micro-batches make the same memory, whoever does
it. Which rows of a key are remembered does not depend on how rows were cut into micro-batches; which keys are forgotten
does, as a key that is in the running micro-batch is never forgotten by it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.deriving.definition import Derivation

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows in the order in which they are committed, by time: keys, times in microseconds and what is remembered."""

    keys: pa.Table
    time: Ints
    terms: pa.Table

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True, slots=True)
class History:
    """Remembered rows. `key` is the place of a row's key in `keys`, `seen` when a key was last seen, by `clock`.

    `clock` counts all rows that came, `forgotten` the keys that there was no room for.
    """

    keys: pa.Table
    seen: Ints
    key: Ints
    time: Ints
    terms: pa.Table
    clock: int = 0
    forgotten: int = 0

    @classmethod
    def empty(cls, derivation: Derivation) -> History:
        """Nothing remembered."""
        nothing = np.zeros(0, np.int64)
        keys, terms = (pa.schema(list(each.items())) for each in (derivation.key_types, derivation.term_types))
        return cls(keys.empty_table(), nothing, nothing, nothing, terms.empty_table())

    @property
    def rows(self) -> int:
        """Rows that are remembered."""
        return len(self.time)


@dataclass(frozen=True, slots=True)
class Merged:
    """The remembered rows of the keys that new rows have, and these, ordered by key, time and coming.

    `place` is where each new row stands, `start` where the rows of each row's key begin. `apart` are the remembered
    rows of all other keys, by their place in `history`.
    """

    history: History
    keys: pa.Table
    key: Ints
    time: Ints
    terms: pa.Table
    fresh: Flags
    start: Ints
    place: Ints
    apart: Ints

    @classmethod
    def of(cls, history: History, rows: NewRows) -> Merged:
        """New rows among those of a history."""
        keys, ids = _numbered(history.keys, rows.keys)
        touched = np.zeros(keys.num_rows, bool)
        touched[ids] = True
        mine = touched[history.key]
        known = np.flatnonzero(mine)
        key, time = np.concatenate([history.key[known], ids]), np.concatenate([history.time[known], rows.time])
        order = np.lexsort((time, key))  # stable: of rows of one time, those that came first stand first
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        key, time = key[order], time[order]
        terms = pa.concat_tables([_taken(history.terms, known), rows.terms]) if rows.terms.num_columns else rows.terms
        first = np.append(True, key[1:] != key[:-1])[: len(key)]
        start = np.maximum.accumulate(np.where(first, np.arange(len(key)), 0))
        return cls(
            history,
            keys,
            key,
            time,
            _taken(terms, order),
            order >= len(known),
            start,
            place[len(known) :],
            np.flatnonzero(~mine),
        )

    @property
    def newest(self) -> Ints:
        """For each new row, the newest time that was remembered of its key; the least number for a new key."""
        found = np.full(self.keys.num_rows, np.iinfo(np.int64).min)
        np.maximum.at(found, self.history.key, self.history.time)
        return found[self.key[self.place]]

    def first_after(self, bounds: Ints) -> Ints:
        """For each new row, the first row of its key whose time lies after a bound."""
        size, asked = len(self.key), len(self.place)
        key = np.concatenate([self.key, self.key[self.place]])
        order = np.lexsort((np.arange(size + asked) >= size, np.concatenate([self.time, bounds]), key))
        rows_before = np.cumsum(order < size)
        found = np.empty(asked, np.int64)
        questions = order >= size
        found[order[questions] - size] = rows_before[questions]
        return found

    def remembered(self, derivation: Derivation) -> History:
        """What is remembered after these rows."""
        history, limits = self.history, derivation.limits
        size = len(self.key)
        starts = np.flatnonzero(self.start == np.arange(size))
        ends = np.append(starts[1:], size)
        lengths = ends - starts
        old = self.time < np.repeat(self.time[ends - 1] - derivation.horizon_us, lengths)
        passed = np.add.reduceat(old, starts, dtype=np.int64) if size else starts
        # The last row before the horizon stays, as the previous one of what comes late within it.
        begin = np.maximum(starts + np.maximum(passed - 1, 0), ends - limits.rows)
        kept = np.flatnonzero(np.arange(size) >= np.repeat(begin, lengths))
        seen = np.append(history.seen, np.zeros(self.keys.num_rows - len(history.seen), np.int64))
        np.maximum.at(seen, self.key[self.place], history.clock + np.arange(len(self.place)))
        found = History(
            self.keys,
            seen,
            np.concatenate([history.key[self.apart], self.key[kept]]),
            np.concatenate([history.time[self.apart], self.time[kept]]),
            pa.concat_tables([_taken(history.terms, self.apart), _taken(self.terms, kept)]).combine_chunks(),
            history.clock + len(self.place),
            history.forgotten,
        )
        return _within(found, limits.keys)


def _taken(table: pa.Table, places: Ints) -> pa.Table:
    return table.take(pa.array(places)) if table.num_columns else table


def _within(history: History, most: int) -> History:
    """The history without the keys that were not seen for longest, where there are more than so many."""
    excess = history.keys.num_rows - most
    if excess <= 0:
        return history
    staying = np.sort(np.argpartition(history.seen, excess)[excess:])
    number = np.full(history.keys.num_rows, -1, np.int64)
    number[staying] = np.arange(most)
    rows = np.flatnonzero(number[history.key] >= 0)
    return History(
        _taken(history.keys, staying).combine_chunks(),
        history.seen[staying],
        number[history.key[rows]],
        history.time[rows],
        _taken(history.terms, rows).combine_chunks(),
        history.clock,
        history.forgotten + excess,
    )


def _numbered(known: pa.Table, given: pa.Table) -> tuple[pa.Table, Ints]:
    """The known keys and after them the new ones, and for each given row the place of its key among them."""
    both = pa.concat_tables([known, given])
    codes: Ints = np.zeros(both.num_rows, np.int64)
    for column in both.columns:
        found = _codes(column.combine_chunks())
        codes = _codes(pa.array(codes * (int(found.max(initial=0)) + 1) + found))
    ids = codes[known.num_rows :]
    _, first = np.unique(ids, return_index=True)
    new = np.sort(first[ids[first] >= known.num_rows])
    return pa.concat_tables([known, given.take(pa.array(new))]).combine_chunks(), ids


def _codes(values: pa.Array) -> Ints:
    """A number for each value, counted up in the order of their first appearance; null is a value like any other."""
    if isinstance(values, pa.ChunkedArray):  # a column without chunks stays one
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    codes = values.dictionary_encode(null_encoding="encode").indices
    return np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)
