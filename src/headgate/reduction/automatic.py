"""`levels: auto`: the order of the levels follows what each of them is measured to drop.

The gentlest level that helps comes first, so that each further level gives up more; a level that drops almost nothing
goes behind the ones that help, because applying it costs time and frees no room (the paper's Figure 5 has three such
filters of six). A random level that drops what is needed stays last. The receiver's list says what is allowed, and
nothing else is ever applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headgate.reduction.filters.random import Random
from headgate.reduction.policy import Level

USELESS = 0.01
_EVERY = 8
_ALPHA = 0.3
_LOG = 100


@dataclass(frozen=True, slots=True)
class LevelChange:
    """One change of order: when, the labels before and after, and the fractions that led to it."""

    now: float
    before: tuple[str, ...]
    after: tuple[str, ...]
    fractions: tuple[float, ...]


def propose(levels: Sequence[Level], fractions: Sequence[float]) -> tuple[int, ...]:
    """The order to use: helpful levels by rising drop fraction, then useless ones, then what drops as needed."""

    def rank(index: int) -> tuple[int, float, int]:
        if tunes_itself(levels[index]):
            return 2, 0.0, index
        useless = fractions[index] < USELESS
        return (1, 0.0, index) if useless else (0, round(fractions[index], 2), index)

    return tuple(sorted(range(len(levels)), key=rank))


def tunes_itself(level: Level) -> bool:
    """Whether the level drops exactly what has to go."""
    return any(isinstance(found, Random) and found.fraction is None for found in level.filters)


@dataclass(slots=True)
class AutoOrder:
    """The current order of a policy's levels, smoothed measurements, and the log of changes (the last hundred)."""

    levels: tuple[Level, ...]
    order: tuple[int, ...] = ()
    fractions: list[float] = field(default_factory=list)
    log: list[LevelChange] = field(default_factory=list)
    packs: int = 0

    def __post_init__(self) -> None:
        self.order = tuple(range(len(self.levels)))

    def due(self) -> bool:
        """Whether this pack should measure: the first one and every eighth after it."""
        self.packs += 1
        return self.packs % _EVERY == 1

    def measured(self, now: float, fractions: list[float]) -> None:
        """Take in what each level alone would drop of the whole queue, and reorder if that changes the order."""
        old = self.fractions or fractions
        self.fractions = [(1 - _ALPHA) * a + _ALPHA * b for a, b in zip(old, fractions, strict=True)]
        order = propose(self.levels, self.fractions)
        if order != self.order:
            labels = [level.label for level in self.levels]
            change = LevelChange(
                now,
                tuple(labels[index] for index in self.order),
                tuple(labels[index] for index in order),
                tuple(self.fractions),
            )
            self.log = [*self.log, change][-_LOG:]
            self.order = order
