"""Plans: who forwards which stream to whom, one tree per stream. The planner makes them, the tuner improves them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

_NOTHING: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tree:
    """The delivery tree of one stream: a root site and the parent of every other member site.

    >>> tree = Tree("wind", "oslo", {"paris": "oslo", "lyon": "paris"})
    >>> tree.children("oslo"), tree.below("oslo")
    (('paris',), ('paris', 'lyon'))

    `standbys` are the sites that serve a member while its parent is dead, the best first, as the planner chose them
    (`headgate.planning.standby`). They are no part of what makes two trees equal: nobody moves when they change.
    """

    stream: str
    root: str
    parents: Mapping[str, str] = field(default_factory=dict)
    standbys: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if self.root in self.parents:
            raise ValueError(f"the root {self.root!r} of stream {self.stream!r} cannot have a parent")
        reached = set(self._walk(self.root))
        stray = sorted(set(self.parents) - reached)
        if stray:
            raise ValueError(f"in the tree of stream {self.stream!r} these sites do not hang below the root: {stray}")

    @cached_property
    def _children(self) -> dict[str, tuple[str, ...]]:
        children: dict[str, list[str]] = {}
        for child, parent in self.parents.items():
            children.setdefault(parent, []).append(child)
        return {parent: tuple(sorted(found)) for parent, found in children.items()}

    def _walk(self, site: str) -> Iterator[str]:
        pending = list(reversed(self.children(site)))
        while pending:
            found = pending.pop()
            yield found
            pending.extend(reversed(self.children(found)))

    @property
    def members(self) -> tuple[str, ...]:
        """Every site in the tree, the root first, parents before children."""
        return (self.root, *self._walk(self.root))

    def children(self, site: str) -> tuple[str, ...]:
        """Sites that this one forwards to, by name."""
        return self._children.get(site, _NOTHING)

    def below(self, site: str) -> tuple[str, ...]:
        """Strict descendants, parents before children."""
        return tuple(self._walk(site))

    def path(self, site: str) -> tuple[str, ...]:
        """Sites from the root down to this one, both included."""
        steps = [site]
        while steps[-1] != self.root:
            steps.append(self.parents[steps[-1]])
        return tuple(reversed(steps))

    def standbys_of(self, site: str) -> tuple[str, ...]:
        """Who serves a site while its parent is dead: as planned, else the sites above its parent, the nearest first.

        >>> Tree("wind", "oslo", {"paris": "oslo", "lyon": "paris"}).standbys_of("lyon")
        ('oslo',)
        """
        named = self.standbys.get(site)
        return self.path(site)[-3::-1] if named is None else tuple(named)


@dataclass(frozen=True)
class Plan:
    """The delivery trees of all streams."""

    trees: Mapping[str, Tree] = field(default_factory=dict)
