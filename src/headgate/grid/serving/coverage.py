"""How far a reader has each cell of a grid: intervals of z-codes, each with the number up to which its rows came."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from headgate.grid.serving.shelf import NOTHING


class CellCoverage:
    """Disjoint intervals of cells with their marks; a cell that is in none has the mark `NOTHING`.

    >>> have = CellCoverage()
    >>> have.mark(0, 8, 10)
    >>> have.mark(2, 4, 12)
    >>> list(have.pieces(0, 10))
    [(0, 2, 10), (2, 4, 12), (4, 8, 10), (8, 10, -1)]
    """

    def __init__(self) -> None:
        self._pieces: list[tuple[int, int, int]] = []

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """The intervals inside of [start, end), in order and without gaps, each with its mark."""
        at = start
        for low, high, upto in self._pieces[self._first(start) :]:
            if low >= end:
                break
            if low > at:
                yield at, low, NOTHING
            yield max(low, at), min(high, end), upto
            at = min(high, end)
        if at < end:
            yield at, end, NOTHING

    def mark(self, start: int, end: int, upto: int) -> None:
        """Set the mark of the cells in [start, end)."""
        first = self._first(start)
        last = first
        kept: list[tuple[int, int, int]] = []
        while last < len(self._pieces) and self._pieces[last][0] < end:
            low, high, was = self._pieces[last]
            if low < start:
                kept.append((low, start, was))
            if high > end:
                kept.append((end, high, was))
            last += 1
        self._pieces[first:last] = sorted([*kept, (start, end, upto)])
        self._join(max(0, first - 1), first + len(kept) + 2)

    def least(self, start: int, end: int) -> int:
        """The lowest mark in [start, end)."""
        return min((upto for _, _, upto in self.pieces(start, end)), default=NOTHING)

    def _first(self, start: int) -> int:
        """The place of the first interval that ends behind a cell."""
        at = bisect.bisect_right(self._pieces, (start, float("inf"), 0))
        return at - 1 if at and self._pieces[at - 1][1] > start else at

    def _join(self, first: int, last: int) -> None:
        """Make one of neighbours with the same mark."""
        joined: list[tuple[int, int, int]] = []
        for low, high, upto in self._pieces[first:last]:
            if joined and joined[-1][1] == low and joined[-1][2] == upto:
                joined[-1] = (joined[-1][0], high, upto)
            else:
                joined.append((low, high, upto))
        self._pieces[first:last] = joined
