"""EVERY: keeps the first of each N rows (per key)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa

from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.filters.keyed import LastPerKey, group, remember
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, place_in_group


@dataclass(frozen=True, slots=True)
class Every(ReductionFilter):
    """Keeps rows 1, N+1, 2N+1, ... of each key.

    Batch after batch the count goes on. In a queue each pack counts from the row at the front, so that what the
    receiver gets next is never skipped.
    """

    n: int
    key: tuple[str, ...]
    name: ClassVar[str] = "every"
    main: ClassVar[str | None] = "n"
    about: ClassVar[str] = "keep the first of each n rows"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """N and a key."""
        reader.has("attribute")
        return cls(reader.integer("n"), reader.key())

    def keep(self, rows: pa.RecordBatch, state: LastPerKey | None, moment: Moment) -> tuple[Bools, LastPerKey]:
        """Keep by position inside the group; the state is how many rows of each group were seen, modulo N."""
        del moment
        blank = pa.array(np.zeros(rows.num_rows, dtype=np.int64))
        grouped = group(rows, self.key, blank, state)
        fresh = grouped.codes[grouped.remembered :]
        seen = np.zeros(grouped.groups, dtype=np.int64)
        old = np.asarray(grouped.values.to_numpy(zero_copy_only=False), dtype=np.int64)[: grouped.remembered]
        seen[grouped.codes[: grouped.remembered]] = old
        position = place_in_group(fresh, grouped.groups) + seen[fresh]
        mask: Bools = position % self.n == 0
        return mask, remember(rows, self.key, pa.array((position + 1) % self.n), state)
