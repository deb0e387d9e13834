"""What a subscription takes of a gridded stream, as a set of DZ cells: size, covering and merging for the planner.

A half-resolution stream of a region contains the quarter-resolution one, so one link can carry both. Shapes say so:
`covers` is safe (what surely lies inside against what may be touched), `fraction` is the share of the stream, and the
size of a merge counts what two shapes have in common once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from headgate.grid.axis import Axis
from headgate.grid.decompose import decompose_batch
from headgate.grid.dzset import DzSet
from headgate.grid.errors import GridError
from headgate.grid.layout import GridLayout, layout_of
from headgate.grid.permutation import Interval
from headgate.grid.predicate import grid_predicate
from headgate.grid.region import Bools, Region
from headgate.grid.resolution import Resolution
from headgate.grid.space import DzSpace
from headgate.model import Stream, Subscription

_DEPTH = 6


def shape_space(layout: GridLayout) -> DzSpace:
    """The space of a layout's shapes: up to 64 cells along each of x, y, spatial and temporal resolution.

    The digits of x and y come first: a region's edge is then cut once, not once for every step of the resolutions.
    """
    fine = [min(_DEPTH, max(0, (axis.size - 1).bit_length())) for axis in (layout.x, layout.y)]
    time = min(_DEPTH, layout.time.bits) if layout.time else 0
    depths = {"x": fine[0], "y": fine[1], "space": min(_DEPTH, layout.space_bits), "time": time}
    return DzSpace.round_robin(depths, first=("x", "y"))


@dataclass(frozen=True)
class GridShape:
    """A region and a resolution with the cells that surely lie inside and those that may have something of it."""

    inner: DzSet
    outer: DzSet
    resolution: Resolution
    region: Region | None

    @property
    def fraction(self) -> float:
        """Share of the stream's rows, if they are spread evenly; region edges count half."""
        return (self.inner.cells + self.outer.cells) / 2 / self.outer.space.cells

    def covers(self, other: GridShape) -> bool:
        """Whether every row of the other shape is surely in this one."""
        if self.resolution.contains(other.resolution) and (self.region is None or self.region == other.region):
            return True
        return other.outer <= self.inner


@dataclass(frozen=True)
class ShapeFactory:
    """Makes the shapes of one stream."""

    layout: GridLayout

    @cached_property
    def space(self) -> DzSpace:
        """The space that all shapes of the stream share."""
        return shape_space(self.layout)

    def shape(
        self, region: Region | None, resolution: Resolution, context: Mapping[str, Any] | None = None
    ) -> GridShape:
        """The shape of a region and a resolution; a circle is where the context puts it."""
        columns, rows = self.space.shape[0], self.space.shape[1]
        if region is None:
            inside = touched = np.ones((rows, columns), dtype=bool)
        else:
            left, right = _edges(self.layout.x, columns)
            bottom, top = _edges(self.layout.y, rows)
            flat = (np.tile(left, rows), np.tile(right, rows), np.repeat(bottom, columns), np.repeat(top, columns))
            found = region.within(flat, context or {})
            inside, touched = (mask.reshape(rows, columns) for mask in found)
        return GridShape(
            self._cells(inside, resolution, outward=False),
            self._cells(touched, resolution, outward=True),
            resolution,
            region,
        )

    def _cells(self, mask: Bools, resolution: Resolution, *, outward: bool) -> DzSet:
        spans = [
            _round(interval, self.space.shape[d], outward)
            for d, interval in ((2, resolution.space), (3, resolution.time))
        ]
        rows, starts, ends = _runs(mask)
        low = np.stack([starts, rows, np.full_like(rows, spans[0][0]), np.full_like(rows, spans[1][0])], axis=1)
        high = np.stack([ends, rows + 1, np.full_like(rows, spans[0][1]), np.full_like(rows, spans[1][1])], axis=1)
        _, codes, lengths = decompose_batch(self.space, low, high)
        return DzSet.from_expressions(self.space, codes, lengths)


def grid_shape(subscription: Subscription, stream: Stream) -> GridShape:
    """The shape of a subscription; the whole stream when it asks for no region and no resolution."""
    layout = layout_of(stream)
    if layout is None:
        raise GridError(f"stream {stream.name!r} has no grid", hint="give the stream a `grid:`")
    predicate = grid_predicate(subscription, stream, layout=layout)
    if predicate is None:
        return ShapeFactory(layout).shape(None, Resolution())
    return ShapeFactory(layout).shape(predicate.region, predicate.resolution, subscription.context)


def _edges(axis: Axis, count: int) -> tuple[np.ndarray, np.ndarray]:
    sides = np.linspace(axis.low, axis.high, count + 1)
    return sides[:-1], sides[1:]


def _round(interval: Interval, cells: int, outward: bool) -> tuple[int, int]:
    low, high = interval.low * cells, interval.high * cells
    return (math.floor(low), math.ceil(high)) if outward else (math.ceil(low), max(math.ceil(low), math.floor(high)))


def _runs(mask: Bools) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, starts and ends of the runs of true cells."""
    padded = np.zeros((mask.shape[0], mask.shape[1] + 2), dtype=np.int8)
    padded[:, 1:-1] = mask
    change = np.diff(padded, axis=1)
    rows, starts = np.nonzero(change == 1)
    _, ends = np.nonzero(change == -1)
    return rows.astype(np.int64), starts.astype(np.int64), ends.astype(np.int64)
