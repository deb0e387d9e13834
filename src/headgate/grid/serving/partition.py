"""Who gathers which region: the partition of a stream's field over sites, and the distances that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from headgate.grid.decompose import decompose_batch
from headgate.grid.dzset import DzSet
from headgate.grid.space import DzSpace, Ints


@dataclass(frozen=True, eq=False)
class Partition:
    """A map of squares, each owned by one site: `owners[row, column]` indexes `sites`. Regions need no regular shape.

    The first two dimensions of the space are x and y; a site owns its squares at every resolution. Sites are
    neighbours when squares of theirs share a side.

    >>> partition = Partition.squares(DzSpace.round_robin({"x": 4, "y": 4}), 2)
    >>> partition.neighbours["s0"], partition.cells("s0").text()
    (('s1', 's2'), ('00',))
    """

    space: DzSpace
    sites: tuple[str, ...]
    owners: Ints

    def __post_init__(self) -> None:
        rows, columns = self.owners.shape
        if columns > self.space.shape[0] or rows > self.space.shape[1] or columns & (columns - 1) or rows & (rows - 1):
            raise ValueError("a partition has a power of two of squares a side, none smaller than a cell")
        if set(np.unique(self.owners)) != set(range(len(self.sites))):
            raise ValueError("every site must own a square and every square must have a site")

    @classmethod
    def squares(cls, space: DzSpace, side: int) -> Partition:
        """`side` by `side` sites of equal size, named s0, s1, ... row by row."""
        owners = np.arange(side * side, dtype=np.int64).reshape(side, side)
        return cls(space, tuple(f"s{i}" for i in range(side * side)), owners)

    @cached_property
    def neighbours(self) -> Mapping[str, tuple[str, ...]]:
        """Sites that share a border with each site."""
        found: dict[int, set[int]] = {i: set() for i in range(len(self.sites))}
        for one, other in ((self.owners[:, :-1], self.owners[:, 1:]), (self.owners[:-1], self.owners[1:])):
            for a, b in zip(one.ravel().tolist(), other.ravel().tolist(), strict=True):
                if a != b:
                    found[a].add(b)
                    found[b].add(a)
        return {self.sites[i]: tuple(self.sites[j] for j in sorted(near)) for i, near in found.items()}

    def cells(self, site: str) -> DzSet:
        """The cells that a site owns, at every resolution."""
        rows, columns = np.nonzero(self.owners == self.sites.index(site))
        wide, high = self.space.shape[0] // self.owners.shape[1], self.space.shape[1] // self.owners.shape[0]
        low = np.zeros((len(rows), len(self.space.names)), dtype=np.int64)
        top = np.tile(np.array(self.space.shape, dtype=np.int64), (len(rows), 1))
        low[:, 0], low[:, 1] = columns * wide, rows * high
        top[:, 0], top[:, 1] = low[:, 0] + wide, low[:, 1] + high
        _, codes, lengths = decompose_batch(self.space, low, top)
        return DzSet.from_expressions(self.space, codes, lengths)

    @cached_property
    def centres(self) -> Mapping[str, tuple[float, float]]:
        """Centre of gravity of each site's region, in fractions of the field."""
        found = {}
        for i, site in enumerate(self.sites):
            rows, columns = np.nonzero(self.owners == i)
            found[site] = (
                float((columns + 0.5).mean() / self.owners.shape[1]),
                float((rows + 0.5).mean() / self.owners.shape[0]),
            )
        return found

    def centre_of(self, code: int, length: int) -> tuple[float, float]:
        """Centre of an expression's region, in fractions of the field."""
        low, high = _bounds(self.space, code, length)
        return tuple((low[d] + high[d]) / 2 / self.space.shape[d] for d in range(2))  # type: ignore[return-value]  # two

    def middle(self, low: Sequence[int], high: Sequence[int]) -> tuple[float, float]:
        """Centre of a box of finest cells, in fractions of the field."""
        x, y = ((low[d] + high[d]) / 2 / self.space.shape[d] for d in range(2))
        return x, y

    def owner_at(self, place: tuple[float, float]) -> str:
        """The site whose region holds a place."""
        rows, columns = self.owners.shape
        column, row = min(int(place[0] * columns), columns - 1), min(int(place[1] * rows), rows - 1)
        return self.sites[int(self.owners[row, column])]

    def squares_of(self, codes: Ints, lengths: Ints) -> Ints:
        """Number of the square, row by row, that holds the centre of each expression's region."""
        half = np.int64(1) << np.maximum(self.space.digits - lengths - 1, 0)
        low = self.space.decode(codes)
        last = self.space.decode(codes + 2 * half - 1 if self.space.digits else codes)
        rows, columns = self.owners.shape
        column = (low[:, 0] + last[:, 0] + 1) * columns // (2 * self.space.shape[0])
        row = (low[:, 1] + last[:, 1] + 1) * rows // (2 * self.space.shape[1])
        return np.asarray(np.minimum(row, rows - 1) * columns + np.minimum(column, columns - 1))

    @cached_property
    def distances(self) -> npt.NDArray[np.float64]:
        """For each site and each square, the distance from the square's centre to the nearest square of the site."""
        rows, columns = np.indices(self.owners.shape).reshape(2, -1)
        table = np.empty((len(self.sites), rows.size))
        for i in range(len(self.sites)):
            own_rows, own_columns = np.nonzero(self.owners == i)
            across = np.maximum(np.abs(columns[:, None] - own_columns) - 0.5, 0) / self.owners.shape[1]
            up = np.maximum(np.abs(rows[:, None] - own_rows) - 0.5, 0) / self.owners.shape[0]
            table[i] = np.hypot(across, up).min(axis=1)
        return table

    def apart(self, one: str, place: tuple[float, float]) -> float:
        """Distance of a site's centre from a place, which orders sites as nearer to and farther from an origin."""
        x, y = self.centres[one]
        return float(np.hypot(x - place[0], y - place[1]))


def _bounds(space: DzSpace, code: int, length: int) -> tuple[Sequence[int], Sequence[int]]:
    """Cell numbers of the lower and upper corner of an expression's region."""
    low = space.decode([code])[0].tolist()
    last = space.decode([code + (1 << (space.digits - length)) - 1])[0].tolist()
    return low, [value + 1 for value in last]
