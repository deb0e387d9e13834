"""The order in which points of a block are taken, so that any resolution is spread over the whole region.

Along one axis a block is ``2**bits`` neighbouring points, and a point's rank is the bit reversal of its place in the
block (grid paper, section 4.2.2). A resolution is an interval [low, high) of ranks, as fractions of the block. In the
plane a block is ``2**bits`` by ``2**bits`` points, and the rank interleaves the reversed bits of x and y, x first.

What holds, for every axis length (a rank depends on the place modulo the block only, so an unfinished last block
changes nothing):

- A dyadic interval ``[c / 2**j, (c + 1) / 2**j)`` is an arithmetic progression of step ``2**j`` along a line, and a
  lattice of steps ``2**ceil(j / 2)`` in x and ``2**floor(j / 2)`` in y in the plane.
- Neighbouring intervals share no point and together are the interval from end to end.
- Any interval has gaps of at most `gap_bound`, less than four times the even spacing ``1 / (high - low)``; less than
  twice when it starts at 0.
- Around an axis that wraps, the gap over the seam of a dyadic interval is less than twice the step, at most the step
  for an interval that starts at 0, and exactly the step when it divides the size of the axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from headgate.grid._jit import plain_kernel
from headgate.grid.space import Ints

MAX_BITS = 30


@plain_kernel
def _reverse(values: Ints, bits: int, out: Ints) -> None:
    for i in range(values.shape[0]):
        left = values[i]
        turned = 0
        for _ in range(bits):
            turned = (turned << 1) | (left & 1)
            left >>= 1
        out[i] = turned


@plain_kernel
def _plane(xs: Ints, ys: Ints, bits: int, out: Ints) -> None:
    for i in range(xs.shape[0]):
        x = xs[i]
        y = ys[i]
        rank = 0
        for _ in range(bits):
            rank = (rank << 2) | ((x & 1) << 1) | (y & 1)
            x >>= 1
            y >>= 1
        out[i] = rank


def _flat(values: npt.ArrayLike) -> Ints:
    return np.ascontiguousarray(np.atleast_1d(np.asarray(values, dtype=np.int64)))


def _check(bits: int, most: int) -> None:
    if not 0 <= bits <= most:
        raise ValueError(f"a block has 0 to {most} bits an axis, not {bits}")


def line_rank(index: npt.ArrayLike, bits: int) -> Ints:
    """Rank in its block of each point along an axis or in time; indices may be negative.

    >>> line_rank(range(8), 3).tolist()
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    _check(bits, 2 * MAX_BITS)
    flat = _flat(index)
    out = np.empty_like(flat)
    _reverse(flat, bits, out)
    return out


def plane_rank(x: npt.ArrayLike, y: npt.ArrayLike, bits: int) -> Ints:
    """Rank in its block of each point of the plane, from 0 to ``4**bits - 1``.

    >>> plane_rank([0, 1, 0, 1], [0, 0, 1, 1], 1).tolist()
    [0, 2, 1, 3]
    """
    _check(bits, MAX_BITS)
    xs, ys = _flat(x), _flat(y)
    if xs.shape != ys.shape:
        raise ValueError("x and y need the same number of points")
    out = np.empty_like(xs)
    _plane(xs, ys, bits, out)
    return out


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """A resolution: the ranks from `low` up to, without, `high`, as exact fractions of a block.

    >>> quarter, next_quarter = Interval.of(0, Fraction(1, 4)), Interval.of(Fraction(1, 4), Fraction(1, 2))
    >>> quarter.ranks(3), next_quarter.ranks(3), quarter.joined(next_quarter) == Interval.of(0, Fraction(1, 2))
    ((0, 2), (2, 4), True)
    """

    low: Fraction = Fraction(0)
    high: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high <= 1:
            raise ValueError(f"a resolution interval lies in [0, 1] and is not empty, unlike [{self.low}, {self.high})")

    @classmethod
    def of(cls, low: Fraction | int, high: Fraction | int) -> Interval:
        """An interval from exact numbers."""
        return cls(Fraction(low), Fraction(high))

    @property
    def length(self) -> Fraction:
        """The resolution as a fraction of everything."""
        return self.high - self.low

    @property
    def full(self) -> bool:
        """Whether this is everything."""
        return self.length == 1

    def ranks(self, bits: int) -> tuple[int, int]:
        """First rank in the interval and first rank past it, for a block of ``2**bits`` points."""
        return math.ceil(self.low * (1 << bits)), math.ceil(self.high * (1 << bits))

    def selects(self, ranks: Ints, bits: int) -> npt.NDArray[np.bool_]:
        """Which ranks of such a block lie in the interval."""
        first, past = self.ranks(bits)
        return np.asarray((ranks >= first) & (ranks < past))

    def joined(self, other: Interval) -> Interval | None:
        """The one interval of two that touch or overlap, None when there is a hole between them."""
        if max(self.low, other.low) > min(self.high, other.high):
            return None
        return Interval(min(self.low, other.low), max(self.high, other.high))

    def missing_from(self, held: Interval) -> tuple[Interval, ...]:
        """What must still be sent to somebody who holds another interval: the parts of this one outside of it."""
        if held.high <= self.low or held.low >= self.high:
            return (self,)
        parts = []
        if self.low < held.low:
            parts.append(Interval(self.low, held.low))
        if held.high < self.high:
            parts.append(Interval(held.high, self.high))
        return tuple(parts)


def _largest_dyadic(first: int, past: int, bits: int) -> int:
    for level in range(bits, -1, -1):
        size = 1 << level
        if -(-first // size) * size + size <= past:
            return level
    return -1


def gap_bound(interval: Interval, bits: int) -> int:
    """The most steps between neighbouring points of an interval along an axis with blocks of ``2**bits`` points.

    It is the step of the largest dyadic interval inside. An interval that holds no rank of so small a block has no
    points, and is refused.

    >>> gap_bound(Interval.of(0, Fraction(1, 4)), 6), gap_bound(Interval.of(Fraction(1, 8), Fraction(3, 8)), 6)
    (4, 8)
    """
    level = _largest_dyadic(*interval.ranks(bits), bits)
    if level < 0:
        raise ValueError(f"no point of a block of {1 << bits} lies in [{interval.low}, {interval.high})")
    return 1 << (bits - level)


def plane_gap_bound(interval: Interval, bits: int) -> tuple[int, int]:
    """The same bound in the plane: every point has a chosen one within so many steps, less one, upwards in x and y."""
    level = _largest_dyadic(*interval.ranks(2 * bits), 2 * bits)
    if level < 0:
        raise ValueError(f"no point of a block of {1 << (2 * bits)} lies in [{interval.low}, {interval.high})")
    missing = 2 * bits - level
    return 1 << ((missing + 1) // 2), 1 << (missing // 2)
