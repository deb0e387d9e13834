"""What a member wants of a stream, in the only terms a planner needs: covering, merging and amortised size.

Section 2.2 of the QASD paper: a filter is a selection and a projection; filter F is applicable over G when everything
F lets through, G lets through too; the filter of a set is the union; the amortised size is selectivity times row size.
Here a stream has a `Universe` of disjoint pieces of its rows with weights, and of columns with widths, and an interest
is a set of pieces and a set of columns, both as bit sets. Covering is inclusion, merging is union, and the amortised
size is (sum of the weights) * (sum of the widths). The paper's filter types are sets of ten equal pieces. Anything else
that can cover, merge and tell its size (`Interest`) is brought to this form by `atomise`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Protocol, Self, TypeVar


class Interest(Protocol):
    """What the planner asks of a filter."""

    def covers(self, other: Self) -> bool:
        """Whether everything `other` wants passes this one, with all its columns."""
        ...

    def merge(self, other: Self) -> Self:
        """The interest of both together."""
        ...

    @property
    def size(self) -> float:
        """Amortised size: bytes per row of the unfiltered stream."""
        ...


@dataclass(frozen=True, slots=True)
class Universe:
    """The pieces of a stream: weights of disjoint row pieces (fractions of the rows) and widths of columns in bytes.

    `base_bytes` is what a row costs besides its columns. Weights that add up to more than 1 (classes whose overlap is
    not known) are an upper bound, and a union never weighs more than 1.
    """

    weights: tuple[float, ...]
    widths: tuple[float, ...] = ()
    base_bytes: float = 1.0

    @classmethod
    def blocks(cls, count: int) -> Universe:
        """Equal blocks, as in the paper's experiments; a row costs one unit."""
        return cls((1.0 / count,) * count)

    @property
    def row_bytes(self) -> float:
        """Bytes of a whole row."""
        return self.base_bytes + sum(self.widths)

    @property
    def everything(self) -> InterestPieces:
        """The interest in the whole stream."""
        return InterestPieces(self, (1 << len(self.weights)) - 1, (1 << len(self.widths)) - 1)

    def size(self, rows: int, columns: int) -> float:
        """Amortised size of a set of pieces with a set of columns, in bytes per row of the stream."""
        weight = sum(compress(self.weights, _bits(rows)))
        width = sum(compress(self.widths, _bits(columns)))
        return min(1.0, weight) * (self.base_bytes + width)


def _bits(places: int) -> Iterator[bool]:
    """The bits of a set, lowest first, in one pass: it may have 100,000 of them.

    >>> list(_bits(0b110))
    [False, True, True]
    """
    return (digit == "1" for digit in reversed(f"{places:b}"))


@dataclass(frozen=True, slots=True)
class InterestPieces:
    """An interest as sets of pieces and columns of one universe.

    >>> ten = Universe.blocks(10)
    >>> small, large = InterestPieces(ten, 0b11), InterestPieces(ten, 0b111)
    >>> large.covers(small), small.covers(large), small.merge(InterestPieces(ten, 0b1000)).size
    (True, False, 0.30000000000000004)
    """

    universe: Universe
    rows: int
    columns: int = 0

    def covers(self, other: InterestPieces) -> bool:
        """Whether the other is within this one."""
        return not (other.rows & ~self.rows or other.columns & ~self.columns)

    def merge(self, other: InterestPieces) -> InterestPieces:
        """The union."""
        return InterestPieces(self.universe, self.rows | other.rows, self.columns | other.columns)

    @property
    def size(self) -> float:
        """Amortised size in bytes per row of the stream."""
        return self.universe.size(self.rows, self.columns)


AnyInterest = TypeVar("AnyInterest", bound=Interest)


def atomise(interests: Sequence[AnyInterest], row_bytes: float) -> tuple[Universe, list[InterestPieces]]:
    """Bring interests of any kind to pieces of one universe that has one piece per distinct interest.

    An interest holds its own piece and those of everything it covers, so inclusion tells exactly what covering told. A
    piece weighs what its interest has beyond the merge of what it covers: sizes are exact where interests nest or are
    apart, and an upper bound where they overlap without nesting.
    """
    distinct: list[AnyInterest] = []
    index: list[int] = []
    for interest in interests:
        for position, known in enumerate(distinct):
            if known.covers(interest) and interest.covers(known):
                index.append(position)
                break
        else:
            index.append(len(distinct))
            distinct.append(interest)
    rows, weights = [], []
    for position, interest in enumerate(distinct):
        held, below = 1 << position, None
        for other_position, other in enumerate(distinct):
            if other_position != position and interest.covers(other):
                held |= 1 << other_position
                below = other if below is None else below.merge(other)
        rows.append(held)
        weights.append(max(0.0, interest.size - (below.size if below is not None else 0.0)) / row_bytes)
    universe = Universe(tuple(weights), (), row_bytes)
    return universe, [InterestPieces(universe, rows[position]) for position in index]
