"""LATEST: keeps the last N rows (per key) and drops everything older."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa

from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, codes, column, place_in_group


@dataclass(frozen=True, slots=True)
class Latest(ReductionFilter):
    """Keeps the last `n` rows of each key."""

    n: int
    key: tuple[str, ...]
    name: ClassVar[str] = "latest"
    main: ClassVar[str | None] = "n"
    about: ClassVar[str] = "keep only the last n rows"
    newest_first: ClassVar[bool] = True

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """How many (`n`; the paper's word is `window`) and a key."""
        name = "window" if reader.has("window") else "n"
        reader.has("attribute")
        return cls(reader.integer(name), reader.key())

    def keep(self, rows: pa.RecordBatch, state: Any, moment: Moment) -> tuple[Bools, Any]:
        """Keep the tail."""
        del moment
        found, groups = codes([column(rows, name) for name in self.key], rows.num_rows)
        mask: Bools = (place_in_group(found[::-1], groups) < self.n)[::-1]
        return mask, state
