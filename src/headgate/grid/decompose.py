"""Regions and resolution intervals as DZ expressions.

A box is cut into the fewest expressions that cover it at a given depth. When that many are too many, a bounded cover
spends its expressions where they save the most: it always halves the expression that reaches farthest out of the box.
What a cover takes in beyond the box is its over-cover, and it is always reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headgate.grid._jit import kernel
from headgate.grid.dzset import DzSet
from headgate.grid.space import DzSpace, Ints

_LOOK_AHEAD = 4


@dataclass(frozen=True, slots=True)
class DzCover:
    """Expressions that cover a region, and how many finest cells they take in beyond it."""

    cells: DzSet
    over_cover: int


@kernel
def _exact(
    low: Ints, high: Ints, order: Ints, bit: Ints, depth: int, codes: Ints, lengths: Ints, at: int, room: int
) -> int:
    """Expressions of one box in z-order by descending the halvings; counts all, writes the first `room` of them."""
    digits = order.shape[0]
    dims = low.shape[0]
    for d in range(dims):
        if low[d] >= high[d]:
            return 0
    stack_code = np.zeros(digits + 2, dtype=np.int64)
    stack_level = np.zeros(digits + 2, dtype=np.int64)
    stack_low = np.zeros((digits + 2, dims), dtype=np.int64)
    stack_span = np.zeros((digits + 2, dims), dtype=np.int64)
    for d in range(dims):
        stack_span[0, d] = 1
    for digit in range(digits):
        stack_span[0, order[digit]] <<= 1
    node_low = np.zeros(dims, dtype=np.int64)
    node_span = np.zeros(dims, dtype=np.int64)
    top = 1
    count = 0
    while top:
        top -= 1
        code = stack_code[top]
        level = stack_level[top]
        apart = False
        inside = True
        for d in range(dims):
            node_low[d] = stack_low[top, d]
            node_span[d] = stack_span[top, d]
            if node_low[d] >= high[d] or node_low[d] + node_span[d] <= low[d]:
                apart = True
            if node_low[d] < low[d] or node_low[d] + node_span[d] > high[d]:
                inside = False
        if apart:
            continue
        if inside or level == depth:
            if count < room:
                codes[at + count] = code
                lengths[at + count] = level
            count += 1
            continue
        split = order[level]
        half = np.int64(1) << bit[level]
        for side in (1, 0):
            stack_code[top] = code | (np.int64(side) << (digits - 1 - level))
            stack_level[top] = level + 1
            for d in range(dims):
                stack_low[top, d] = node_low[d]
                stack_span[top, d] = node_span[d]
            stack_low[top, split] += side * half
            stack_span[top, split] = half
            top += 1
    return count


@kernel
def _exact_batch(
    low: Ints, high: Ints, order: Ints, bit: Ints, depth: int, offsets: Ints, codes: Ints, lengths: Ints, fill: bool
) -> None:
    for row in range(low.shape[0]):
        if fill:
            room = offsets[row + 1] - offsets[row]
            _exact(low[row], high[row], order, bit, depth, codes, lengths, offsets[row], room)
        else:
            offsets[row + 1] = offsets[row] + _exact(low[row], high[row], order, bit, depth, codes, lengths, 0, 0)


def _boxes(space: DzSpace, low: npt.ArrayLike, high: npt.ArrayLike, depth: int | None) -> tuple[Ints, Ints, int]:
    lows = np.ascontiguousarray(np.asarray(low, dtype=np.int64))
    highs = np.ascontiguousarray(np.asarray(high, dtype=np.int64))
    if lows.shape != highs.shape or lows.ndim != 2 or lows.shape[1] != len(space.names):
        raise ValueError(f"boxes need {len(space.names)} lower and upper cell numbers each")
    if lows.size and ((lows < 0).any() or (highs > np.array(space.shape)).any()):
        raise ValueError(f"boxes must lie in {space.shape}")
    limit = space.digits if depth is None else min(depth, space.digits)
    return lows, highs, limit


def decompose_batch(
    space: DzSpace, low: npt.ArrayLike, high: npt.ArrayLike, *, depth: int | None = None
) -> tuple[Ints, Ints, Ints]:
    """Expressions of many boxes of finest cells ``low <= cell < high``: offsets into codes and lengths, per box.

    With a `depth` below the full one, expressions of that length reach beyond the box. Within one box they are in
    z-order and disjoint.
    """
    lows, highs, limit = _boxes(space, low, high, depth)
    offsets = np.zeros(len(lows) + 1, dtype=np.int64)
    nothing = np.empty(0, dtype=np.int64)
    _exact_batch(lows, highs, space.order_array, space.bit_array, limit, offsets, nothing, nothing, False)
    codes, lengths = np.empty(offsets[-1], dtype=np.int64), np.empty(offsets[-1], dtype=np.int64)
    _exact_batch(lows, highs, space.order_array, space.bit_array, limit, offsets, codes, lengths, True)
    return offsets, codes, lengths


@kernel
def _overlap(code: int, level: int, low: Ints, high: Ints, order: Ints, bit: Ints, span: Ints) -> int:
    """Finest cells of an expression that lie in the box; `span` holds the cells of each dimension."""
    digits = order.shape[0]
    start = np.zeros(low.shape[0], dtype=np.int64)
    size = span.copy()
    for digit in range(level):
        d = order[digit]
        size[d] = np.int64(1) << bit[digit]
        start[d] |= ((code >> (digits - 1 - digit)) & 1) << bit[digit]
    common = np.int64(1)
    for d in range(low.shape[0]):
        common *= max(np.int64(0), min(high[d], start[d] + size[d]) - max(low[d], start[d]))
    return int(common)


@kernel
def _bounded(
    low: Ints, high: Ints, order: Ints, bit: Ints, span: Ints, depth: int, codes: Ints, lengths: Ints, waste: Ints
) -> int:
    """Best-first cover with at most ``len(codes)`` expressions; returns how many are used."""
    digits = order.shape[0]
    most = codes.shape[0]
    codes[0] = 0
    lengths[0] = 0
    waste[0] = (np.int64(1) << digits) - _overlap(0, 0, low, high, order, bit, span)
    count = 1
    while True:
        worst = -1
        for i in range(count):
            if waste[i] > 0 and lengths[i] < depth and (worst < 0 or waste[i] > waste[worst]):
                worst = i
        if worst < 0:
            return count
        level = lengths[worst]
        half = np.int64(1) << (digits - 1 - level)
        lower = codes[worst]
        in_lower = _overlap(lower, level + 1, low, high, order, bit, span)
        in_upper = _overlap(lower + half, level + 1, low, high, order, bit, span)
        if in_lower and in_upper:
            if count == most:
                waste[worst] = -waste[worst]
                continue
            codes[count] = lower + half
            lengths[count] = level + 1
            waste[count] = half - in_upper
            count += 1
        elif in_upper:
            codes[worst] = lower + half
        lengths[worst] = level + 1
        waste[worst] = half - (in_lower or in_upper)


@kernel
def _bounded_batch(
    low: Ints, high: Ints, order: Ints, bit: Ints, span: Ints, depth: int, codes: Ints, lengths: Ints, counts: Ints
) -> None:
    waste = np.zeros(codes.shape[1], dtype=np.int64)
    for row in range(low.shape[0]):
        empty = False
        for d in range(low.shape[1]):
            empty |= low[row, d] >= high[row, d]
        if not empty:
            counts[row] = _bounded(low[row], high[row], order, bit, span, depth, codes[row], lengths[row], waste)


def bounded_batch(
    space: DzSpace, low: npt.ArrayLike, high: npt.ArrayLike, at_most: int, *, depth: int | None = None
) -> tuple[Ints, Ints, Ints]:
    """Best-first covers of many boxes with at most so many expressions each: offsets, codes and lengths."""
    lows, highs, limit = _boxes(space, low, high, depth)
    if at_most < 1:
        raise ValueError("a cover needs at least one expression")
    codes, lengths = np.zeros((len(lows), at_most), np.int64), np.zeros((len(lows), at_most), np.int64)
    counts = np.zeros(len(lows), dtype=np.int64)
    span = np.array(space.shape, dtype=np.int64)
    _bounded_batch(lows, highs, space.order_array, space.bit_array, span, limit, codes, lengths, counts)
    used = np.arange(at_most) < counts[:, None]
    return np.concatenate([[0], np.cumsum(counts)]), codes[used], lengths[used]


@kernel
def _overlaps(
    offsets: Ints, codes: Ints, lengths: Ints, low: Ints, high: Ints, order: Ints, bit: Ints, span: Ints, out: Ints
) -> None:
    for row in range(low.shape[0]):
        for at in range(offsets[row], offsets[row + 1]):
            out[at] = _overlap(codes[at], lengths[at], low[row], high[row], order, bit, span)


def overlaps(
    space: DzSpace, offsets: Ints, codes: Ints, lengths: Ints, low: npt.ArrayLike, high: npt.ArrayLike
) -> Ints:
    """Finest cells of each part that lie in its box: what the part really has to deliver of an over-covered region."""
    lows, highs, _ = _boxes(space, low, high, None)
    out = np.empty(len(codes), dtype=np.int64)
    span = np.array(space.shape, dtype=np.int64)
    _overlaps(offsets, codes, lengths, lows, highs, space.order_array, space.bit_array, span, out)
    return out


def decompose(
    space: DzSpace,
    box: Mapping[str, tuple[int, int]],
    *,
    depth: int | None = None,
    at_most: int | None = None,
) -> DzCover:
    """The cover of a box of finest cells; dimensions that are not named are taken whole.

    `depth` limits the length of the expressions, `at_most` their number. Without either the cover is exact.

    >>> space = DzSpace.round_robin({"x": 3, "y": 3})
    >>> decompose(space, {"x": (0, 4), "y": (2, 4)}).cells.text()
    ('0001', '0011')
    >>> bounded = decompose(space, {"x": (1, 7), "y": (3, 5)}, at_most=8)
    >>> len(bounded.cells.text()), bounded.over_cover
    (8, 8)
    """
    unknown = [name for name in box if name not in space.names]
    if unknown:
        raise ValueError(f"no dimension {unknown[0]!r}; the space has {', '.join(space.names)}")
    pairs = [box.get(name, (0, size)) for name, size in zip(space.names, space.shape, strict=True)]
    low = np.array([[a for a, _ in pairs]], dtype=np.int64)
    high = np.array([[b for _, b in pairs]], dtype=np.int64)
    own = int(np.prod(np.maximum(high - low, 0)))
    if at_most is None:
        _, codes, lengths = decompose_batch(space, low, high, depth=depth)
    else:
        _, codes, lengths = bounded_batch(space, low, high, at_most, depth=depth)
    cells = DzSet.from_expressions(space, codes, lengths)
    return DzCover(cells, cells.cells - own)


def choose_depths(
    low: npt.ArrayLike, high: npt.ArrayLike, names: tuple[str, ...], digits: int, *, deepest: int = 20
) -> dict[str, int]:
    """Digits for each dimension that keep the mean over-cover of a sample of boxes least, one digit at a time.

    Boxes are given as fractions of each dimension's extent, one row per box. A dimension that every query takes whole
    gets no digits; a finely cut one gets many. A digit is weighed with up to three that follow it, since one alone may
    gain nothing; fewer than `digits` are given when no more would gain anything.

    >>> choose_depths([[0.1, 0.0]], [[0.2, 1.0]], ("x", "y"), 4)
    {'x': 4, 'y': 0}
    """
    lows, highs = np.atleast_2d(np.asarray(low, float)), np.atleast_2d(np.asarray(high, float))
    if lows.shape != highs.shape or lows.shape[1] != len(names):
        raise ValueError(f"boxes need {len(names)} lower and upper bounds each")

    def width(dimension: int, depth: int) -> npt.NDArray[np.float64]:
        scale = float(1 << depth)
        cells = np.ceil(highs[:, dimension] * scale) - np.floor(lows[:, dimension] * scale)
        return np.asarray(cells / scale, dtype=np.float64)

    depths = [0] * len(names)
    widths = np.stack([width(d, 0) for d in range(len(names))], axis=1)
    for spent in range(digits):
        now = float(widths.prod(axis=1).mean())
        best, best_gain = -1, 0.0
        for d in range(len(names)):
            others = np.prod(np.delete(widths, d, axis=1), axis=1)
            for more in range(1, min(_LOOK_AHEAD, digits - spent, deepest - depths[d]) + 1):
                gain = (now - float((others * width(d, depths[d] + more)).mean())) / more
                if gain > best_gain + 1e-15:
                    best, best_gain = d, gain
        if best < 0:
            break
        depths[best] += 1
        widths[:, best] = width(best, depths[best])
    return dict(zip(names, depths, strict=True))
