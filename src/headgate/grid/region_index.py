"""Which of many boxes hold a point: DZ expressions of the boxes, level by level, looked up by the point's own code.

Each box is covered by a few expressions. A point lies in a box only if its z-code starts with one of them, so every
level is one array access; expressions that lie inside their box need no further check, the others are compared with the
exact bounds. Expressions of a box are disjoint, so no box is reported twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headgate.grid._jit import kernel
from headgate.grid.axis import Axis, Floats
from headgate.grid.decompose import bounded_batch
from headgate.grid.space import DzSpace, Ints

_PARTS = 12


@kernel
def _match(
    codes: Ints,
    x: Floats,
    y: Floats,
    digits: int,
    levels: Ints,
    level_at: Ints,
    starts: Ints,
    entries: Ints,
    bounds: Floats,
    offsets: Ints,
    out: Ints,
    fill: bool,
) -> None:
    """Boxes of each point; an entry is a box number, negated less one where the exact bounds must be compared."""
    for i in range(codes.shape[0]):
        count = 0
        at = offsets[i]
        if codes[i] >= 0:
            for k in range(levels.shape[0]):
                cell = level_at[k] + (codes[i] >> (digits - levels[k]))
                for j in range(starts[cell], starts[cell + 1]):
                    box = entries[j]
                    if box < 0:
                        box = -box - 1
                        if x[i] < bounds[box, 0] or x[i] >= bounds[box, 1]:
                            continue
                        if y[i] < bounds[box, 2] or y[i] >= bounds[box, 3]:
                            continue
                    if fill:
                        out[at + count] = box
                    count += 1
        if not fill:
            offsets[i + 1] = at + count


@dataclass(frozen=True)
class RegionIndex:
    """Boxes ``x0 <= x < x1 and y0 <= y < y1`` by the points in them.

    >>> index = RegionIndex.build([[0.0, 0.5, 0.0, 0.5], [0.25, 1.0, 0.0, 1.0]], (0.0, 1.0), (0.0, 1.0))
    >>> offsets, boxes = index.match(np.array([0.1, 0.3, 0.9]), np.array([0.1, 0.3, 1.0]))
    >>> offsets.tolist(), boxes.tolist()
    ([0, 1, 3, 3], [0, 0, 1])
    """

    space: DzSpace
    x_axis: Axis
    y_axis: Axis
    bounds: Floats
    levels: Ints
    level_at: Ints
    starts: Ints
    entries: Ints

    @classmethod
    def build(
        cls, boxes: npt.ArrayLike, x: tuple[float, float], y: tuple[float, float], *, depth: int = 9
    ) -> RegionIndex:
        """The index of boxes, one row (x0, x1, y0, y1) each, inside the given extent of the field."""
        bounds = np.ascontiguousarray(np.asarray(boxes, dtype=np.float64).reshape(-1, 4))
        space = DzSpace.round_robin({"x": depth, "y": depth})
        axes = [Axis(name, 1 << depth, *extent) for name, extent in (("x", x), ("y", y))]
        low = np.empty((len(bounds), 2), dtype=np.int64)
        high = np.empty_like(low)
        for d, axis in enumerate(axes):
            sides = (bounds[:, 2 * d : 2 * d + 2] - axis.low) / axis.step
            low[:, d] = np.clip(np.floor(sides[:, 0]), 0, axis.size)
            high[:, d] = np.clip(np.ceil(sides[:, 1]), 0, axis.size)
        offsets, codes, lengths = bounded_batch(space, low, high, _PARTS)
        owner = np.repeat(np.arange(len(bounds)), np.diff(offsets))
        size = np.int64(1) << (space.digits - lengths)
        first, last = space.decode(codes), space.decode(codes + size - 1) + 1
        inside = np.ones(len(codes), dtype=bool)
        for d, axis in enumerate(axes):
            inside &= axis.low + first[:, d] * axis.step >= bounds[owner, 2 * d]
            inside &= axis.low + last[:, d] * axis.step <= bounds[owner, 2 * d + 1]
            # The upper bound of the field belongs to the last cell, but not to a box that ends there.
            inside &= (last[:, d] < axis.size) | (bounds[owner, 2 * d + 1] > axis.high)
        levels = np.unique(lengths)
        level_at = np.concatenate([[0], np.cumsum(1 << levels)])
        cells = level_at[np.searchsorted(levels, lengths)] + (codes >> (space.digits - lengths))
        order = np.argsort(cells, kind="stable")
        starts = np.searchsorted(cells[order], np.arange(level_at[-1] + 1)).astype(np.int64)
        entries = np.where(inside, owner, -owner - 1)[order]
        return cls(space, axes[0], axes[1], bounds, levels, level_at[:-1], starts, entries)

    def match(self, x: Floats, y: Floats) -> tuple[Ints, Ints]:
        """Offsets and numbers of the boxes of each point, in no particular order."""
        across, up = self.x_axis.cells(x), self.y_axis.cells(y)
        known = (across >= 0) & (up >= 0)
        cells = np.stack([np.where(known, across, 0), np.where(known, up, 0)], axis=1)
        codes = np.where(known, self.space.encode(cells), -1)
        offsets = np.zeros(len(x) + 1, dtype=np.int64)
        tables = (self.levels, self.level_at, self.starts, self.entries, self.bounds)
        _match(codes, x, y, self.space.digits, *tables, offsets, np.empty(0, np.int64), False)
        out = np.empty(offsets[-1], dtype=np.int64)
        _match(codes, x, y, self.space.digits, *tables, offsets, out, True)
        return offsets, out
