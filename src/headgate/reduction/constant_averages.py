"""Averages that hold always: one row of each key and window, with the means of the window's rows.

A window is closed by the first row of its key that lies in a later one. That row is delivered with the means of the
closed window in place of its own values, which count in the window that it begins; all other rows are given up, and
declared. So every row that matched is delivered or reduced, once. A row of a window that was closed is given up without
being counted in any. Windows up to that of the first row that came are not delivered, as they may have begun before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.reduction.rows import Bools, codes

AVERAGE: Final = "average"
_KEYS: Final = 1 << 20


@dataclass(slots=True)
class _Window:
    """The rows of one key in one window so far: by column their sum and count, and the last row of the others."""

    number: int
    sums: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64]
    last: list[Any]


@dataclass(slots=True)
class Averager:
    """The windows of one subscription that are open, by key."""

    window_s: float
    key: tuple[str, ...] = ()
    event_time: str | None = None
    _open: dict[Any, _Window] = field(default_factory=dict)
    _first: int | None = None

    def keep(
        self, rows: pa.RecordBatch, times_s: npt.NDArray[np.float64], known: Bools
    ) -> tuple[Bools, pa.RecordBatch]:
        """Which rows stay, and those rows with the means of the windows that they close. Rows without a time stay.

        >>> averager = Averager(10.0)
        >>> rows = pa.RecordBatch.from_pydict({"v": [9.0, 1.0, 3.0, 5.0]})
        >>> mask, means = averager.keep(rows, np.array([5.0, 11.0, 12.0, 25.0]), np.ones(4, bool))
        >>> mask.tolist(), means.to_pydict()
        ([False, False, False, True], {'v': [2.0]})
        """
        mask: Bools = ~known
        if not known.any():
            return mask, rows.filter(pa.array(mask))
        averaged, other = self._columns(rows.schema)
        numbers = np.floor(times_s / self.window_s).astype(np.int64)
        if self._first is None:
            self._first = int(numbers[np.argmax(known)])
        keys, groups = self._keys(rows)
        found = [self._open.get(key) for key in keys]
        windows = [each for each in found if each is not None]
        slot = np.full(len(keys), -1, np.int64)  # the open window of each key
        slot[[place for place, each in enumerate(found) if each is not None]] = np.arange(len(windows))
        mine = np.full(rows.num_rows, -1, np.int64)  # the window that a row counts in
        closed: dict[int, int] = {}  # by row, the window that it closes
        for place in np.flatnonzero(known).tolist():
            group, number = groups[place], int(numbers[place])
            at = int(slot[group])
            if at < 0 or number > windows[at].number:
                if at >= 0 and windows[at].number > self._first:
                    mask[place], closed[place] = True, at
                slot[group] = at = len(windows)
                zeros = np.zeros(len(averaged))
                windows.append(_Window(number, zeros, zeros.astype(np.int64), [None] * len(other)))
            if number == windows[at].number:
                mine[place] = at
        self._add(rows, averaged, other, windows, mine)
        for key, at in zip(keys, slot.tolist(), strict=True):
            if at >= 0:
                self._open.pop(key, None)
                self._open[key] = windows[at]  # the keys that were seen last stand last
        while len(self._open) > _KEYS:
            gone = self._open.pop(next(iter(self._open)))
            self._first = max(self._first, gone.number)  # what comes for it now would be a part of the window
        kept = np.flatnonzero(mask)
        return mask, self._means(rows.take(pa.array(kept)), [closed.get(place) for place in kept.tolist()], windows)

    def _columns(self, schema: pa.Schema) -> tuple[list[str], list[str]]:
        """The columns that are averaged, and the others; the key is as it is in any of a window's rows."""
        apart = {*self.key, self.event_time}
        averaged = [
            each.name
            for each in schema
            if each.name not in apart and (pa.types.is_floating(each.type) or pa.types.is_integer(each.type))
        ]
        return averaged, [name for name in schema.names if name not in averaged and name not in apart]

    def _keys(self, rows: pa.RecordBatch) -> tuple[list[Any], npt.NDArray[np.int64]]:
        groups, number = codes([rows.column(name) for name in self.key], rows.num_rows)
        firsts = np.full(number, rows.num_rows, np.int64)
        np.minimum.at(firsts, groups, np.arange(rows.num_rows))
        columns = [rows.column(name).take(pa.array(firsts)).to_pylist() for name in self.key]
        return (list(zip(*columns, strict=True)) if columns else [()] * number), groups

    def _add(
        self,
        rows: pa.RecordBatch,
        averaged: list[str],
        other: list[str],
        windows: list[_Window],
        mine: npt.NDArray[np.int64],
    ) -> None:
        """Count the rows in their windows."""
        counted = np.flatnonzero(mine >= 0)
        for index, name in enumerate(averaged):
            column = rows.column(name)
            valid = counted[column.is_valid().to_numpy(zero_copy_only=False)[counted]]
            values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)[valid]
            sums = np.bincount(mine[valid], values, len(windows))
            counts = np.bincount(mine[valid], minlength=len(windows))
            for window, added, count in zip(windows, sums.tolist(), counts.tolist(), strict=True):
                if count:
                    window.sums[index] += added
                    window.counts[index] += count
        last = np.full(len(windows), -1, np.int64)
        last[mine[counted]] = counted  # of several the last one stays
        touched = np.flatnonzero(last >= 0)
        for index, name in enumerate(other):
            values = rows.column(name).take(pa.array(last[touched])).to_pylist()
            for at, value in zip(touched.tolist(), values, strict=True):
                windows[at].last[index] = value

    def _means(self, kept: pa.RecordBatch, closed: list[int | None], windows: list[_Window]) -> pa.RecordBatch:
        """Rows with the means of the windows that they close in place of their values."""
        averaged, other = self._columns(kept.schema)
        columns = []
        for schema_field, column in zip(kept.schema, kept.columns, strict=True):
            name, values = schema_field.name, column.to_pylist()
            for place, at in enumerate(closed):
                if at is not None:
                    values[place] = self._value(windows[at], name, averaged, other, values[place])
            kind = schema_field.type
            if pa.types.is_integer(kind):
                values = [None if each is None else round(each) for each in values]
            if name == self.event_time:
                columns.append(self._starts(column, closed, windows))
            else:
                columns.append(pa.array(values, kind))
        return pa.RecordBatch.from_arrays(columns, schema=kept.schema)

    def _value(self, window: _Window, name: str, averaged: list[str], other: list[str], own: Any) -> Any:
        if name in averaged:
            index = averaged.index(name)
            return float(window.sums[index] / window.counts[index]) if window.counts[index] else None
        return window.last[other.index(name)] if name in other else own

    def _starts(self, column: pa.Array, closed: list[int | None], windows: list[_Window]) -> pa.Array:
        """The event times of rows: of those that close a window, its start."""
        micros = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
        starts = [
            own if at is None else round(windows[at].number * self.window_s * 1e6)
            for own, at in zip(micros, closed, strict=True)
        ]
        return pa.array(starts, pa.int64()).cast(pa.timestamp("us", tz="UTC")).cast(column.type)
