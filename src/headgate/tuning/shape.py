"""The shape of a tree as a vector of parents, for the hot paths; `model.Tree` stands at the edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from headgate.model import Tree
from headgate.tuning.overlay import Ints

ROOT = -1


class Shape:
    """Parents and children of numbered sites; `order` lists members, parents before children. Never changed once made.

    The root's parent is -1; sites that are not members have -2.

    >>> shape = Shape([-1, 0, 0, 1])
    >>> shape.children[0], shape.order, shape.depth(3)
    ([1, 2], [0, 2, 1, 3], 2)
    """

    __slots__ = ("children", "order", "parents", "root")

    def __init__(self, parents: Sequence[int] | Ints) -> None:
        self.parents: list[int] = [int(parent) for parent in parents]
        self.children: list[list[int]] = [[] for _ in self.parents]
        roots = [site for site, parent in enumerate(self.parents) if parent == ROOT]
        if len(roots) != 1:
            raise ValueError(f"a tree has one root, not {len(roots)}")
        self.root = roots[0]
        for site, parent in enumerate(self.parents):
            if parent >= 0:
                self.children[parent].append(site)
        self.order: list[int] = self._downwards()
        if len(self.order) != sum(parent != -2 for parent in self.parents):
            raise ValueError("some sites do not hang below the root")

    @classmethod
    def of(cls, tree: Tree, numbers: dict[str, int]) -> Shape:
        """The shape of a tree whose sites have these numbers."""
        parents = [-2] * len(numbers)
        parents[numbers[tree.root]] = ROOT
        for child, parent in tree.parents.items():
            parents[numbers[child]] = numbers[parent]
        return cls(parents)

    def tree(self, stream: str, names: Sequence[str]) -> Tree:
        """The tree with its sites' names."""
        return Tree(
            stream,
            names[self.root],
            {names[site]: names[parent] for site, parent in enumerate(self.parents) if parent >= 0},
        )

    def _downwards(self) -> list[int]:
        """Members, parents before children."""
        found, pending = [], [self.root]
        while pending:
            site = pending.pop()
            found.append(site)
            pending.extend(self.children[site])
        return found

    def depth(self, site: int) -> int:
        """Links between a site and the root."""
        count = 0
        while self.parents[site] >= 0:
            site, count = self.parents[site], count + 1
        return count

    def moved(self, moves: Iterable[tuple[int, int]]) -> Shape:
        """A copy with new parents for some sites."""
        parents = list(self.parents)
        for site, parent in moves:
            parents[site] = parent
        return Shape(parents)

    def array(self) -> Ints:
        """The parents as an array."""
        return np.array(self.parents, dtype=np.int64)
