"""Region and resolution of a subscription as a predicate over rows, for any matcher.

A predicate has the shape of every row filter (`text`, `columns`, `parameters`, `evaluate`), so the match pass treats
it like one. Ranks of a batch are computed once per layout, whatever the number of predicates: share the layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.grid.bounds import Bounds, bounds_of
from headgate.grid.errors import GridError
from headgate.grid.layout import GridLayout, layout_of
from headgate.grid.region import Region, parse_region
from headgate.grid.resolution import Resolution, parse_resolution
from headgate.matching.index import RowFilter
from headgate.model import Stream, Subscription


@dataclass(frozen=True)
class GridPredicate:
    """Rows in a region and of a resolution. A row without a place, or a step where one is asked for, is in neither."""

    layout: GridLayout
    region: Region | None
    resolution: Resolution
    text: str

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it reads."""
        layout, names = self.layout, set()
        if self.region is not None or not (self.resolution.space.full or layout.stations):
            names |= {layout.x.column, layout.y.column}
        if not self.resolution.space.full and layout.stations:
            names.add(layout.stations.column)
        if not self.resolution.time.full and layout.time:
            names.add(layout.time.column)
        return frozenset(names)

    @property
    def parameters(self) -> frozenset[str]:
        """Names of the context that it is bound to."""
        return frozenset(self.region.parameters) if self.region is not None else frozenset()

    def evaluate(self, batch: pa.RecordBatch, context: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
        """For each row whether the subscriber asked for it."""
        keep = np.ones(batch.num_rows, dtype=bool)
        if not self.resolution.time.full and self.layout.time:
            ranks, known = self.layout.time_ranks(batch)
            keep &= known & self.resolution.time.selects(ranks, self.layout.time.bits)
        if not self.resolution.space.full:
            ranks, known = self.layout.space_ranks(batch)
            keep &= known & self.resolution.space.selects(ranks, self.layout.space_bits)
        if self.region is not None:
            left = np.flatnonzero(keep)
            x, y = self.layout.positions(batch)
            keep[left] = self.region.contains(x[left], y[left], context)
        return keep


@dataclass(frozen=True, slots=True)
class Both:
    """A filter and a grid predicate together: the rows that are in both."""

    where: RowFilter
    grid: GridPredicate

    @property
    def text(self) -> str:
        """Both texts."""
        return f"({self.where.text}) and {self.grid.text}"

    @property
    def columns(self) -> frozenset[str]:
        """The columns that either reads."""
        return frozenset(self.where.columns) | self.grid.columns

    @property
    def parameters(self) -> frozenset[str]:
        """Names of the context that either is bound to."""
        return frozenset(getattr(self.where, "parameters", ())) | self.grid.parameters

    def bounds(self, context: Mapping[str, Any]) -> tuple[Bounds, bool]:
        """Boxes that hold every row of the grid predicate, in columns of `with_places`, and whether they are exact."""
        return bounds_of(self.grid.layout, self.grid.region, self.grid.resolution, context)

    def evaluate(self, batch: pa.RecordBatch, context: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
        """The grid first, since it is cheap; the filter on what is left of the batch when that is little."""
        keep = self.grid.evaluate(batch, context)
        left = np.flatnonzero(keep)
        if len(left) * 4 < batch.num_rows:
            if len(left):
                keep[left] = self.where.evaluate(batch.take(pa.array(left)), context)
            return keep
        return np.asarray(keep & self.where.evaluate(batch, context))


def grid_predicate(
    subscription: Subscription, stream: Stream, *, layout: GridLayout | None = None
) -> GridPredicate | None:
    """The predicate of a subscription's `region` and `resolution`; None when it has neither.

    Pass one `layout` (`layout_of(stream)`) for all subscriptions of a stream, so that they share a batch's ranks.
    """
    if subscription.region is None and subscription.resolution is None:
        return None
    grid = layout if layout is not None else layout_of(stream)
    where = f"subscription {subscription.name!r}"
    if grid is None:
        raise GridError(
            f"stream {stream.name!r} has no grid, so it has no regions and resolutions",
            where=where,
            hint="give the stream a `grid:` with its x and y columns",
        )
    region, resolution, words = None, Resolution(), []
    if subscription.region is not None:
        region = parse_region(subscription.region, grid, where=f"{where}, region")
        words.append(f"region {dict(subscription.region)}")
    if subscription.resolution is not None:
        resolution = parse_resolution(subscription.resolution, grid, where=f"{where}, resolution")
        words.append(resolution.text)
    return GridPredicate(grid, region, resolution, ", ".join(words))


def with_grid(
    where: RowFilter, subscription: Subscription, stream: Stream, *, layout: GridLayout | None = None
) -> RowFilter:
    """A subscription's filter with its region and resolution; the filter itself when it has neither."""
    grid = grid_predicate(subscription, stream, layout=layout)
    return where if grid is None else Both(where, grid)
