"""What evaluating each class takes, and a stop for those that take far more than was estimated.

A filter is priced before it is accepted (`headgate.filters.cost`); a stream of long texts, or an estimate that is
wrong, can make it cost a thousand times as much. A class that is new, or has taken too long before, is evaluated in
slices that grow; when it has spent its allowance of a batch the rest of the batch's rows is not looked at for it, and
is counted. All other classes get their rows as before. Where a stream is behind, classes of an identity that takes more
than its share are evaluated on a part of the rows (`headgate.matching.fair_shares`); the others are counted as well.
Classes that boxes decide are hidden from those rows (`headgate.matching.hiding`). Time comes from the clock that is
given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching.hiding import Span, spans_of
from headgate.matching.index import ClassSpec, RowFilter
from headgate.matching.lists import Ids

FACTOR: Final = 10.0
"""How many times its estimate a class may take."""
ALLOWED_US: Final = 20.0
"""What every class may take for a row, whatever its estimate is: the most that an estimate may be by default."""
GRACE_S: Final = 0.02
"""What every class may take in a batch, however few its rows are."""
TRUSTED_ROWS: Final = 4_096
_FIRST: Final = 32
_GROWTH: Final = 4
_GOLDEN: Final = 0.6180339887498949

Estimate = Callable[[RowFilter], float]
"""Microseconds a row that evaluating a filter was estimated to take, 0 where nobody knows."""


@dataclass(slots=True)
class ClassSpent:
    """What one class took since it was last asked: rows that it was evaluated on, seconds, rows that were left out.

    `slow` says that it took longer than its limit; else rows were left out as its owner has used up its share.
    """

    rows: int = 0
    seconds: float = 0.0
    left_out: int = 0
    limit_us: float = 0.0
    slow: bool = False


class Meter:
    """Evaluates classes by the clock. One for each stream and process; it remembers which classes to watch."""

    def __init__(self, clock: Callable[[], float], estimate: Estimate = lambda _: 0.0) -> None:
        self._clock = clock
        self._estimate = estimate
        self._limits_us: dict[int, tuple[RowFilter, float]] = {}
        self._trust: dict[int, int] = {}
        self._spent: dict[int, ClassSpent] = {}
        self._costs: dict[int, tuple[int, float]] = {}
        self._parts: Mapping[int, float] = {}
        self._turn = 0.0

    def serve(self, parts: Mapping[int, float], turn: int) -> None:
        """Evaluate these classes on a part of the rows only, beginning at another place in each `turn`."""
        self._parts, self._turn = parts, turn * _GOLDEN % 1.0

    def evaluate(self, spec: ClassSpec, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which rows a class takes, as far as it was looked at them."""
        first, stop = self._window(spec.id, batch.num_rows)
        rows = stop - first
        limit_us = self._limit_us(spec)
        allowed_s = GRACE_S + limit_us * rows / 1e6
        trusted = self._trust.get(spec.id, 0) >= TRUSTED_ROWS
        found = np.zeros(batch.num_rows, dtype=np.bool_)
        done, size, began = first, rows if trusted else _FIRST, self._clock()
        spent_s = 0.0
        while done < stop:
            part = batch if done == 0 and size >= batch.num_rows else batch.slice(done, min(size, stop - done))
            found[done : done + part.num_rows] = spec.filter.evaluate(part, spec.context)
            done += part.num_rows
            spent_s = self._clock() - began
            if spent_s > allowed_s:
                break
            size *= _GROWTH
        self._note(spec.id, done - first, batch.num_rows - (done - first), spent_s, limit_us)
        return found

    def spans(self, rows: int, decided: Callable[[Ids], Ids]) -> list[Span]:
        """How a batch is matched by an index that keeps shares: nothing where it is matched as a whole.

        `decided` says which of some classes the index decides alone. What they do not see is counted as left out.
        """
        if not self._parts or not rows:
            return []
        mine = decided(np.sort(np.fromiter(self._parts, np.uint32, len(self._parts))))
        found, left_out = spans_of(rows, {each: self._parts[each] for each in mine.tolist()}, self._turn)
        for identity, count in left_out.items():
            self._spent.setdefault(identity, ClassSpent()).left_out += count
        return found

    def _window(self, identity: int, rows: int) -> tuple[int, int]:
        """The rows that a class is evaluated on: all, or as many as it is served, side by side."""
        part = self._parts.get(identity)
        if part is None or not rows:
            return 0, rows
        wanted = min(rows, max(1, math.ceil(part * rows)))
        first = int(self._turn * (rows - wanted + 1))
        return first, first + wanted

    def _limit_us(self, spec: ClassSpec) -> float:
        known = self._limits_us.get(spec.id)
        if known is None or known[0] is not spec.filter:
            limit_us = max(FACTOR * self._estimate(spec.filter), ALLOWED_US)
            known = self._limits_us[spec.id] = spec.filter, limit_us
        return known[1]

    def _note(self, identity: int, done: int, left_out: int, seconds: float, limit_us: float) -> None:
        slow = seconds > GRACE_S + limit_us * done / 1e6
        self._trust[identity] = 0 if slow else self._trust.get(identity, 0) + done
        before = self._costs.get(identity, (0, 0.0))
        self._costs[identity] = before[0] + done, before[1] + seconds
        if slow or left_out:
            spent = self._spent.setdefault(identity, ClassSpent())
            spent.rows, spent.seconds = spent.rows + done, spent.seconds + seconds
            spent.left_out, spent.limit_us = spent.left_out + left_out, limit_us
            spent.slow = spent.slow or slow

    def take(self) -> dict[int, ClassSpent]:
        """The classes that took too long, or for which rows were left out, since this was last asked."""
        found, self._spent = self._spent, {}
        return found

    def take_costs(self) -> dict[int, tuple[int, float]]:
        """Of every class the rows that it was evaluated on and the seconds that it took, since this was last asked."""
        found, self._costs = self._costs, {}
        return found

    def forget(self, known: npt.NDArray[np.uint32]) -> None:
        """Forget all but these classes."""
        kept = set(known.tolist())
        self._limits_us = {identity: each for identity, each in self._limits_us.items() if identity in kept}
        self._trust = {identity: rows for identity, rows in self._trust.items() if identity in kept}
