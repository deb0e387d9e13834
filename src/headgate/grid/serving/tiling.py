"""Who owns which part of a grid while sites come and go: regions are halved for a newcomer and handed on by who leaves.

As in a content-addressable network (CAN), which the grid paper stands on: a site that joins takes half of the largest
region, along its longer side; what a site leaves goes to the site that has the other half of the rectangle it was cut
from, or else to the neighbour with least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.grid.serving.partition import Partition
from headgate.grid.space import DzSpace


@dataclass(frozen=True, slots=True, order=True)
class Tile:
    """A rectangle of cells: columns from `left` up to `right`, rows from `bottom` up to `top`."""

    left: int
    bottom: int
    right: int
    top: int

    @property
    def area(self) -> int:
        """Cells of the plane."""
        return (self.right - self.left) * (self.top - self.bottom)

    def halves(self) -> tuple[Tile, Tile] | None:
        """Both halves, cut across the longer side; None for a single cell.

        >>> Tile(0, 0, 4, 2).halves()
        (Tile(left=0, bottom=0, right=2, top=2), Tile(left=2, bottom=0, right=4, top=2))
        """
        if self.area < 2:
            return None
        if self.right - self.left >= self.top - self.bottom:
            middle = (self.left + self.right) // 2
            return Tile(self.left, self.bottom, middle, self.top), Tile(middle, self.bottom, self.right, self.top)
        middle = (self.bottom + self.top) // 2
        return Tile(self.left, self.bottom, self.right, middle), Tile(self.left, middle, self.right, self.top)

    def joined(self, other: Tile) -> Tile | None:
        """The rectangle that both are together, None where they are none.

        >>> Tile(0, 0, 2, 2).joined(Tile(2, 0, 4, 2))
        Tile(left=0, bottom=0, right=4, top=2)
        """
        around = Tile(
            min(self.left, other.left),
            min(self.bottom, other.bottom),
            max(self.right, other.right),
            max(self.top, other.top),
        )
        return around if around.area == self.area + other.area else None

    def beside(self, other: Tile) -> bool:
        """Whether the two share a part of a side."""
        across = min(self.right, other.right) - max(self.left, other.left)
        up = min(self.top, other.top) - max(self.bottom, other.bottom)
        return (across == 0 and up > 0) or (up == 0 and across > 0)


def partition_of(space: DzSpace, tiles: Sequence[tuple[str, Tile]]) -> Partition:
    """The partition of sites with their tiles; where tiles overlap, the later one counts.

    Raises:
        ValueError: Some cell is in no tile.
    """
    painted = np.full((space.shape[1], space.shape[0]), -1, dtype=np.int64)
    for number, (_, tile) in enumerate(tiles):
        painted[tile.bottom : tile.top, tile.left : tile.right] = number
    if (painted < 0).any():
        row, column = np.argwhere(painted < 0)[0].tolist()
        raise ValueError(f"nobody serves column {column}, row {row} of {space.shape[0]} by {space.shape[1]} cells")
    owners = sorted({tiles[number][0] for number in np.unique(painted).tolist()})
    places = np.array([owners.index(site) if site in owners else -1 for site, _ in tiles], dtype=np.int64)
    return Partition(space, tuple(owners), places[painted])


def split_for(tiles: Mapping[str, Tile]) -> tuple[str, Tile, Tile]:
    """Which part is cut for a newcomer: its name, the half that stays and the half that is given.

    >>> split_for({"a": Tile(0, 0, 4, 4)})[1:]
    (Tile(left=0, bottom=0, right=2, top=4), Tile(left=2, bottom=0, right=4, top=4))
    """
    name = max(sorted(tiles), key=lambda each: tiles[each].area)
    halves = tiles[name].halves()
    if halves is None:
        raise ValueError("every part is a single cell: there is nothing left to give to another site")
    return name, *halves


def heir_of(tiles: Mapping[str, Tile], leaving: str) -> tuple[str, Tile | None]:
    """Who takes a part over: its name, and the rectangle that it has then; None where it keeps two.

    >>> heir_of({"a": Tile(0, 0, 2, 4), "b": Tile(2, 0, 4, 2), "c": Tile(2, 2, 4, 4)}, "c")
    ('b', Tile(left=2, bottom=0, right=4, top=4))
    """
    gone = tiles[leaving]
    others = {name: tile for name, tile in tiles.items() if name != leaving}
    if not others:
        raise ValueError("it is the last part: nobody is left to take it over")
    whole = {name: gone.joined(tile) for name, tile in others.items()}
    twins = [name for name, tile in whole.items() if tile is not None]
    near = twins or [name for name, tile in others.items() if gone.beside(tile)] or list(others)
    heir = min(near, key=lambda name: (others[name].area, name))
    return heir, whole[heir]
