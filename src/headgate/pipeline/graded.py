"""Rows that are withheld from some groups of classes: matched for the others alone, woven back, and what it costs.

Groups are ordered by what they tolerate, most tolerant first. A row of depth d is withheld from the first d of them, so
it is matched with an index of the classes of the rest; at the full depth it is shed. Rows keep their places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching import ClassLists, ContextState
from headgate.matching.admission import BatchGate, ErrorEstimate, Gated, Level, estimate_errors
from headgate.pipeline.ordering import Ordering

# The state of the classes that tolerate less than that.
Stricter = Callable[[float], ContextState]


@dataclass(frozen=True, slots=True)
class Graded:
    """The rows of a batch with what was admitted of them, and the states to match them with."""

    rows: pa.RecordBatch
    gated: Gated
    levels: Sequence[Level]
    whole: ContextState
    stricter: Stricter

    @property
    def evaluated(self) -> pa.RecordBatch:
        """The rows that are matched for somebody."""
        return self.rows.filter(pa.array(self.gated.depth < self.gated.groups)) if self.gated.shed else self.rows

    @property
    def kept(self) -> pa.RecordBatch:
        """The rows that are matched for all."""
        return self._at(0) if self.gated.depth.any() else self.rows

    def _at(self, depth: int) -> pa.RecordBatch:
        return self.rows.filter(pa.array(self.gated.depth == depth))

    def _state(self, depth: int) -> ContextState:
        return self.stricter(self.levels[depth - 1].tolerance) if depth else self.whole

    def match(self, ordering: Ordering) -> ClassLists:
        """The classes of each row that is evaluated."""
        depths = self.gated.depth[self.gated.depth < self.gated.groups]
        present = np.unique(depths).tolist()
        if present == [0]:
            return ordering.match(self.whole, self.kept)
        return woven([ordering.match(self._state(depth), self._at(depth)) for depth in present], depths)

    def missed(self, gate: BatchGate, batch: int, ordering: Ordering) -> tuple[list[ErrorEstimate], int]:
        """Estimates of the matches that rows missed by being withheld, from a seeded sample; and the sample's size."""
        found, sampled, admitted = [], 0, int(self.gated.keep.sum())
        for depth in range(1, self.gated.groups + 1):
            rows = np.flatnonzero(self.gated.depth == depth)
            if not len(rows):
                continue
            places = gate.sample(batch, rows, admitted)
            lists = ordering.exact(self.whole, self.rows.take(pa.array(places)))
            if depth < self.gated.groups:
                lists = lists.restrict(np.setdiff1d(lists.ids, self._state(depth).classes))
            found.append(estimate_errors(lists.counts().tolist(), len(rows)))
            sampled += len(places)
        return found, sampled

    def withheld(self) -> dict[str, int]:
        """By what a group tolerates, how many rows were withheld from it."""
        counts = zip(self.levels, self.gated.withheld, strict=True)
        return {f"{level.tolerance:g}": count for level, count in counts if count}


def woven(lists: Sequence[ClassLists], depths: npt.NDArray[np.int8]) -> ClassLists:
    """The lists of all rows in their order, from those of the rows of each depth that occurs, ascending.

    >>> found = woven([ClassLists.of([[1], [2]]), ClassLists.of([[7]])], np.array([0, 1, 0], np.int8))
    >>> [found.row(k).tolist() for k in range(3)]
    [[1], [7], [2]]
    """
    places = np.empty(len(depths), np.int64)
    places[np.argsort(depths, kind="stable")] = np.arange(len(depths))
    return ClassLists.concat(list(lists)).take(places)
