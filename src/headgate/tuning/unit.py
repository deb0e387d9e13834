"""An optimisation unit (XPORT, figure 2): a site, its parent, and the levels below it, with what each member knows.

A unit holds everything that pricing a transformation needs and nothing else: members with their own facts, the state
of what hangs below the last level (the *frontier*), the prefix above, and what the rest of the system adds up to. In
the protocol it is put together from messages; `snapshot` cuts it out of a tree that one process holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from headgate.tuning.overlay import Bits
from headgate.tuning.states import Prefix

Measure = Callable[[str, int, int], float]


@dataclass(frozen=True, slots=True)
class Facts:
    """What a site knows of itself, whatever this tree looks like; `elsewhere` is what it does in the other trees.

    `own_rate` stands in for the size of `profile` where only merged profiles travel.
    """

    weight: int
    clients: int
    profile: Bits | None = None
    constants: Mapping[str, float] = field(default_factory=dict)
    elsewhere: Mapping[str, float] = field(default_factory=dict)
    own_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Frontier:
    """What hangs below a member but outside of the unit, as that member sees it.

    `partials` holds, for each children term, the values of the outside children: (sum, count, least, greatest).
    """

    fanout: int
    state: Any
    partials: tuple[tuple[float, int, float, float], ...] = ()
    profile: Bits | None = None
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class UnitMember:
    """A site inside the unit."""

    site: int
    facts: Facts
    frontier: Frontier


@dataclass(frozen=True)
class Unit:
    """A unit: `top` is the owner's parent (the owner itself at the root), `parents` the links inside the unit.

    `prefix` is the aggregate above `top`, whose own parent is `above` (-1 at the root); `outside` is the absolute
    result of every site that is not below `top`; `levels` counts the owner's level and those below it.
    """

    owner: int
    top: int
    above: int
    levels: int
    members: Mapping[int, UnitMember]
    parents: Mapping[int, int]
    prefix: Prefix
    outside: Any

    @cached_property
    def below(self) -> dict[int, tuple[int, ...]]:
        """Children inside the unit of every member, in a stable order."""
        found: dict[int, list[int]] = {site: [] for site in self.members}
        for child, parent in self.parents.items():
            found[parent].append(child)
        return {site: tuple(children) for site, children in found.items()}

    def children(self, site: int) -> tuple[int, ...]:
        """Children inside the unit."""
        return self.below[site]
