"""UNIQ: drops a row whose attribute is the same as that of the row before it (per key)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.filters.keyed import LastPerKey, group, previous, remember
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, codes, column


@dataclass(frozen=True, slots=True)
class Uniq(ReductionFilter):
    """Removes adjacent duplicates. NULL is no duplicate of anything."""

    attribute: str
    key: tuple[str, ...]
    name: ClassVar[str] = "uniq"
    main: ClassVar[str | None] = "attribute"
    about: ClassVar[str] = "drop adjacent duplicates of the attribute"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Attribute and key."""
        return cls(reader.attribute("scalar"), reader.key())

    def keep(self, rows: pa.RecordBatch, state: LastPerKey | None, moment: Moment) -> tuple[Bools, LastPerKey]:
        """Keep rows that differ from the one before them in their group."""
        del moment
        values = column(rows, self.attribute)
        grouped = group(rows, self.key, values, state)
        same, _ = codes([grouped.values], len(grouped.values))
        before = previous(grouped)
        repeated = (before >= 0) & (same == same[before])
        valid = np.asarray(grouped.values.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
        mask: Bools = ~(repeated & valid)[grouped.remembered :]
        return mask, remember(rows, self.key, values, state, nulls=True)

    def delivered(self, rows: pa.RecordBatch, state: Any) -> LastPerKey:
        """The last value of each key that the receiver has."""
        return remember(rows, self.key, column(rows, self.attribute), state, nulls=True)
