"""What sites that tune the overlay and home say to each other, beside the messages of `headgate.tuning.protocol`.

A unit asks home every maintenance period what holds (`AskHome`). Home answers with the run and the parents of the plan
in force (`HomeWord`), and with everything that the unit needs to begin (`TuningBrief`) when the run is another one. The
owner of a transformation asks home to put it in force (`AskCommit`) before anybody moves, so that the catalog's plan
stays the one truth about who hangs where. The judge tells home what the objective costs, which it knows from messages
alone (`TellCost`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.tuning.overlay import Bits, PieceSizes


@dataclass(frozen=True, slots=True)
class TreeBrief:
    """One stream's tree as one site has to know it before it starts.

    Attributes:
        stream: The name of the stream.
        root: The number of the root's site.
        member: Whether the site is in the tree at all.
        clients: Subscriptions of the stream at the site.
        profile: The pieces of the stream that the site itself asks for.
        sizing: What pieces are worth, the same at every site.
        constants: Values of the site that no tree changes, by metric.
    """

    stream: str
    root: int
    member: bool
    clients: int
    profile: Bits
    sizing: PieceSizes
    constants: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class TuningBrief:
    """All that a site needs to take part in a run: what is wanted, the clockwork, and what is known of itself.

    Attributes:
        run: The number of the run; messages of another run are passed over.
        began_s: Wall clock of its beginning. Periods are counted from here: clocks should agree within a tenth of one.
        sites: Names by number.
        number: The number of the site itself.
        objective: What is optimised, in the language of objectives.
        constraints: What has to hold, the implicit ones included.
        levels: Levels of an optimisation unit.
        maintenance_s: Seconds between two reports.
        optimisation_s: Seconds of an optimisation period.
        modes: Any of `opportunistic`, `random` and `concurrent`.
        approximate: The constant p of the statistics approximation, None to send statistics in every phase.
        fixed: Whether link figures are given and nobody measures.
        links: Values of links from this site to every other, by metric: what is known as long as nobody has measured.
        trees: All trees, in the order of their numbers.
        joins: Pairs of child and parent that can connect, None when all can.
    """

    run: int
    began_s: float
    sites: tuple[str, ...]
    number: int
    objective: str
    constraints: tuple[str, ...]
    levels: int
    maintenance_s: float
    optimisation_s: float
    modes: tuple[str, ...]
    approximate: float | None
    fixed: bool
    links: Mapping[str, tuple[float, ...]]
    trees: tuple[TreeBrief, ...]
    joins: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class AskHome:
    """To home: what holds? `run` is the run that the site is in, 0 for none."""

    run: int


@dataclass(frozen=True, slots=True)
class HomeWord:
    """From home: the run, 0 when nobody tunes; the site's parent in each tree of the plan in force.

    A parent of -1 says that the site is the root, -2 that it is not in the tree.
    """

    run: int
    parents: tuple[int, ...] = ()
    brief: TuningBrief | None = None


@dataclass(frozen=True, slots=True)
class AskCommit:
    """To home, from the owner of a unit: put this transformation in force. Moves are site, new parent, old parent."""

    run: int
    tree: int
    period: int
    name: str
    moves: tuple[tuple[int, int, int], ...]
    benefit: float
    relief: float
    after: float
    at_random: bool


@dataclass(frozen=True, slots=True)
class CommitWord:
    """From home: whether it is in force, since which revision, or why not."""

    done: bool
    revision: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class TellMoved:
    """To home, from the owner: all members of a transformation have moved, others may touch them again."""

    run: int
    tree: int
    period: int


@dataclass(frozen=True, slots=True)
class TellCost:
    """To home, from the judge: what the objective costs now and by how much each constraint is missed.

    `sites` counts the members of its tree that the figures stand on; `deciding` says that it is about to decide.
    """

    run: int
    period: int
    deciding: bool
    at_s: float
    cost: float
    missed: tuple[float, ...]
    sites: int
    lost: int = 0


@dataclass(frozen=True, slots=True)
class UnitLetter:
    """A message from the unit of one site to that of another, in one tree; without one it asks for a sign of life."""

    run: int
    sender: str
    tree: int
    message: object = None


HomeQuestion = AskHome | AskCommit | TellCost | TellMoved


@dataclass(slots=True)
class LetterCounts:
    """Letters that a unit has sent, and those that nobody took."""

    sent: int = 0
    lost: int = 0
    unreadable: int = 0
    bytes: int = 0
    pings: int = 0
    by_type: dict[str, int] = field(default_factory=dict)
