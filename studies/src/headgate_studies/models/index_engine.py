"""The box index as an engine: ranges around context values, one message or update at a time or in batches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from headgate.matching.admission.method import Numbers
from headgate.matching.compiled.index import BoxIndex
from headgate.matching.compiled.keys import float_keys
from headgate.matching.compiled.single import RowMatcher
from headgate.matching.lists import ClassLists
from headgate_studies.workloads.matching import Floats, MatchingWorkload

# Lazy changes pay only while few leaves are wide: one change in every leaf already makes most rows meet most leaves.
MAX_WIDENED = 1 / 100


class IndexEngine:
    """Messages and updates of a workload against an index, timed by a clock that is given.

    `rows[event]` is a message's place in `messages`, an update's place in the three update arrays.
    """

    def __init__(
        self,
        index: BoxIndex,
        workload: MatchingWorkload,
        rows: Numbers,
        messages: Floats,
        updates: tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64], Floats],
        clock: Callable[[], float],
    ) -> None:
        self._index, self._workload, self._rows, self._messages, self._clock = index, workload, rows, messages, clock
        self._ids, self._attributes, centres = updates
        half = workload.widths[self._attributes] / 2
        self._lows, self._highs = float_keys(centres - half), float_keys(centres + half)
        self._single = RowMatcher(index)
        self._single.match_floats(np.ascontiguousarray(messages[0]))

    def match(self, events: Numbers, *, batched: bool) -> tuple[ClassLists, float]:
        """Match messages, together or one by one."""
        rows = self._rows[events]
        if batched and len(rows) > 1:
            batch = self._workload.batch(self._messages[rows])
            start = self._clock()
            found = self._index.match(batch)
            return found, self._clock() - start
        parts, spent = [], 0.0
        for row in rows.tolist():
            message = np.ascontiguousarray(self._messages[row])
            start = self._clock()
            count = self._single.match_floats(message)
            spent += self._clock() - start
            parts.append(ClassLists(np.array([0, count], np.int64), self._single.out[:count].copy()))
        return (parts[0] if len(parts) == 1 else ClassLists.concat(parts)), spent

    def update(self, events: Numbers, *, batched: bool, lazy: bool) -> float:
        """Apply updates in order; alone they are still one call between two messages, as the paper measures them."""
        del batched
        rows = self._rows[events]
        ids, attributes, lows, highs = self._ids[rows], self._attributes[rows], self._lows[rows], self._highs[rows]
        start = self._clock()
        lazy = lazy and self._index.widened < MAX_WIDENED * len(self._index)
        self._index.change(ids, attributes, lows, highs, move=not lazy)
        return self._clock() - start
