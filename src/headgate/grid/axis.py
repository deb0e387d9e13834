"""An axis of a grid: which point of it a value belongs to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headgate.grid.errors import GridError, at, check_keys
from headgate.grid.space import Ints

Floats = npt.NDArray[np.float64]

MAX_SIZE = 1 << 24


@dataclass(frozen=True, slots=True)
class Axis:
    """`size` points between two bounds, each at the centre of its cell, read from a column.

    An axis without given bounds holds point numbers themselves (bounds -0.5 and size - 0.5). On an axis that wraps,
    such as longitude, values are taken modulo the distance of the bounds.

    >>> lon = Axis("lon", 360, -180.0, 180.0, wrap=True)
    >>> lon.cells(np.array([-180.0, 179.9, 180.0, 540.5])).tolist()
    [0, 359, 0, 0]
    >>> Axis("i", 8, -0.5, 7.5).cells(np.array([0.0, 7.0, 8.0, np.nan])).tolist()
    [0, 7, -1, -1]
    """

    column: str
    size: int
    low: float
    high: float
    wrap: bool = False

    @property
    def extent(self) -> float:
        """Distance of the bounds."""
        return self.high - self.low

    @property
    def step(self) -> float:
        """Width of a cell."""
        return self.extent / self.size

    def wrapped(self, values: Floats) -> Floats:
        """Values brought between the bounds where the axis wraps."""
        if not self.wrap:
            return values
        return np.asarray(self.low + np.mod(values - self.low, self.extent))

    def cells(self, values: Floats) -> Ints:
        """Number of the cell of each value, -1 for what lies outside or is not a number."""
        inside = np.isfinite(values)
        safe = self.wrapped(np.where(inside, values, self.low))
        inside &= (safe >= self.low) & (safe <= self.high)
        found = np.floor((np.where(inside, safe, self.low) - self.low) / self.step).astype(np.int64)
        return np.where(inside, np.minimum(found, self.size - 1), -1)

    def centres(self, cells: npt.ArrayLike) -> Floats:
        """Value at the centre of each cell."""
        return np.asarray(self.low + (np.asarray(cells, dtype=np.float64) + 0.5) * self.step)


def parse_number(value: Any, where: str | None) -> float:
    """A finite number of a document."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise GridError(f"{value!r} is not a finite number", where=where, hint="write a number such as 12.5")
    return float(value)


def parse_count(value: Any, most: int, where: str | None, what: str) -> int:
    """A whole number from 1 to a limit."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise GridError(f"{value!r} is not a {what}", where=where, hint=f"write a whole number from 1 to {most}")
    return value


def parse_axis(document: Any, where: str | None) -> Axis:
    """An axis from ``{column, size, bounds, wrap}``; without bounds the column holds point numbers from 0."""
    found = check_keys(document, ("column", "size", "bounds", "wrap"), where, "{column: lon, size: 360}")
    column = found.get("column")
    if not isinstance(column, str) or not column:
        raise GridError("an axis needs its column", where=where, hint="write column: NAME")
    size = parse_count(found.get("size"), MAX_SIZE, at(where, "size"), "number of points")
    wrap = found.get("wrap", False)
    if not isinstance(wrap, bool):
        raise GridError(f"{wrap!r} is neither true nor false", where=at(where, "wrap"))
    bounds = found.get("bounds")
    if bounds is None:
        return Axis(column, size, -0.5, size - 0.5, wrap)
    if not isinstance(bounds, (list, tuple)) or len(bounds) != 2:
        raise GridError(f"{bounds!r} are no bounds", where=at(where, "bounds"), hint="write [lowest, highest]")
    low, high = (parse_number(value, at(where, "bounds")) for value in bounds)
    if low >= high:
        raise GridError(f"the bounds [{low:g}, {high:g}] are reversed or empty", where=at(where, "bounds"))
    return Axis(column, size, low, high, wrap)
