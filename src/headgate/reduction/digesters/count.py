"""COUNT: how many of the dropped rows have a value; with no column, how many rows, which every digest has anyway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from headgate.reduction.digesters.base import Digester, Parts
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Ints, column


@dataclass(frozen=True, slots=True)
class Count(Digester):
    """Number of rows whose column is not NULL."""

    name: ClassVar[str] = "count"
    kind: ClassVar[str] = "any"
    about: ClassVar[str] = "number of dropped rows (with a column: those with a value)"

    @classmethod
    def read(cls, reader: Reader, value: Any) -> Self:
        """All rows, or those with a value in the column."""
        reader.has("attribute")
        return cls(() if value is None else (reader.checked_column(value, cls.name, cls.kind),))

    def lift(self, rows: pa.RecordBatch) -> Parts:
        """One for each row that has a value."""
        if not self.columns:
            return (np.ones(rows.num_rows, dtype=np.int64),)
        valid = column(rows, self.columns[0]).is_valid().to_numpy(zero_copy_only=False)
        return (np.asarray(valid, dtype=np.int64),)

    def empty(self, count: int) -> Parts:
        """Zero."""
        return (np.zeros(count, dtype=np.int64),)

    def fold(self, parts: Parts, starts: Ints) -> Parts:
        """Add."""
        return (np.add.reduceat(parts[0], starts),)

    def encode(self, parts: Parts, index: int) -> Any:
        """The number."""
        return int(parts[0][index])

    def decode(self, value: Any) -> Parts:
        """The number."""
        return (np.array([value], dtype=np.int64),)

    def show(self, value: Any) -> Any:
        """The number."""
        return value
