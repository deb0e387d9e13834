"""The space in which a gridded stream is served: which cell a row lies in, and which cells a query asks for.

Cells have up to 32 steps along x, y and both resolutions. Every site and every reader computes them from the stream's
`grid:` alone, so that an expression means the same rows everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.grid.axis import Axis
from headgate.grid.decompose import bounded_batch, decompose_batch
from headgate.grid.errors import GridError
from headgate.grid.layout import GridLayout
from headgate.grid.permutation import Interval
from headgate.grid.region import Region
from headgate.grid.resolution import Resolution
from headgate.grid.serving.messages import Demand, Parts
from headgate.grid.serving.tiling import Tile
from headgate.grid.space import DzSpace, Ints

_DEPTH = 5
_MOST_PARTS = 64


@dataclass(frozen=True)
class ServedGrid:
    """The cells of one stream's grid."""

    layout: GridLayout

    @cached_property
    def space(self) -> DzSpace:
        """X, y, spatial and temporal resolution in turn."""
        layout = self.layout
        x, y = (min(_DEPTH, axis.size.bit_length() - 1) for axis in (layout.x, layout.y))
        time = min(_DEPTH, layout.time.bits) if layout.time else 0
        return DzSpace.round_robin({"x": x, "y": y, "space": min(_DEPTH, layout.space_bits), "time": time})

    @property
    def whole(self) -> Tile:
        """All columns and rows."""
        return Tile(0, 0, self.space.shape[0], self.space.shape[1])

    def codes(self, batch: pa.RecordBatch) -> Ints:
        """The cell of each row as a z-code, -1 for one without a place or a time."""
        layout, space = self.layout, self.space
        x, y = layout.cells(batch)
        ranks, known = layout.space_ranks(batch)
        known = known & (x >= 0) & (y >= 0)
        cells = np.zeros((batch.num_rows, 4), dtype=np.int64)
        cells[:, 0] = x * space.shape[0] // layout.x.size
        cells[:, 1] = y * space.shape[1] // layout.y.size
        cells[:, 2] = ranks >> (layout.space_bits - space.depths[2])
        if layout.time is not None:
            steps, timed = layout.time_ranks(batch)
            cells[:, 3] = steps >> (layout.time.bits - space.depths[3])
            known = known & timed
        return np.where(known, space.encode(np.where(known[:, None], cells, 0)), -1)

    def query(
        self,
        identity: int,
        region: Region | None = None,
        resolution: Resolution | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> Parts:
        """The parts of a query: the box of cells around its region, at its resolution.

        What the box has beside the region is given too: whoever asks leaves out what was not asked for.
        """
        low, high = self.box(region, resolution or Resolution(), context)
        return self.parts(Demand(identity, low, high))

    def parts(self, demand: Demand) -> Parts:
        """A box of cells, cut into expressions."""
        low, high = demand.low, demand.high
        _, codes, lengths = decompose_batch(self.space, [low], [high])
        if len(codes) > _MOST_PARTS:
            _, codes, lengths = bounded_batch(self.space, [low], [high], _MOST_PARTS)
        return Parts(demand, codes, lengths)

    def box(
        self, region: Region | None, resolution: Resolution, context: Mapping[str, Any] | None = None
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Lower and upper corner, in cells, of all that a query may have rows in."""
        shape = self.space.shape
        columns, rows = (0, shape[0]), (0, shape[1])
        if region is not None:
            sides = [np.linspace(axis.low, axis.high, axis.size + 1) for axis in (self.layout.x, self.layout.y)]
            (left, right), (bottom, top) = ((each[:-1], each[1:]) for each in sides)
            flat = (
                np.tile(left, len(top)),
                np.tile(right, len(top)),
                np.repeat(bottom, len(left)),
                np.repeat(top, len(left)),
            )
            touched = region.within(flat, context or {})[1].reshape(len(top), len(left))
            across, up = np.flatnonzero(touched.any(axis=0)), np.flatnonzero(touched.any(axis=1))
            if not len(across):
                raise GridError("the region has no point of the grid", hint="give a region inside of the grid's bounds")
            columns = _columns(across, self.layout.x.size, shape[0])
            rows = _columns(up, self.layout.y.size, shape[1])
        space, time = (_steps(each, shape[d]) for each, d in ((resolution.space, 2), (resolution.time, 3)))
        spans = (columns, rows, space, time)
        return tuple(low for low, _ in spans), tuple(high for _, high in spans)

    def region(self, tile: Tile) -> dict[str, Any]:
        """The `region:` document of a tile."""
        x = _side(self.layout.x, self.space.shape[0], tile.left, tile.right)
        y = _side(self.layout.y, self.space.shape[1], tile.bottom, tile.top)
        return {"box": {"x": x, "y": y}}

    def tile(self, region: Mapping[str, Any] | None, where: str | None = None) -> Tile:
        """The tile of a `region:` document; one that is no box along the cells' sides is refused."""
        if region is None:
            return self.whole
        box = region.get("box")
        if set(region) != {"box"} or not isinstance(box, Mapping):
            raise GridError("a part that is served is a box", where=where, hint="write region: {box: {x: [a, b]}}")
        sides = []
        for name, axis, count in (("x", self.layout.x, self.space.shape[0]), ("y", self.layout.y, self.space.shape[1])):
            low, high = box.get(name, (axis.low, axis.high))
            ends = [round((float(end) - axis.low) / axis.step) * count / axis.size for end in (low, high)]
            first, past = (math.floor(end + 1e-9) for end in ends)
            near = _side(axis, count, first, past)
            if not 0 <= first < past <= count or abs(near[0] - low) + abs(near[1] - high) > 1e-6 * axis.extent:
                fits = f"{near[0]:g} and {near[1]:g}"
                raise GridError(
                    f"[{low}, {high}] does not run along sides of the {count} cells of {name}",
                    where=where,
                    hint=f"the nearest sides are {fits}",
                )
            sides.append((first, past))
        (left, right), (bottom, top) = sides
        return Tile(left, bottom, right, top)


def _columns(cells: Ints, size: int, count: int) -> tuple[int, int]:
    return int(cells[0]) * count // size, int(cells[-1]) * count // size + 1


def _steps(interval: Interval, count: int) -> tuple[int, int]:
    return math.floor(interval.low * count), math.ceil(interval.high * count)


def _side(axis: Axis, count: int, first: int, past: int) -> list[float]:
    """The bounds of some columns: those of the first point in them and of the first behind them."""
    ends = (-(-edge * axis.size // count) for edge in (first, past))
    return [axis.low + end * axis.step if end < axis.size else axis.high for end in ends]
