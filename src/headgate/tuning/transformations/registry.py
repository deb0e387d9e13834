"""Which transformations are tried on a unit, and on which of its members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib.metadata import entry_points

from headgate.tuning.transformations.composites import (
    deep_demotion,
    deep_promotion,
    parent_child_swap,
    sibling_swap,
    subtree_migration,
    subtree_promotion,
)
from headgate.tuning.transformations.primitives import child_demotion, child_promotion
from headgate.tuning.transformations.workbench import Refused, Workbench
from headgate.tuning.unit import Unit

Rule = Callable[..., None]
Sites = Callable[[Unit], Iterable[tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Transformation:
    """A rule and the members it is tried on. A user's own needs these few lines and nothing else.

    >>> def second_child_up(bench, site):
    ...     bench.promote(bench.children(site)[-1])
    >>> Transformation("second child up", second_child_up, lambda unit: [(j,) for j in unit.children(unit.owner)]).name
    'second child up'
    """

    name: str
    rule: Rule
    sites: Sites


@dataclass(frozen=True, slots=True)
class Candidate:
    """One transformation of one unit: the new parents it ends with, and the primitive steps that lead there."""

    name: str
    owner: int
    arguments: tuple[int, ...]
    moves: tuple[tuple[int, int], ...]
    steps: tuple[tuple[str, int, int], ...]


def apply(unit: Unit, transformation: Transformation, arguments: tuple[int, ...]) -> Candidate | None:
    """Run a rule on a unit; None when the unit refuses it or nothing would change."""
    bench = Workbench(unit)
    try:
        transformation.rule(bench, *arguments)
    except Refused:
        return None
    moves = bench.moves()
    if not moves:
        return None
    return Candidate(transformation.name, unit.owner, arguments, moves, tuple(bench.steps))


def candidates(
    unit: Unit,
    transformations: Iterable[Transformation],
    demotions: AbstractSet[tuple[int, int]] | None = None,
    joins: AbstractSet[tuple[int, int]] | None = None,
) -> Iterator[Candidate]:
    """Everything that can be done to a unit, in a stable order; of child demotions only `demotions` where given.

    `joins` has the pairs of child and parent that can connect, None when all can: no site gets a parent that it, or
    that, cannot reach.
    """
    for transformation in transformations:
        screened = demotions is not None and transformation.rule is child_demotion
        for arguments in sorted(demotions or ()) if screened else transformation.sites(unit):
            candidate = apply(unit, transformation, arguments)
            if candidate is not None and (joins is None or set(candidate.moves) <= joins):
                yield candidate


def _children(unit: Unit) -> list[tuple[int, ...]]:
    return [(site,) for site in unit.children(unit.owner)]


def _grandchildren(unit: Unit) -> list[tuple[int, ...]]:
    return [(below,) for site in unit.children(unit.owner) for below in unit.children(site)]


def _deep(unit: Unit) -> list[tuple[int, ...]]:
    near = {unit.top, unit.owner, *unit.children(unit.owner)}
    near.update(below for (below,) in _grandchildren(unit))
    return [(site,) for site in unit.members if site not in near]


def _pairs(unit: Unit) -> list[tuple[int, ...]]:
    below = unit.children(unit.owner)
    return [(one, other) for one in below for other in below if one != other]


def _from_parents(unit: Unit) -> list[tuple[int, ...]]:
    below = unit.children(unit.owner)
    return [(one, other) for one in below if unit.children(one) for other in below if one != other]


def _two_parents(unit: Unit) -> list[tuple[int, ...]]:
    below = [site for site in unit.children(unit.owner) if unit.children(site)]
    return [(one, other) for index, one in enumerate(below) for other in below[index + 1 :]]


def _nephews(unit: Unit) -> list[tuple[int, ...]]:
    if unit.levels < 4:  # the last level keeps its children: a transformation is transparent outside of the unit
        return []
    below = unit.children(unit.owner)
    return [(one, nephew) for one in below for other in below if one != other for nephew in unit.children(other)]


def _swappable(unit: Unit) -> list[tuple[int, ...]]:
    return [] if unit.top == unit.owner else _children(unit)


STANDARD: tuple[Transformation, ...] = (
    Transformation("child promotion", child_promotion, _grandchildren),
    Transformation("child demotion", child_demotion, _pairs),
    Transformation("subtree promotion", subtree_promotion, _children),
    Transformation("parent-child swap", parent_child_swap, _swappable),
    Transformation("subtree migration", subtree_migration, _from_parents),
    Transformation("sibling swap", sibling_swap, _two_parents),
)
# For units of four levels and more.
WIDE: tuple[Transformation, ...] = (
    *STANDARD,
    Transformation("deep promotion", deep_promotion, _deep),
    Transformation("deep demotion", deep_demotion, _nephews),
)


def named(*names: str) -> tuple[Transformation, ...]:
    """Some of the known transformations, by name."""
    known = {transformation.name: transformation for transformation in WIDE}
    return tuple(known[name] for name in names)


def installed() -> tuple[Transformation, ...]:
    """Transformations that installed packages offer as entry points of the group `headgate.tuning.transformations`."""
    return tuple(point.load() for point in entry_points(group="headgate.tuning.transformations"))
