"""Distances: `distance` in the plane of the coordinates' own unit, `distance_km` along the surface of the Earth.

Either takes four coordinates, or two and a position: an array of two numbers, or a struct. A position is expanded into
its two coordinates, so a filter's text always shows all four.
"""

from __future__ import annotations

import numpy as np

from headgate.filters import build
from headgate.filters.errors import RefusedError
from headgate.filters.expr import Call, Expr, Literal
from headgate.filters.functions.base import Function, Resolved, count, expect
from headgate.filters.types import DOUBLE, INT, is_list, is_number, is_struct, name_of
from headgate.filters.vector import Numbers, Vector, union

EARTH_RADIUS_KM = 6371.0088
_PLANE = (("x", "y"), ("lon", "lat"), ("longitude", "latitude"))
_EARTH = (("lat", "lon"), ("latitude", "longitude"), ("lat", "lng"), ("y", "x"))


def _coordinates(arg: Expr, pairs: tuple[tuple[str, str], ...]) -> tuple[Expr, ...]:
    if is_list(arg.type):
        return tuple(build.item(arg, Literal(INT, index)) for index in (0, 1))
    if is_struct(arg.type):
        names = {part.name.casefold() for part in arg.type}
        for pair in pairs:
            if names.issuperset(pair):
                return tuple(build.field(arg, name) for name in pair)
        expected = " or ".join(f"{one} and {other}" for one, other in pairs)
        raise RefusedError(f"a position needs the fields {expected}")
    return (arg,)


def _resolve(args: tuple[Expr, ...], pairs: tuple[tuple[str, str], ...]) -> Resolved:
    count(args, 2, 4)
    flat = tuple(part for arg in args for part in _coordinates(arg, pairs))
    if len(flat) != 4:
        raise RefusedError(
            f"{len(flat)} coordinates where 4 are expected", "write distance(x, y, $position) or four numbers"
        )
    for arg in flat:
        if arg.type != DOUBLE and not is_number(arg.type):
            raise RefusedError(f"a coordinate is a number, not {name_of(arg.type)}")
    return tuple(build.cast(expect(arg, "a number", is_number), DOUBLE) for arg in flat), DOUBLE


def _distance(_call: Call, args: tuple[Vector, ...]) -> Vector:
    x1, y1, x2, y2 = (arg.values for arg in args)
    dx, dy = x1 - x2, y1 - y2
    return Vector(DOUBLE, np.sqrt(dx * dx + dy * dy), union(*(arg.null for arg in args)))


def haversine_km(lat1: Numbers, lon1: Numbers, lat2: Numbers, lon2: Numbers) -> Numbers:
    """Great-circle distance of points in degrees, on a sphere of the Earth's mean radius.

    >>> round(float(haversine_km(52.52, 13.405, 48.8566, 2.3522)))
    877
    """
    one, other = np.radians(lat1), np.radians(lat2)
    dlat, dlon = (other - one) / 2, np.radians(np.subtract(lon2, lon1)) / 2
    chord = np.sin(dlat) ** 2 + np.cos(one) * np.cos(other) * np.sin(dlon) ** 2
    found: Numbers = 2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.minimum(chord, 1.0)))
    return found


def _distance_km(_call: Call, args: tuple[Vector, ...]) -> Vector:
    return Vector(DOUBLE, haversine_km(*(arg.values for arg in args)), union(*(arg.null for arg in args)))


FUNCTIONS = (
    Function(
        ("distance",),
        "distance(x1, y1, x2, y2) or distance(x, y, position)",
        "Straight-line distance in the coordinates' own unit.",
        lambda args: _resolve(args, _PLANE),
        _distance,
    ),
    Function(
        ("distance_km",),
        "distance_km(lat1, lon1, lat2, lon2) or distance_km(lat, lon, position)",
        "Great-circle distance in kilometres of points in degrees.",
        lambda args: _resolve(args, _EARTH),
        _distance_km,
    ),
)
