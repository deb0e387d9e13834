"""DELTA: drops a row whose attribute has changed less than a step since the last row that was kept (per key).

The paper compares with the previous input event, which erases a slow ramp altogether; compared with the last kept one,
the receiver is never more than one step away from the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from headgate.parts import installed
from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.filters.keyed import LastPerKey, group, remember
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, column, numbers


@cache
def _kernel() -> Any:
    """The scan that compares each row with the last kept one of its group; compiled on first use if numba is there."""

    def scan(codes, values, remembered, last, change):  # type: ignore[no-untyped-def] # compiled, typed by its arguments
        kept = np.ones(len(values), np.bool_)
        for row in range(len(values)):
            code = codes[row]
            value = values[row]
            if np.isnan(value):
                continue
            if row < remembered or np.isnan(last[code]) or abs(value - last[code]) >= change:
                last[code] = value
            else:
                kept[row] = False
        return kept

    if not installed("numba"):
        return scan
    from numba import njit

    return njit(cache=True)(scan)


@dataclass(frozen=True, slots=True)
class DeltaFilter(ReductionFilter):
    """Keeps a row when |attribute - last kept| >= change. The first row of a key and rows without a value stay."""

    attribute: str
    change: float
    key: tuple[str, ...]
    name: ClassVar[str] = "delta"
    main: ClassVar[str | None] = "change"
    about: ClassVar[str] = "drop rows whose attribute changed less than `change` since the last kept row"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Attribute, change and key."""
        return cls(reader.attribute("number"), reader.number("change", low=0.0, above=True), reader.key())

    def _values(self, rows: pa.RecordBatch) -> pa.Array:
        values = numbers(column(rows, self.attribute))
        return pa.array(values, mask=np.isnan(values))

    def keep(self, rows: pa.RecordBatch, state: LastPerKey | None, moment: Moment) -> tuple[Bools, LastPerKey]:
        """Keep rows that moved far enough."""
        del moment
        values = self._values(rows)
        grouped = group(rows, self.key, values, state)
        flat = np.ascontiguousarray(grouped.values.to_numpy(zero_copy_only=False))
        last = np.full(grouped.groups, np.nan)
        mask: Bools = _kernel()(grouped.codes, flat, grouped.remembered, last, self.change)[grouped.remembered :]
        kept = pa.array(mask)
        return mask, remember(rows.filter(kept), self.key, values.filter(kept), state)

    def delivered(self, rows: pa.RecordBatch, state: Any) -> LastPerKey:
        """The last value of each key that the receiver has."""
        return remember(rows, self.key, self._values(rows), state)
