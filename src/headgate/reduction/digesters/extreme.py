"""What MIN and MAX share: the number of values and the extreme one, exact for integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.reduction.digesters.base import Digester, Parts, from_json, to_json
from headgate.reduction.rows import Ints, column, numbers


@dataclass(frozen=True, slots=True)
class ExtremeValue(Digester):
    """Count and extreme value; `sign` is 1 for the minimum and -1 for the maximum. NULL and NaN are no values."""

    sign: ClassVar[int] = 1

    def lift(self, rows: pa.RecordBatch) -> Parts:
        """Each row's value."""
        values = column(rows, self.columns[0])
        if pa.types.is_integer(values.type):
            valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), dtype=np.int64)
            whole = np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False), dtype=np.int64)
            return valid, np.where(valid == 1, whole, self.sign * np.iinfo(np.int64).max)
        found = numbers(values)
        absent = np.isnan(found)
        return (~absent).astype(np.int64), np.where(absent, self.sign * np.inf, found)

    def empty(self, count: int) -> Parts:
        """No values."""
        return np.zeros(count, dtype=np.int64), np.full(count, self.sign * np.iinfo(np.int64).max)

    def fold(self, parts: Parts, starts: Ints) -> Parts:
        """The extreme of extremes."""
        better = np.minimum if self.sign == 1 else np.maximum
        count, value = parts
        if not np.issubdtype(value.dtype, np.integer):
            value = np.where(count == 0, self.sign * np.inf, value)
        return np.add.reduceat(count, starts), better.reduceat(value, starts)

    def encode(self, parts: Parts, index: int) -> Any:
        """Count, then the value if there is one."""
        count = int(parts[0][index])
        return [count, to_json(parts[1][index])] if count else [0]

    def decode(self, value: Any) -> Parts:
        """Integers stay integers."""
        if not value[0]:
            return self.empty(1)
        return np.array([value[0]], dtype=np.int64), np.array([from_json(value[1])])

    def show(self, value: Any) -> Any:
        """The extreme value, None if there was none."""
        return from_json(value[1]) if value[0] else None
