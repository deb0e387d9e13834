"""THIN-SPACE: keeps the cells that come first in the grid's permuted order, so that what stays is an even coarser grid.

The order is that of the multi-resolution index: bits of x and y reversed, then interleaved. Keeping a quarter of a
block keeps every second cell in x and in y.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, column, numbers


@dataclass(frozen=True, slots=True)
class ThinSpace(ReductionFilter):
    """Keeps rows in cells whose rank is below `keep` of the block; rows without a position stay."""

    x: str
    y: str
    fraction: float
    cell: tuple[float, float]
    origin: tuple[float, float]
    bits: int
    name: ClassVar[str] = "thin_space"
    about: ClassVar[str] = "keep the cells that come first in the grid's permuted order"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Columns x and y, the fraction to keep, the cell's size and the origin (1 and 0: columns are cell numbers)."""
        reader.has("attribute")
        cell = reader.number("cell", 1.0, low=0.0, above=True)
        return cls(
            reader.column("x", kind="number"),
            reader.column("y", kind="number"),
            reader.number("keep", 0.25, low=0.0, high=1.0, above=True),
            (reader.number("cell_x", cell, low=0.0, above=True), reader.number("cell_y", cell, low=0.0, above=True)),
            (reader.number("origin_x", 0.0), reader.number("origin_y", 0.0)),
            reader.integer("bits", 8, high=30),
        )

    def keep(self, rows: pa.RecordBatch, state: Any, moment: Moment) -> tuple[Bools, Any]:
        """Keep the cells of the coarser grid."""
        del moment
        from headgate.grid.permutation import plane_rank

        cells = []
        known = np.ones(rows.num_rows, dtype=np.bool_)
        for path, size, origin in zip((self.x, self.y), self.cell, self.origin, strict=True):
            place = np.floor((numbers(column(rows, path)) - origin) / size)
            known &= np.isfinite(place)
            cells.append(np.where(np.isfinite(place), place, 0).astype(np.int64) & ((1 << self.bits) - 1))
        rank = plane_rank(cells[0], cells[1], self.bits)
        mask: Bools = (rank < max(1, round(self.fraction * (1 << (2 * self.bits))))) | ~known
        return mask, state
