"""Sets of DZ expressions and their algebra.

A set is kept as disjoint, non-adjacent intervals of z-codes in ascending order, the one canonical form of the cells
that it covers. Union, intersection, difference and complement are one sweep over two such lists. The expressions of a
set are the maximal dyadic intervals inside: no smaller set of plain expressions covers the same cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headgate.grid._jit import kernel
from headgate.grid.space import DzSpace, Ints

_UNION, _INTERSECTION, _DIFFERENCE = 0, 1, 2


@kernel
def _sweep(one: Ints, other: Ints, operation: int, out: Ints) -> int:
    """Combine two interval lists; returns how many intervals were written to `out`."""
    i = 0
    j = 0
    count = 0
    inside = False
    while i < 2 * one.shape[0] or j < 2 * other.shape[0]:
        at = np.int64(2**62)
        if i < 2 * one.shape[0]:
            at = one[i // 2, i % 2]
        if j < 2 * other.shape[0] and other[j // 2, j % 2] < at:
            at = other[j // 2, j % 2]
        if i < 2 * one.shape[0] and one[i // 2, i % 2] == at:
            i += 1
        if j < 2 * other.shape[0] and other[j // 2, j % 2] == at:
            j += 1
        in_one = i % 2 == 1
        in_other = j % 2 == 1
        if operation == 0:
            now = in_one or in_other
        elif operation == 1:
            now = in_one and in_other
        else:
            now = in_one and not in_other
        if now and not inside:
            out[count, 0] = at
        elif inside and not now:
            out[count, 1] = at
            count += 1
        inside = now
    return count


@kernel
def split_dyadic(bounds: Ints, digits: int, codes: Ints, lengths: Ints, fill: bool) -> int:
    """Maximal dyadic intervals of sorted bounds; counts them, and writes them when `fill` is set."""
    count = 0
    for row in range(bounds.shape[0]):
        at = bounds[row, 0]
        end = bounds[row, 1]
        while at < end:
            size = at & -at if at else np.int64(1) << digits
            while size > end - at:
                size >>= 1
            if fill:
                codes[count] = at
                length = digits
                step = size
                while step > 1:
                    step >>= 1
                    length -= 1
                lengths[count] = length
            count += 1
            at += size
    return count


def merge_intervals(starts: Ints, ends: Ints) -> Ints:
    """Intervals in any order, overlapping or not, as sorted disjoint bounds without empty ones."""
    kept = ends > starts
    starts, ends = starts[kept], ends[kept]
    if not len(starts):
        return np.empty((0, 2), dtype=np.int64)
    by_start = np.argsort(starts, kind="stable")
    starts, reach = starts[by_start], np.maximum.accumulate(ends[by_start])
    first = np.ones(len(starts), dtype=bool)
    first[1:] = starts[1:] > reach[:-1]
    last = np.append(np.flatnonzero(first)[1:] - 1, len(starts) - 1)
    return np.stack([starts[first], reach[last]], axis=1)


@dataclass(frozen=True, eq=False)
class DzSet:
    """The cells that a set of expressions covers.

    >>> space = DzSpace.round_robin({"x": 2, "y": 2})
    >>> half = DzSet.of(space, "0")
    >>> (half - DzSet.of(space, "001")).text()
    ('000', '01')
    >>> DzSet.of(space, "00", "01") == half, DzSet.of(space, "0011") <= half
    (True, True)
    """

    space: DzSpace
    bounds: Ints

    @classmethod
    def of(cls, space: DzSpace, *expressions: str) -> DzSet:
        """The set of expressions written as digits; the empty text is the whole space."""
        pairs = np.array([space.parse(text) for text in expressions], dtype=np.int64).reshape(-1, 2)
        return cls.from_expressions(space, pairs[:, 0], pairs[:, 1])

    @classmethod
    def from_expressions(cls, space: DzSpace, codes: npt.ArrayLike, lengths: npt.ArrayLike) -> DzSet:
        """The set of expressions given as codes and lengths."""
        starts = np.asarray(codes, dtype=np.int64)
        sizes = np.int64(1) << (space.digits - np.asarray(lengths, dtype=np.int64))
        return cls(space, merge_intervals(starts, starts + sizes))

    @classmethod
    def from_cells(cls, space: DzSpace, codes: npt.ArrayLike) -> DzSet:
        """The set of finest cells given by their z-codes."""
        starts = np.asarray(codes, dtype=np.int64)
        return cls(space, merge_intervals(starts, starts + 1))

    @classmethod
    def whole(cls, space: DzSpace) -> DzSet:
        """Every cell."""
        return cls(space, np.array([[0, space.cells]], dtype=np.int64))

    @classmethod
    def empty(cls, space: DzSpace) -> DzSet:
        """No cell."""
        return cls(space, np.empty((0, 2), dtype=np.int64))

    def expressions(self) -> tuple[Ints, Ints]:
        """Codes and lengths of the fewest expressions that cover exactly these cells, in z-order."""
        nothing = np.empty(0, dtype=np.int64)
        count = split_dyadic(self.bounds, self.space.digits, nothing, nothing, False)
        codes, lengths = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        split_dyadic(self.bounds, self.space.digits, codes, lengths, True)
        return codes, lengths

    def text(self) -> tuple[str, ...]:
        """The expressions as digits."""
        return tuple(self.space.text(int(c), int(n)) for c, n in zip(*self.expressions(), strict=True))

    @property
    def cells(self) -> int:
        """Number of finest cells covered."""
        return int((self.bounds[:, 1] - self.bounds[:, 0]).sum())

    @property
    def fraction(self) -> float:
        """Share of the space covered."""
        return self.cells / self.space.cells

    def codes(self) -> Ints:
        """Every finest cell covered; for small sets."""
        return np.concatenate([np.arange(a, b) for a, b in self.bounds.tolist()] or [np.empty(0, dtype=np.int64)])

    def contains(self, codes: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Which finest cells lie in the set."""
        flat = np.asarray(codes, dtype=np.int64)
        return np.asarray(np.searchsorted(self.bounds.ravel(), flat, side="right") % 2 == 1)

    def _combine(self, other: DzSet, operation: int) -> DzSet:
        if self.space != other.space:
            raise ValueError("sets of different spaces cannot be combined")
        out = np.empty((len(self.bounds) + len(other.bounds), 2), dtype=np.int64)
        count = _sweep(self.bounds, other.bounds, operation, out)
        return DzSet(self.space, out[:count])

    def __or__(self, other: DzSet) -> DzSet:
        return self._combine(other, _UNION)

    def __and__(self, other: DzSet) -> DzSet:
        return self._combine(other, _INTERSECTION)

    def __sub__(self, other: DzSet) -> DzSet:
        return self._combine(other, _DIFFERENCE)

    def __invert__(self) -> DzSet:
        return DzSet.whole(self.space) - self

    def __le__(self, other: DzSet) -> bool:
        return not len((self - other).bounds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DzSet) and self.space == other.space and np.array_equal(self.bounds, other.bounds)

    def __hash__(self) -> int:
        return hash((self.space, self.bounds.tobytes()))

    def __bool__(self) -> bool:
        return bool(len(self.bounds))
