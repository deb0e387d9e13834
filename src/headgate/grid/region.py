"""The `region:` document of a subscription: a box, a polygon or a circle on the stream's grid.

```yaml
region: {box: {x: [5, 15], y: [55, 62]}}       # lower bounds belong to it, upper bounds do not
region: {box: {x: [170, -170], y: [-10, 10]}}  # over the date line, on an axis that wraps
region: {polygon: [[5, 55], [15, 55], [10, 62]]}
region: {circle: {around: $position, radius: 200 km}}   # or a number in the axes' own unit
```
A polygon is taken through its cells: a row belongs to it when the centre of the row's cell does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headgate.grid._polygon import crossing, in_polygon, near_edge
from headgate.grid.axis import Axis, Floats, parse_number
from headgate.grid.errors import GridError, at, check_keys
from headgate.grid.layout import GridLayout

MAX_VERTICES = 2000
EARTH_RADIUS_KM = 6371.0088
_KILOMETRES = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*km\s*")
_PARAMETER = re.compile(r"\$([A-Za-z_]\w*)")

Bools = npt.NDArray[np.bool_]


class Region(Protocol):
    """Part of the plane. Rectangles are four arrays of their lower and upper sides, inside the grid's bounds."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the context that the region is bound to."""
        ...

    def contains(self, x: Floats, y: Floats, context: Mapping[str, Any]) -> Bools:
        """Which positions belong to it; NaN never does."""
        ...

    def within(self, rectangles: tuple[Floats, ...], context: Mapping[str, Any]) -> tuple[Bools, Bools]:
        """Which rectangles surely lie inside, and which may have something of it."""
        ...


@dataclass(frozen=True, slots=True)
class BoxRegion:
    """Sides parallel to the axes; `x` may reach beyond the upper bound of an axis that wraps."""

    x_axis: Axis
    y_axis: Axis
    x: tuple[float, float]
    y: tuple[float, float]

    @property
    def parameters(self) -> tuple[str, ...]:
        """A box is bound to nothing."""
        return ()

    def contains(self, x: Floats, y: Floats, context: Mapping[str, Any]) -> Bools:
        """Which positions belong to it."""
        del context
        low, high = self.x
        around = self.x_axis.wrapped(x)
        inside = (around >= low) & (around < high)
        if high > self.x_axis.high:
            inside |= around < high - self.x_axis.extent
        elif high == self.x_axis.high and not self.x_axis.wrap:
            inside |= x == high
        upper = (y <= self.y[1]) if self.y[1] == self.y_axis.high else (y < self.y[1])
        return np.asarray(inside & (y >= self.y[0]) & upper)

    def within(self, rectangles: tuple[Floats, ...], context: Mapping[str, Any]) -> tuple[Bools, Bools]:
        """Which rectangles surely lie inside, and which may have something of it."""
        del context
        left, right, bottom, top = rectangles
        low, high = self.x
        inside = (left >= low) & (right <= high)
        touched = (right > low) & (left < high)
        if high > self.x_axis.high:
            inside |= right <= high - self.x_axis.extent
            touched |= left < high - self.x_axis.extent
        inside &= (bottom >= self.y[0]) & (top <= self.y[1])
        touched &= (top > self.y[0]) & (bottom < self.y[1])
        return inside, touched


@dataclass(frozen=True)
class Polygon:
    """A simple polygon by its corners, closed by itself."""

    layout: GridLayout
    points: tuple[tuple[float, float], ...]

    @cached_property
    def corners(self) -> Floats:
        """The corners for the kernels."""
        return np.array(self.points)

    @property
    def parameters(self) -> tuple[str, ...]:
        """A polygon is bound to nothing."""
        return ()

    def _shifts(self) -> tuple[float, ...]:
        axis = self.layout.x
        return (0.0, axis.extent) if axis.wrap and self.corners[:, 0].max() > axis.high else (0.0,)

    def contains(self, x: Floats, y: Floats, context: Mapping[str, Any]) -> Bools:
        """Which positions lie in cells whose centre is inside."""
        del context
        columns, rows = self.layout.x.cells(x), self.layout.y.cells(y)
        known = (columns >= 0) & (rows >= 0)
        across, up = self.layout.x.centres(columns), self.layout.y.centres(rows)
        found = np.zeros(len(x), dtype=bool)
        for shift in self._shifts():
            found |= in_polygon(across + shift, up, self.corners)
        return np.asarray(found & known)

    def within(self, rectangles: tuple[Floats, ...], context: Mapping[str, Any]) -> tuple[Bools, Bools]:
        """Which rectangles surely lie inside, and which may have something of it.

        A row counts by the centre of its cell, up to half a cell away, so the rectangles are taken that much wider.
        """
        del context
        across, up = self.layout.x.step / 2, self.layout.y.step / 2
        left, right = rectangles[0] - across, rectangles[1] + across
        bottom, top = rectangles[2] - up, rectangles[3] + up
        inside = np.zeros(len(left), dtype=bool)
        touched = np.zeros(len(left), dtype=bool)
        for shift in self._shifts():
            cut = near_edge(left + shift, right + shift, bottom, top, self.corners)
            centre = in_polygon((left + right) / 2 + shift, (bottom + top) / 2, self.corners)
            inside |= centre & ~cut
            touched |= centre | cut
        return inside, touched


