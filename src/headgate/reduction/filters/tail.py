"""TAIL: drops the newest rows, as many as have to go: what a queue does that refuses arrivals when it is full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools


@dataclass(frozen=True, slots=True)
class Tail(ReductionFilter):
    """Drop-tail as a level: the peer that every policy is compared with, digested like all others."""

    name: ClassVar[str] = "tail"
    about: ClassVar[str] = "drop the newest rows, as many as have to go"

    @property
    def as_needed(self) -> bool:
        """Always."""
        return True

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """It has no parameters; a policy's default attribute does not matter to it."""
        reader.has("attribute")
        return cls()

    def keep(self, rows: pa.RecordBatch, state: Any, moment: Moment) -> tuple[Bools, Any]:
        """Keep from the front."""
        count = int(np.ceil(moment.need_rows - 1e-9))
        if moment.need_bytes > 0:
            count = max(count, int(np.searchsorted(np.cumsum(moment.sizes[::-1]), moment.need_bytes - 1e-6)) + 1)
        mask: Bools = np.arange(rows.num_rows) < rows.num_rows - count
        return mask, state
