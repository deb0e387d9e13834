"""LATEST: keeps the last N rows (per key) and drops everything older."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, Ints, codes, column


def rank_from_end(groups_of: Ints) -> Ints:
    """How many rows of the same group follow each row."""
    order = np.argsort(groups_of, kind="stable")
    ends = np.searchsorted(groups_of[order], groups_of[order], side="right")
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = ends - 1 - np.arange(len(order))
    return ranks


@dataclass(frozen=True, slots=True)
class Latest(ReductionFilter):
    """Keeps the last `n` rows of each key."""

    n: int
    key: tuple[str, ...]
    name: ClassVar[str] = "latest"
    main: ClassVar[str | None] = "n"
    about: ClassVar[str] = "keep only the last n rows"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """How many (`n`; the paper's word is `window`) and a key."""
        name = "window" if reader.has("window") else "n"
        reader.has("attribute")
        return cls(reader.integer(name), reader.key())

    def keep(self, rows: pa.RecordBatch, state: Any, moment: Moment) -> tuple[Bools, Any]:
        """Keep the tail."""
        del moment
        found, _ = codes([column(rows, name) for name in self.key], rows.num_rows)
        mask: Bools = rank_from_end(found) < self.n
        return mask, state
