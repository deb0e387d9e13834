"""Fair shares of matching: while a stream is behind, whoever takes more of its matching than a fair share gets less.

What evaluating each class takes is measured (`headgate.matching.metering`); what classes of the index take is told from
their matches (`headgate.matching.indexed_shares`). A class belongs to the identities who subscribe to it, each of whom
bears an equal part of its cost. While micro-batches take longer than they may, a budget of microseconds a row is
divided among the identities by weighted max-min fairness: everybody gets what it needs, up to a share that is the same
for all who need more. What an identity gets is divided among its classes in the same way, so that its cheap filters go
on as before. A class that needs more than it gets is evaluated on a part of the rows.

The budget shrinks in proportion to the delay while the stream is behind, and grows slowly when it is not, until nobody
is cut any more. Nothing here has a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

LEAST_PART: Final = 1 / 64
"""The least part of the rows that a class is evaluated on: so that its cost stays known, and nobody gets nothing."""
HEAVY: Final = 0.2
"""The part of a micro-batch that evaluating classes must take for it to be the reason of a delay."""
ROOM: Final = 0.8
"""The part of its period that a micro-batch may take for the budget to grow."""
_GROWTH: Final = 1.1
_MOST_CUT: Final = 0.5
_LEAST_CUT: Final = 0.9
_FRESH: Final = 0.3
_ALL: Final = 1 - 1e-9  # sums are rounded


Key = TypeVar("Key", bound=Hashable)


def max_min(
    demands: Mapping[Key, float], capacity: float, weights: Mapping[Key, float] | None = None
) -> dict[Key, float]:
    """What each gets of a capacity: its demand, or a share by its weight where demands of all do not fit.

    >>> max_min({"ada": 10.0, "bob": 100.0, "eve": 400.0}, 200.0)
    {'ada': 10.0, 'bob': 95.0, 'eve': 95.0}
    >>> max_min({"bob": 100.0, "eve": 400.0}, 200.0, {"eve": 3.0})
    {'bob': 50.0, 'eve': 150.0}
    """
    weight = {each: 1.0 if weights is None else weights.get(each, 1.0) for each in demands}
    found = dict.fromkeys(demands, 0.0)
    left, heavy = capacity, sum(weight.values())
    for each in sorted(demands, key=lambda key: demands[key] / weight[key]):
        found[each] = min(demands[each], max(left, 0.0) * weight[each] / heavy)
        left, heavy = left - found[each], heavy - weight[each]
    return found


def smoothed(before: float | None, now: float) -> float:
    """A figure of a micro-batch with those before it."""
    return now if before is None else (1 - _FRESH) * before + _FRESH * now


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """What a micro-batch took: its rows, seconds from its start to its commit, tasks beside each other, rows shed.

    `spent` has by class the rows that it was evaluated on, and seconds.
    """

    rows: int
    seconds: float
    tasks: int
    shed: int
    spent: Mapping[int, tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Portion:
    """What one identity's filters take for a row of the stream, and what it is given, in microseconds."""

    identity: str
    needs_us: float
    gets_us: float


@dataclass(frozen=True, slots=True)
class Serving:
    """What the next micro-batch does: the part of the rows that each class is evaluated on, where that is not all.

    `portions` are those of all identities, the largest need first; both are empty while the stream keeps up.
    """

    parts: Mapping[int, float] = field(default_factory=dict)
    portions: tuple[Portion, ...] = ()


EVERYTHING: Final = Serving()


def part_of(got_us: float, needed_us: float) -> float:
    """The part of the rows for which a class is looked at that gets less than it needs."""
    return 1.0 if got_us >= _ALL * needed_us else max(got_us / needed_us, LEAST_PART)


class MatchingBudget:
    """What some part of matching may take for a row while the stream is behind.

    `period_s` is how long a micro-batch may take: when it takes longer, the next one begins late.
    """

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self.row_us: float | None = None
        """None while the stream keeps up, or where that part is not the reason that it does not."""

    def _late(self, load: BatchLoad) -> bool:
        return load.seconds > self._period_s or load.shed > 0

    def overrun(self, load: BatchLoad, spent_s: float) -> bool:
        """Whether a micro-batch was late, and that part of matching, which took so many seconds, is the reason."""
        return self._late(load) and spent_s / max(load.tasks, 1) > HEAVY * load.seconds

    def learn(self, load: BatchLoad, spent_s: float, needed_us: float) -> None:
        """Take in a micro-batch in which that part took so many seconds, and would take so much for every row."""
        if self.overrun(load, spent_s):
            before = needed_us if self.row_us is None else min(self.row_us, needed_us)
            cut = min(max(self._period_s / load.seconds, _MOST_CUT), _LEAST_CUT)
            self.row_us = max(before * cut, needed_us * LEAST_PART)
        elif self.row_us is not None and not self._late(load) and load.seconds < ROOM * self._period_s:
            self.row_us *= _GROWTH
            if self.row_us >= needed_us:
                self.row_us = None


class FairShares:
    """Learns what classes that are evaluated one by one cost; one for each stream, in its driver."""

    def __init__(self, period_s: float) -> None:
        self._costs_us: dict[int, float] = {}
        self._budget = MatchingBudget(period_s)

    @property
    def budget_us(self) -> float | None:
        """What evaluating all classes may take for a row; None while the stream keeps up."""
        return self._budget.row_us

    def learn(self, load: BatchLoad) -> None:
        """Take in a micro-batch; classes that it did not evaluate are forgotten."""
        if not load.rows:
            return
        self._costs_us = {each: self._smooth(each, *spent) for each, spent in load.spent.items() if spent[0]}
        spent_s = sum(seconds for _, seconds in load.spent.values())
        self._budget.learn(load, spent_s, sum(self._costs_us.values()))

    def _smooth(self, identity: int, rows: int, seconds: float) -> float:
        now_us, before_us = seconds * 1e6 / rows, self._costs_us.get(identity)
        return smoothed(before_us, now_us)

    def serve(self, owners: Mapping[int, Collection[str]], weights: Mapping[str, float] | None = None) -> Serving:
        """Whom to serve less, by who subscribes to which class. A class of nobody is not cut."""
        if self.budget_us is None:
            return EVERYTHING
        needs: dict[str, dict[int, float]] = {}
        for identity, owner, cost_us in self._borne(owners):
            needs.setdefault(owner, {})[identity] = cost_us
        totals = {owner: sum(costs.values()) for owner, costs in needs.items()}
        given = max_min(totals, self.budget_us, weights)
        parts: dict[int, float] = {}
        for owner, costs in needs.items():
            for identity, got_us in max_min(costs, given[owner]).items():
                parts[identity] = max(parts.get(identity, 0.0), part_of(got_us, costs[identity]))
        portions = [Portion(owner, total, given[owner]) for owner, total in totals.items()]
        return Serving(
            {identity: part for identity, part in parts.items() if part < 1.0},
            tuple(sorted(portions, key=lambda each: -each.needs_us)),
        )

    def _borne(self, owners: Mapping[int, Collection[str]]) -> Iterator[tuple[int, str, float]]:
        """Of each class and each of its owners, the part of the cost that the owner bears."""
        for identity, cost_us in self._costs_us.items():
            mine = owners.get(identity, ())
            for owner in mine:
                yield identity, owner, cost_us / len(mine)
