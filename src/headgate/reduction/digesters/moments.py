"""What SUM, MEAN and STD share: count, mean and sum of squared deviations, merged without cancellation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.reduction.digesters.base import Digester, Parts, from_json, to_json
from headgate.reduction.rows import Ints, column, numbers


@dataclass(frozen=True, slots=True)
class Moments(Digester):
    """Count, sum and squared deviations from the mean; merging groups adds the deviation between their means.

    NULL and NaN are no values. Merging is associative and commutative up to the rounding of doubles.
    """

    def lift(self, rows: pa.RecordBatch) -> Parts:
        """Each row's value."""
        values = numbers(column(rows, self.columns[0]))
        absent = np.isnan(values)
        return (~absent).astype(np.int64), np.where(absent, 0.0, values), np.zeros(len(values))

    def empty(self, count: int) -> Parts:
        """No values."""
        return np.zeros(count, dtype=np.int64), np.zeros(count), np.zeros(count)

    def fold(self, parts: Parts, starts: Ints) -> Parts:
        """Add counts and sums; squared deviations grow by what lies between the means."""
        count, total, spread = parts
        counts = np.add.reduceat(count, starts)
        totals = np.add.reduceat(total, starts)
        run = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(count))))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(count > 0, total / np.maximum(count, 1), 0.0)
            means = totals / np.maximum(counts, 1)
            between = np.where(count > 0, count * (mean - means[run]) ** 2, 0.0)
        return counts, totals, np.add.reduceat(spread + between, starts)

    def encode(self, parts: Parts, index: int) -> Any:
        """Count, sum, squared deviations."""
        return [int(parts[0][index]), to_json(float(parts[1][index])), to_json(float(parts[2][index]))]

    def decode(self, value: Any) -> Parts:
        """The entry."""
        return (
            np.array([value[0]], dtype=np.int64),
            np.array([from_json(value[1])], dtype=np.float64),
            np.array([from_json(value[2])], dtype=np.float64),
        )