@dataclass(frozen=True, slots=True)
class Circle:
    """Everything within a radius of a point or of the subscriber's own position, bound by its context.

    With `kilometres` the axes are longitude and latitude in degrees and distances are along great circles.
    """

    x_axis: Axis
    y_axis: Axis
    around: tuple[float, float] | str
    radius: float
    kilometres: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        """The name of the position, when the circle moves."""
        return (self.around,) if isinstance(self.around, str) else ()

    def centre(self, context: Mapping[str, Any]) -> tuple[float, float] | None:
        """Where the circle is now; None while its position is unknown."""
        place: Any = context.get(self.around) if isinstance(self.around, str) else self.around
        if isinstance(place, Mapping):
            place = (place.get("x"), place.get("y"))
        try:
            x, y = (float(value) for value in place)
        except (TypeError, ValueError):
            return None
        return (x, y) if np.isfinite(x) and np.isfinite(y) else None

    def distance(self, x: Floats, y: Floats, centre: tuple[float, float]) -> Floats:
        """Distance of positions from the centre, in the unit of the radius, over the seam where that is shorter."""
        across = np.abs(x - centre[0])
        if self.x_axis.wrap:
            across = np.mod(across, self.x_axis.extent)
            across = np.minimum(across, self.x_axis.extent - across)
        if not self.kilometres:
            return np.asarray(np.hypot(across, y - centre[1]))
        a, b = np.radians(y), np.radians(centre[1])
        half = np.sin((a - b) / 2) ** 2 + np.cos(a) * np.cos(b) * np.sin(np.radians(across) / 2) ** 2
        return np.asarray(2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.clip(half, 0, 1))))

    def contains(self, x: Floats, y: Floats, context: Mapping[str, Any]) -> Bools:
        """Which positions belong to it: none while the position of the circle is unknown."""
        centre = self.centre(context)
        if centre is None:
            return np.zeros(len(x), dtype=bool)
        known = np.isfinite(x) & np.isfinite(y)
        away = self.distance(np.where(known, x, 0.0), np.where(known, y, 0.0), centre)
        return np.asarray(known & (away <= self.radius))

    def within(self, rectangles: tuple[Floats, ...], context: Mapping[str, Any]) -> tuple[Bools, Bools]:
        """Which rectangles surely lie inside, and which may, by their centre and half diagonal."""
        left, right, bottom, top = rectangles
        centre = self.centre(context)
        if centre is None:
            return np.zeros(len(left), dtype=bool), np.zeros(len(left), dtype=bool)
        away = self.distance((left + right) / 2, (bottom + top) / 2, centre)
        reach = np.hypot(right - left, top - bottom) / 2
        if self.kilometres:
            reach = np.radians(reach) * EARTH_RADIUS_KM
        return away + reach <= self.radius, away - reach <= self.radius


def parse_region(document: Any, layout: GridLayout, *, where: str | None = "region") -> Region:
    """The region of a document; one that is reversed, empty, outside of the grid or crosses itself is refused."""
    example = "{box: {x: [0, 10], y: [0, 10]}}"
    found = check_keys(document, ("box", "polygon", "circle"), where, example)
    if len(found) != 1:
        raise GridError("a region is one box, polygon or circle", where=where, hint=f"write for example {example}")
    ((kind, value),) = found.items()
    place = at(where, kind)
    if kind == "box":
        return _parse_box(value, layout, place)
    return _parse_polygon(value, layout, place) if kind == "polygon" else _parse_circle(value, layout, place)


