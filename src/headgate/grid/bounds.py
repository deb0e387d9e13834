"""The boxes that a region and a resolution lie in, so that an index of boxes narrows them as it narrows filters.

A resolution is a range of ranks, and a longitude is one modulo a full turn: neither is a column of the row. An index of
a gridded stream therefore matches rows with those columns added (`with_places`), under names that no filter can write.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.grid.axis import Axis
from headgate.grid.layout import GridLayout
from headgate.grid.region import EARTH_RADIUS_KM, BoxRegion, Circle, Polygon, Region
from headgate.grid.resolution import Resolution
from headgate.model import Column, Schema

SPACE, TIME, AROUND = " grid space", " grid time", " grid around"
"""Added columns: the ranks in space and time, and x brought between the bounds of an axis that wraps."""

Span = tuple[float, float]
Bounds = Sequence[Mapping[str, Span]]
_SLACK = 1e-9


def place_schema(schema: Schema, layout: GridLayout) -> Schema:
    """The schema of rows with the added columns."""
    added = [Column(SPACE, pa.int64())]
    added += [Column(TIME, pa.int64())] if layout.time else []
    added += [Column(AROUND, pa.float64())] if layout.x.wrap else []
    return Schema((*schema.columns, *added))


def with_places(batch: pa.RecordBatch, layout: GridLayout) -> pa.RecordBatch:
    """The rows with the added columns; null where a row has no such place."""
    ranks, known = layout.space_ranks(batch)
    found = batch.append_column(SPACE, pa.array(ranks, mask=~known))
    if layout.time:
        ranks, known = layout.time_ranks(batch)
        found = found.append_column(TIME, pa.array(ranks, mask=~known))
    if layout.x.wrap:
        x = layout.positions(batch)[0]
        found = found.append_column(AROUND, pa.array(layout.x.wrapped(x)))
    return found


def bounds_of(
    layout: GridLayout, region: Region | None, resolution: Resolution, context: Mapping[str, Any]
) -> tuple[Bounds, bool]:
    """Disjoint boxes of closed ranges that hold every row of a region at a resolution, and whether they are exact."""
    ranks: dict[str, Span] = {}
    if not resolution.space.full:
        ranks[SPACE] = _ranks(resolution.space.ranks(layout.space_bits))
    if not resolution.time.full and layout.time:
        ranks[TIME] = _ranks(resolution.time.ranks(layout.time.bits))
    places, exact = ([{}], True) if region is None else _places(layout, region, context)
    return [{**place, **ranks} for place in places], exact


def _ranks(ends: tuple[int, int]) -> Span:
    return ends[0], ends[1] - 1


def _places(layout: GridLayout, region: Region, context: Mapping[str, Any]) -> tuple[list[dict[str, Span]], bool]:
    match region:
        case BoxRegion():
            y = region.y if region.y[1] == layout.y.high else (region.y[0], _below(region.y[1]))
            return [{**x, layout.y.column: y} for x in _box_x(layout.x, region.x)], True
        case Polygon():
            low, high = region.corners.min(axis=0).tolist(), region.corners.max(axis=0).tolist()
            wide, tall = layout.x.step, layout.y.step  # half a cell is enough but for rounding
            xs, ys = (low[0] - wide, high[0] + wide), (low[1] - tall, high[1] + tall)
        case Circle():
            centre = region.centre(context)
            if centre is None:
                return [], True
            reach = _reach(region, centre[1])
            xs = centre[0] - reach[0], centre[0] + reach[0]
            ys = centre[1] - reach[1], centre[1] + reach[1]
        case _:
            return [{}], False
    return [{**x, layout.y.column: ys} for x in _spans(layout.x, xs)], False


def _box_x(axis: Axis, ends: Span) -> list[dict[str, Span]]:
    """A box's side in x, which takes in its lower end and not its upper one, unless the axis ends there."""
    low, high = ends
    if not axis.wrap:
        return [{axis.column: (low, high if high == axis.high else _below(high))}]
    if high <= axis.high:
        return [{AROUND: (low, _below(high))}]
    return [{AROUND: (low, math.inf)}, {AROUND: (-math.inf, _below(min(high - axis.extent, low)))}]


def _spans(axis: Axis, ends: Span) -> list[dict[str, Span]]:
    """A side that may reach beyond an axis that wraps."""
    low, high = ends
    if not axis.wrap:
        return [{axis.column: (low, high)}]
    if high - low >= axis.extent:
        return [{}]
    turned = axis.low + (low - axis.low) % axis.extent
    high += turned - low
    if high < axis.high:
        return [{AROUND: (turned, high)}]
    return [{AROUND: (turned, math.inf)}, {AROUND: (-math.inf, min(high - axis.extent, _below(turned)))}]


def _reach(circle: Circle, y: float) -> Span:
    """How far a circle goes in x and y, a little more than enough."""
    if not circle.kilometres:
        size = circle.radius * (1 + _SLACK)
        return size, size
    angle = circle.radius / EARTH_RADIUS_KM
    up = math.degrees(angle) * (1 + _SLACK)
    if abs(y) + up >= 90 - _SLACK:
        return 360.0, up
    return math.degrees(math.asin(min(1.0, math.sin(angle) / math.cos(math.radians(y))))) * (1 + _SLACK), up


def _below(value: float) -> float:
    """The double before."""
    return float(np.nextafter(value, -np.inf))
