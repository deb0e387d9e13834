"""Geometry of polygons in kernels: inside, near an edge, crossing itself."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.grid._jit import kernel
from headgate.grid.axis import Floats

Bools = npt.NDArray[np.bool_]


@kernel
def in_polygon(x: Floats, y: Floats, corners: Floats) -> Bools:
    """Which points lie inside, by counting the sides to their right; of points on a side, lower and left ones do."""
    count = corners.shape[0]
    out = np.zeros(x.shape[0], dtype=np.bool_)
    for i in range(x.shape[0]):
        inside = False
        before = count - 1
        for at in range(count):
            ax, ay = corners[at, 0], corners[at, 1]
            bx, by = corners[before, 0], corners[before, 1]
            if (ay > y[i]) != (by > y[i]) and x[i] < (bx - ax) * (y[i] - ay) / (by - ay) + ax:
                inside = not inside
            before = at
        out[i] = inside
    return out


@kernel
def near_edge(left: Floats, right: Floats, bottom: Floats, top: Floats, corners: Floats) -> Bools:
    """Which rectangles a side of the polygon touches, by clipping the side to the rectangle."""
    count = corners.shape[0]
    out = np.zeros(left.shape[0], dtype=np.bool_)
    for i in range(left.shape[0]):
        for at in range(count):
            after = at + 1 if at + 1 < count else 0
            ax, ay = corners[at, 0], corners[at, 1]
            dx, dy = corners[after, 0] - ax, corners[after, 1] - ay
            start, end = 0.0, 1.0
            hit = True
            for along, room in ((-dx, ax - left[i]), (dx, right[i] - ax), (-dy, ay - bottom[i]), (dy, top[i] - ay)):
                if along == 0.0:
                    hit = hit and room >= 0.0
                elif along < 0.0:
                    start = max(start, room / along)
                else:
                    end = min(end, room / along)
            if hit and start <= end:
                out[i] = True
                break
    return out


@kernel
def _turn(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> float:
    return (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)


@kernel
def _between(ax: float, ay: float, bx: float, by: float, cx: float, cy: float) -> bool:
    return min(ax, bx) <= cx <= max(ax, bx) and min(ay, by) <= cy <= max(ay, by)


@kernel
def _first_crossing(corners: Floats) -> tuple[int, int]:
    count = corners.shape[0]
    for one in range(count):
        a, b = corners[one], corners[(one + 1) % count]
        if a[0] == b[0] and a[1] == b[1]:
            return one, one
        for other in range(one + 1, count):
            c, d = corners[other], corners[(other + 1) % count]
            first = _turn(a[0], a[1], b[0], b[1], c[0], c[1])
            second = _turn(a[0], a[1], b[0], b[1], d[0], d[1])
            third = _turn(c[0], c[1], d[0], d[1], a[0], a[1])
            fourth = _turn(c[0], c[1], d[0], d[1], b[0], b[1])
            follows = other == one + 1
            precedes = (other + 1) % count == one
            if follows or precedes:
                # Neighbouring sides share a corner; they only cross when one folds back onto the other.
                shared, far, near = (b, d, a) if follows else (a, c, b)
                flat = _turn(near[0], near[1], shared[0], shared[1], far[0], far[1]) == 0.0
                same = (near[0] - shared[0]) * (far[0] - shared[0]) + (near[1] - shared[1]) * (far[1] - shared[1]) > 0.0
                if flat and same:
                    return one, other
                continue
            if (first > 0) != (second > 0) and (third > 0) != (fourth > 0) and first * second * third * fourth != 0.0:
                return one, other
            if (
                (first == 0.0 and _between(a[0], a[1], b[0], b[1], c[0], c[1]))
                or (second == 0.0 and _between(a[0], a[1], b[0], b[1], d[0], d[1]))
                or (third == 0.0 and _between(c[0], c[1], d[0], d[1], a[0], a[1]))
                or (fourth == 0.0 and _between(c[0], c[1], d[0], d[1], b[0], b[1]))
            ):
                return one, other
    return -1, -1


def crossing(corners: Floats) -> tuple[int, int] | None:
    """Two sides of a polygon that meet where they should not, by the corner each starts at, if any."""
    first, second = _first_crossing(np.ascontiguousarray(corners))
    return None if first < 0 else (first, second)
