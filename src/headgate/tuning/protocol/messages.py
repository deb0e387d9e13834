"""What sites say to each other, and how many bytes that takes: 8 a number, 4 a site, one bit a profile atom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headgate.tuning.overlay import Bits
from headgate.tuning.protocol.superpose import TreeChange
from headgate.tuning.states import Prefix
from headgate.tuning.unit import Facts, Frontier

HEADER = 24
NUMBER = 8
SITE = 4

States: TypeAlias = tuple[Any, ...]
Values: TypeAlias = tuple[tuple[float, ...], ...]


def profile_bytes(profile: Bits | None) -> int:
    """Bytes of a profile on the wire."""
    return 0 if profile is None else -(-len(profile) // 8)


class TuningMessage:
    """Base of everything that is sent; small messages are a header."""

    __slots__ = ()

    @property
    def bytes(self) -> int:
        """Size on the wire."""
        return HEADER


@dataclass(frozen=True, slots=True)
class SubtreeReport(TuningMessage):
    """Maintenance, to the parent: what hangs below the sender, relative to it, and the sender's own values.

    `numbers` counts the numbers of `below`. The merged profile is sent only when it changed: it travels up until a
    site's own profile covers it. `elsewhere` is what the sender does in its other trees, where it has some.
    """

    below: States
    local: Values
    fixed: Values
    weights: tuple[int, ...]
    partials: tuple[tuple[tuple[float, int, float, float], ...], ...]
    sites: int
    fanout: int
    out_rate: float
    own_rate: float
    numbers: int
    merged: Bits | None = None
    elsewhere: Mapping[str, float] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Size on the wire."""
        values = sum(len(local) + len(fixed) for local, fixed in zip(self.local, self.fixed, strict=True))
        held = 4 * sum(len(partial) for partial in self.partials)
        numbers = self.numbers + values + held + 2 + len(self.elsewhere)
        return HEADER + NUMBER * numbers + SITE * 2 + profile_bytes(self.merged)


@dataclass(frozen=True, slots=True)
class Surroundings(TuningMessage):
    """Maintenance, to a child: the prefix above it, what lies outside of its subtree, and where to go in need."""

    prefix: tuple[Prefix, ...]
    outside: States
    grandparent: int
    root: int
    branch: int
    total: int
    beat: int
    numbers: int

    @property
    def bytes(self) -> int:
        """Size on the wire."""
        return HEADER + NUMBER * (self.numbers + 2 * sum(len(prefix) for prefix in self.prefix)) + SITE * 5


@dataclass(frozen=True, slots=True)
class Beat(TuningMessage):
    """A sign of life without statistics, for phases in which the sender does not take part."""

    beat: int


@dataclass(frozen=True, slots=True)
class SubtreeTotals(TuningMessage):
    """Maintenance, from the root of one tree to those of the others: what its tree adds up to, for every cost."""

    stream: int
    results: States
    numbers: int

    @property
    def bytes(self) -> int:
        """Size on the wire."""
        return HEADER + SITE + NUMBER * self.numbers


@dataclass(frozen=True, slots=True)
class Attach(TuningMessage):
    """A site asks to become a child: it joins, moves, or has lost its parent."""

    facts: Facts
    report: SubtreeReport

    @property
    def bytes(self) -> int:
        """Size on the wire."""
        return self.report.bytes + NUMBER * (2 + len(self.facts.constants))


@dataclass(frozen=True, slots=True)
class Attached(TuningMessage):
    """The new parent agrees."""

    surroundings: Surroundings

    @property
    def bytes(self) -> int:
        """Size on the wire."""
        return self.surroundings.bytes


@dataclass(frozen=True, slots=True)
class Detach(TuningMessage):
    """A child leaves its parent."""


@dataclass(frozen=True, slots=True)
class Leaving(TuningMessage):
    """A parent leaves; its children go to `heir`."""

    heir: int


@dataclass(frozen=True, slots=True)
class UnitRequest(TuningMessage):
    """Optimisation: the owner asks its parent and children for their part of the unit, `depth` levels down."""

    period: int
    depth: int


@dataclass(frozen=True, slots=True)
class ReportPart:
    """One member of a unit as it travels; frontiers and weights are one for each cost."""

    site: int
    parent: int
    facts: Facts
    weights: tuple[int, ...]
    frontiers: tuple[Frontier, ...]
    numbers: int

    @property
    def bytes(self) -> int:
        """Size on the wire."""
        profile = profile_bytes(self.facts.profile) + profile_bytes(self.frontiers[0].profile)
        partials = 4 * sum(len(frontier.partials) for frontier in self.frontiers)
        known = len(self.facts.constants) + len(self.facts.elsewhere)
        return SITE * 2 + NUMBER * (self.numbers + partials + known + 4) + profile


@dataclass(frozen=True, slots=True)
class BranchReply(TuningMessage):
    """Optimisation: a child's part of the unit, itself first."""

    period: int
    parts: tuple[ReportPart, ...]

    @property
    def bytes(self) -> int:
        """Size on the wire."""
        return HEADER + sum(part.bytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class ParentReply(TuningMessage):
    """Optimisation: the parent's part of the unit, and everything above and around it."""

    period: int
    part: ReportPart
    above: int
    prefix: tuple[Prefix, ...]
    outside: States
    numbers: int

    @property
    def bytes(self) -> int:
        """Size on the wire."""
        above = self.numbers + 2 * sum(len(prefix) for prefix in self.prefix)
        return HEADER + self.part.bytes + SITE + NUMBER * above


@dataclass(frozen=True, slots=True)
class MeasureRequest(TuningMessage):
    """Optimisation: measure your links to these members."""

    period: int
    targets: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Size on the wire."""
        return HEADER + SITE * len(self.targets)


@dataclass(frozen=True, slots=True)
class MeasureReply(TuningMessage):
    """Optimisation: values of links from the sender, by metric and target."""

    period: int
    values: dict[tuple[str, int], float]

    @property
    def bytes(self) -> int:
        """Size on the wire."""
        return HEADER + (SITE + NUMBER) * len(self.values)


@dataclass(frozen=True, slots=True)
class Proposal(TuningMessage):
    """Optimisation, to the root: the best change of a unit, what it brings, and what it touches.

    `change` has the costs that it exchanges, for holistic objectives whose changes run side by side; `stream` says
    which tree it would change, where there are several.
    """

    period: int
    owner: int
    name: str
    moves: tuple[tuple[int, int], ...]
    touched: frozenset[int]
    branch: int
    benefit: float
    relief: float
    after: float
    at_random: bool = False
    change: TreeChange | None = None
    stream: int = 0

    @property
    def bytes(self) -> int:
        """Size on the wire."""
        rows = 0 if self.change is None else len(self.change)
        return HEADER + NUMBER * 3 + SITE * (2 * len(self.moves) + len(self.touched) + 2) + (NUMBER + SITE) * rows


@dataclass(frozen=True, slots=True)
class Decision(TuningMessage):
    """Optimisation, from the root: carry out what you proposed in this period."""

    period: int


@dataclass(frozen=True, slots=True)
class Move(TuningMessage):
    """Optimisation, from the owner: hang below `parent` now, if you still hang below `old`."""

    period: int
    parent: int
    old: int


@dataclass(frozen=True, slots=True)
class Moved(TuningMessage):
    """Optimisation, to the owner: done, or refused because the tree has changed meanwhile."""

    period: int
    done: bool


MAINTENANCE = (SubtreeReport, Surroundings, SubtreeTotals, Beat, Attach, Attached, Detach, Leaving)