def _parse_box(value: Any, layout: GridLayout, where: str) -> BoxRegion:
    if isinstance(value, (list, tuple)) and len(value) == 4:
        value = {"x": [value[0], value[2]], "y": [value[1], value[3]]}
    found = check_keys(value, ("x", "y"), where, "{x: [0, 10], y: [0, 10]} or [x0, y0, x1, y1]")
    sides = []
    for name, axis in (("x", layout.x), ("y", layout.y)):
        pair = found.get(name, [axis.low, axis.high])
        place = at(where, name)
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise GridError(f"{pair!r} are no bounds", where=place, hint="write [lowest, highest]")
        low, high = (parse_number(end, place) for end in pair)
        if axis.wrap and axis.low <= high < low <= axis.high:
            high += axis.extent
        if low >= high:
            raise GridError(
                f"the bounds [{low:g}, {high:g}] are reversed or empty", where=place, hint="lower end first"
            )
        _inside(low, axis, place, 0.0)
        _inside(high, axis, place, axis.extent if axis.wrap else 0.0)
        if high - low > axis.extent:
            raise GridError(f"[{low:g}, {high:g}] goes round more than once", where=place)
        sides.append((low, high))
    return BoxRegion(layout.x, layout.y, sides[0], sides[1])


def _parse_polygon(value: Any, layout: GridLayout, where: str) -> Polygon:
    if not isinstance(value, (list, tuple)) or not 3 <= len(value) <= MAX_VERTICES:
        raise GridError(
            f"a polygon has 3 to {MAX_VERTICES} corners", where=where, hint="write [[x, y], [x, y], [x, y]]"
        )
    corners = np.array([_position(pair, f"{where}[{i}]") for i, pair in enumerate(value)])
    if len(corners) > 3 and np.array_equal(corners[0], corners[-1]):
        corners = corners[:-1]
    for i, (x, y) in enumerate(corners.tolist()):
        _inside(x, layout.x, f"{where}[{i}]", layout.x.extent if layout.x.wrap else 0.0)
        _inside(y, layout.y, f"{where}[{i}]", 0.0)
    crossed = crossing(corners)
    if crossed is not None:
        first, second = crossed
        raise GridError(
            f"the polygon crosses itself: the sides after corner {first} and corner {second} meet",
            where=where,
            hint="give the corners in order around the region",
        )
    x, y = corners[:, 0], corners[:, 1]
    if not abs(float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))) > 0:
        raise GridError("the polygon has no area", where=where, hint="its corners lie on one line")
    return Polygon(layout, tuple((float(a), float(b)) for a, b in corners))


def _parse_circle(value: Any, layout: GridLayout, where: str) -> Circle:
    found = check_keys(value, ("around", "radius"), where, "{around: $position, radius: 200 km}")
    radius, kilometres = found.get("radius"), False
    if isinstance(radius, str) and (match := _KILOMETRES.fullmatch(radius)):
        radius, kilometres = float(match[1]), True
        if layout.y.low < -90 or layout.y.high > 90 or layout.x.extent > 360:
            raise GridError(
                "kilometres need axes in degrees", where=at(where, "radius"), hint="x longitude, y latitude"
            )
    size = parse_number(radius, at(where, "radius"))
    if size <= 0:
        raise GridError(f"a radius of {size:g} holds nothing", where=at(where, "radius"), hint="write a number above 0")
    around = found.get("around")
    if isinstance(around, str):
        match = _PARAMETER.fullmatch(around)
        if match is None:
            raise GridError(f"{around!r} is no position", where=at(where, "around"), hint="write [x, y] or $position")
        return Circle(layout.x, layout.y, match[1], size, kilometres)
    x, y = _position(around, at(where, "around"))
    _inside(x, layout.x, at(where, "around"), 0.0)
    _inside(y, layout.y, at(where, "around"), 0.0)
    return Circle(layout.x, layout.y, (x, y), size, kilometres)


def _position(value: Any, where: str) -> tuple[float, float]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise GridError(f"{value!r} is no position", where=where, hint="write [x, y]")
    return parse_number(value[0], where), parse_number(value[1], where)


def _inside(value: float, axis: Axis, where: str, beyond: float) -> None:
    if not axis.low <= value <= axis.high + beyond:
        raise GridError(
            f"{value:g} lies outside of the grid",
            where=where,
            hint=f"column {axis.column!r} goes from {axis.low:g} to {axis.high:g}",
        )
