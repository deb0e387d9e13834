"""Fair shares of the index: what classes take that boxes decide, told from their matches, and who is served less.

Nothing measures a single class there. What a micro-batch took to look rows up and to write and count their classes
grows with the matches, so a match costs its part of that, and a class as much as it has matches for a row. While a
stream is behind because of it, identities who take more than a fair share are served less, as by
`headgate.matching.fair_shares`, with two exceptions. Whoever takes no more than the median of all identities is never
served less: where all take the same nobody is to blame, and admission control is the remedy. And subscriptions without
an owner are those of operators, who have no limits. Nothing here has a clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from headgate.matching.fair_shares import (
    EVERYTHING,
    BatchLoad,
    MatchingBudget,
    Portion,
    Serving,
    max_min,
    part_of,
    smoothed,
)

NOBODY: Final = ""
"""The identity of subscriptions without an owner."""


@dataclass(frozen=True, slots=True)
class IndexedLoad:
    """What the index took in a micro-batch: seconds to look rows up and to write and count their classes.

    `ids` and `counts` are the classes that matched, each once, and how many rows each. `left_out` has by class the
    rows that it was not looked at for.
    """

    seconds: float
    ids: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.uint64]
    left_out: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OwnerTable:
    """Who subscribes to which class as arrays: an entry for each class and owner, ascending by class.

    `parts` is the part of the cost of its class that an owner bears.
    """

    names: tuple[str, ...]
    classes: npt.NDArray[np.uint64]
    owners: npt.NDArray[np.int64]
    parts: npt.NDArray[np.float64]

    @classmethod
    def of(cls, owners: Mapping[int, Collection[str]]) -> Self:
        """The table of who subscribes to which class."""
        numbers: dict[str, int] = {}
        entries = [
            (identity, numbers.setdefault(owner, len(numbers)), 1 / len(mine))
            for identity, mine in sorted(owners.items())
            for owner in sorted(mine)
        ]
        return cls(
            tuple(numbers),
            np.array([each[0] for each in entries], np.uint64),
            np.array([each[1] for each in entries], np.int64),
            np.array([each[2] for each in entries], np.float64),
        )


class IndexedShares:
    """Learns what classes of the index cost and whether that holds a stream up; one for each stream, in its driver."""

    def __init__(self, period_s: float) -> None:
        self._budget = MatchingBudget(period_s)
        self._match_us: float | None = None
        self._ids = np.empty(0, np.uint64)
        self._costs_us = np.empty(0, np.float64)

    @property
    def budget_us(self) -> float | None:
        """What the index may take for a row; None while the stream keeps up."""
        return self._budget.row_us

    def concerned(self, load: BatchLoad, seconds: float) -> bool:
        """Whether a micro-batch in which the index took so many seconds has to be learnt."""
        return self._budget.row_us is not None or self._budget.overrun(load, seconds)

    def learn(self, load: BatchLoad, indexed: IndexedLoad) -> None:
        """Take in a micro-batch; what classes that are evaluated one by one took is not the index's."""
        matches = int(indexed.counts.sum())
        if not load.rows or not matches:
            return
        self._match_us = smoothed(self._match_us, indexed.seconds * 1e6 / matches)
        mine = ~np.isin(indexed.ids, np.fromiter(load.spent, np.uint64, len(load.spent)))
        self._ids = indexed.ids[mine]
        seen = np.full(len(self._ids), load.rows, np.float64)
        for identity, count in indexed.left_out.items():
            place = int(np.searchsorted(self._ids, identity))
            if place < len(self._ids) and self._ids[place] == identity:
                seen[place] = max(1, load.rows - count)
        self._costs_us = indexed.counts[mine] * self._match_us / seen
        self._budget.learn(load, indexed.seconds, float(self._costs_us.sum()))

    def serve(self, table: OwnerTable, weights: Mapping[str, float] | None = None) -> Serving:
        """Whom to serve less, by who subscribes to which class."""
        if self._budget.row_us is None or not len(self._ids):
            return EVERYTHING
        borne = self._borne(table)
        totals = np.bincount(table.owners, borne, len(table.names))
        needs = {name: float(need) for name, need in zip(table.names, totals, strict=True) if need > 0}
        weight = {name: (weights or {}).get(name, 1.0) for name in needs}
        given = max_min(needs, self._budget.row_us, weights)
        level = sorted(need / weight[name] for name, need in needs.items())[(len(needs) - 1) // 2] if needs else 0.0
        gets = {name: max(given[name], min(need, level * weight[name])) for name, need in needs.items()}
        cut = {name for name, need in needs.items() if name != NOBODY and part_of(gets[name], need) < 1.0}
        parts = self._parts(table, borne, {name: gets[name] for name in cut})
        if not parts:
            return EVERYTHING
        portions = [Portion(name, need, gets[name] if name in cut else need) for name, need in needs.items()]
        return Serving(parts, tuple(sorted(portions, key=lambda each: -each.needs_us)))

    def _borne(self, table: OwnerTable) -> npt.NDArray[np.float64]:
        """What each entry of the table bears."""
        places = np.minimum(np.searchsorted(self._ids, table.classes), len(self._ids) - 1)
        costs = np.where(self._ids[places] == table.classes, self._costs_us[places], 0.0)
        return np.asarray(costs * table.parts, np.float64)

    @staticmethod
    def _parts(table: OwnerTable, borne: npt.NDArray[np.float64], gets: Mapping[str, float]) -> dict[int, float]:
        """The part of the rows of each class all of whose owners are served less."""
        spared = np.isin(table.owners, [number for number, name in enumerate(table.names) if name not in gets])
        kept = np.unique(table.classes[spared])
        found: dict[int, float] = {}
        for number, name in enumerate(table.names):
            if name not in gets:
                continue
            mine = np.flatnonzero((table.owners == number) & (borne > 0))
            costs = dict(zip(table.classes[mine].tolist(), borne[mine].tolist(), strict=True))
            for identity, got_us in max_min(costs, gets[name]).items():
                found[identity] = max(found.get(identity, 0.0), part_of(got_us, costs[identity]))
        among = set(np.intersect1d(np.fromiter(found, np.uint64, len(found)), kept).tolist())
        return {identity: part for identity, part in found.items() if part < 1.0 and identity not in among}
