"""Thinning that holds always: at most one row of each key in an interval, and at most so many rows a second.

Rows are thinned by the time of their event, or of their commit where the stream has no event time, never by when they
arrive here. An interval begins at a multiple of its length since 1970, and its first row is kept. A late row, whose
time lies in or before the interval of the last row of its key that was kept, is thinned: the receiver has a newer one.
A row without a time is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.reduction.constant_averages import AVERAGE, Averager
from headgate.reduction.rows import Bools, codes

EVERY: Final = "every"
AT_MOST: Final = "at_most"
_KEYS: Final = 1 << 20
_NEVER: Final = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Thinning:
    """What a subscription asks for: one row of each key in `every_s` seconds, `at_most` rows a second in all.

    With `average_s` it asks for one row of each key and so much time, with the means of its rows.
    """

    every_s: float | None = None
    at_most: float | None = None
    key: tuple[str, ...] = ()
    event_time: str | None = None
    average_s: float | None = None


@dataclass(slots=True)
class Thinner:
    """The state of one subscription's thinning: by key the last interval with a row, and the running second's rows."""

    thinning: Thinning
    _last: dict[Any, int] = field(default_factory=dict)
    _second: int = _NEVER
    _count: int = 0
    _averager: Averager | None = None

    def reduce(
        self, rows: pa.RecordBatch, commit_s: npt.NDArray[np.float64]
    ) -> tuple[Bools, pa.RecordBatch | None, dict[str, int]]:
        """Which rows stay, those rows where they are no longer what they were, and how many go by each rule."""
        average_s = self.thinning.average_s
        if average_s is None:
            mask, gone = self.keep(rows, commit_s)
            return mask, None, gone
        if self._averager is None:
            self._averager = Averager(average_s, self.thinning.key, self.thinning.event_time)
        mask, means = self._averager.keep(rows, *self._times(rows, commit_s))
        count = int((~mask).sum())
        return mask, means, {AVERAGE: count} if count else {}

    def keep(self, rows: pa.RecordBatch, commit_s: npt.NDArray[np.float64]) -> tuple[Bools, dict[str, int]]:
        """Which rows stay, and how many go by each rule. `commit_s` is when each row was committed.

        >>> thinner = Thinner(Thinning(every_s=10.0))
        >>> rows = pa.RecordBatch.from_pydict({"v": [1, 2, 3]})
        >>> mask, gone = thinner.keep(rows, np.array([5.0, 9.0, 10.0]))
        >>> mask.tolist(), gone
        ([True, False, True], {'every': 1})
        """
        times, known = self._times(rows, commit_s)
        mask: Bools = np.ones(rows.num_rows, np.bool_)
        gone: dict[str, int] = {}
        if not rows.num_rows:  # a block may be coverage alone
            return mask, gone
        if self.thinning.every_s is not None:
            mask &= self._first_of_interval(rows, times, known, self.thinning.every_s)
            gone[EVERY] = int((~mask).sum())
        if self.thinning.at_most is not None:
            before = int(mask.sum())
            mask &= self._within_rate(times, known & mask, self.thinning.at_most) | ~known
            gone[AT_MOST] = before - int(mask.sum())
        return mask, {reason: count for reason, count in gone.items() if count}

    def _times(self, rows: pa.RecordBatch, commit_s: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], Bools]:
        if self.thinning.event_time is None:
            return commit_s, np.ones(rows.num_rows, np.bool_)
        column = rows.column(self.thinning.event_time)
        known = column.is_valid().to_numpy(zero_copy_only=False)
        micros = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).fill_null(0)
        return micros.to_numpy(zero_copy_only=False) / 1e6, known

    def _first_of_interval(
        self, rows: pa.RecordBatch, times: npt.NDArray[np.float64], known: Bools, every_s: float
    ) -> Bools:
        """Rows whose interval is later than that of every row of their key before them."""
        count = rows.num_rows
        intervals = np.floor(times / every_s).astype(np.int64)
        groups, number = codes([rows.column(name) for name in self.thinning.key], count)
        firsts = np.full(number, count, np.int64)
        np.minimum.at(firsts, groups, np.arange(count))
        key_columns = [rows.column(name).take(pa.array(firsts)).to_pylist() for name in self.thinning.key]
        keys = list(zip(*key_columns, strict=True)) if key_columns else [()] * number
        latest = np.array([self._last.get(key, _NEVER) for key in keys], np.int64)
        kept = ~known
        for place in np.flatnonzero(known).tolist():
            group = groups[place]
            if intervals[place] > latest[group]:
                kept[place], latest[group] = True, intervals[place]
        self._last.update(zip(keys, latest.tolist(), strict=True))
        if len(self._last) > _KEYS:
            newest = sorted(self._last.items(), key=lambda each: each[1])[len(self._last) // 2 :]
            self._last = dict(newest)
        return kept

    def _within_rate(self, times: npt.NDArray[np.float64], candidates: Bools, at_most: float) -> Bools:
        """The first rows of each second; below one a second, one row in as much time as a row takes."""
        length_s, most = (1.0, int(at_most)) if at_most >= 1 else (1.0 / at_most, 1)
        seconds = np.floor(times / length_s).astype(np.int64)
        kept = np.zeros(len(times), np.bool_)
        for place in np.flatnonzero(candidates).tolist():
            if seconds[place] > self._second:
                self._second, self._count = int(seconds[place]), 0
            if seconds[place] == self._second and self._count < most:
                self._count += 1
                kept[place] = True
        return kept
