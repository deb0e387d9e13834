"""What TIME-RANGE and BOX share: the smallest and largest of one or two numbers per row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.reduction.digesters.base import Digester, Parts, from_json, to_json
from headgate.reduction.rows import Floats, Ints, column, numbers


@dataclass(frozen=True, slots=True)
class Ranges(Digester):
    """Lows and highs of every column, over the rows in which all of them have a value."""

    def values(self, rows: pa.RecordBatch) -> list[Floats]:
        """The numbers of each column."""
        return [numbers(column(rows, path)) for path in self.columns]

    def lift(self, rows: pa.RecordBatch) -> Parts:
        """Each row is its own range."""
        found = self.values(rows)
        absent = np.logical_or.reduce([np.isnan(values) for values in found])
        lows = [np.where(absent, np.inf, values) for values in found]
        highs = [np.where(absent, -np.inf, values) for values in found]
        return ((~absent).astype(np.int64), *lows, *highs)

    def empty(self, count: int) -> Parts:
        """Ranges that hold nothing."""
        lows = [np.full(count, np.inf) for _ in self.columns]
        return (np.zeros(count, dtype=np.int64), *lows, *(-low for low in lows))

    def fold(self, parts: Parts, starts: Ints) -> Parts:
        """The range around ranges."""
        size = len(self.columns)
        lows = [np.minimum.reduceat(low, starts) for low in parts[1 : 1 + size]]
        highs = [np.maximum.reduceat(high, starts) for high in parts[1 + size :]]
        return (np.add.reduceat(parts[0], starts), *lows, *highs)

    def encode(self, parts: Parts, index: int) -> Any:
        """Count, lows, highs."""
        count = int(parts[0][index])
        return [count, *(to_json(float(part[index])) for part in parts[1:])] if count else [0]

    def decode(self, value: Any) -> Parts:
        """The entry."""
        if not value[0]:
            return self.empty(1)
        numbers_ = [np.array([from_json(item)], dtype=np.float64) for item in value[1:]]
        return (np.array([value[0]], dtype=np.int64), *numbers_)

    def show(self, value: Any) -> Any:
        """Lows and highs as two lists, None if no row had values."""
        size = len(self.columns)
        ends = [from_json(item) for item in value[1:]]
        return [ends[:size], ends[size:]] if value[0] else None
