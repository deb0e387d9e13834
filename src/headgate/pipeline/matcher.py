"""Which delivery classes each row of a micro-batch has: the one object that the match pass asks.

Four things decide it, each in a module of its own: how many rows are admitted (`BatchGate`), what groups of classes
tolerate (`ToleranceLevel`), the order in which rows and context updates are done (`Ordering`), and the index with its
contexts (`ContextState`). `Matcher` puts them together for a micro-batch, `MatchedRows` is its answer for some rows.

Groups are ordered by what they tolerate, most tolerant first. A row of depth d is withheld from the first d of them, so
it is matched with an index of the classes of the rest; at the full depth it is shed. Rows keep their places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.filters import parse_filter
from headgate.matching import ClassLists, ContextState
from headgate.matching.admission import (
    ALL,
    BatchGate,
    ErrorEstimate,
    Gated,
    ToleranceLevel,
    compare_lists,
    estimate_errors,
)
from headgate.matching.admission.class_errors import ClassErrors, add_errors, compare_classes, estimate_missed
from headgate.model import Stream
from headgate.pipeline.ordering import DRAWN, Ordering
from headgate.protocol.records import Pin
from headgate.protocol.reports import ErrorsReport

Stricter = Callable[[float], ContextState]
"""The state of the classes that tolerate less than that."""


class Matcher:
    """Matches the rows of one micro-batch under its pin."""

    def __init__(
        self,
        stream: Stream,
        gate: BatchGate,
        pin: Pin,
        state: ContextState,
        stricter: Stricter,
        levels: Sequence[ToleranceLevel] = ALL,
    ) -> None:
        self.gate = gate
        self.batch = pin.batch
        self.ordering = Ordering.of(gate, pin)
        self.levels = levels
        self._state = state
        self._stricter = stricter
        self._victims = None if gate.victims is None else parse_filter(gate.victims, stream.schema)
        self.ordering.settle(state)

    def match(self, rows: pa.RecordBatch, age_s: float, row_cost_s: float) -> MatchedRows:
        """Match what is admitted: `age_s` is the age of the oldest row, `row_cost_s` what a row takes."""
        first = None if self._victims is None else self._victims.evaluate(rows, {})
        gated = self.gate.admit(self.batch, rows.num_rows, age_s, row_cost_s, first, self.levels)
        depths = gated.depth[gated.depth < gated.groups]
        present = np.unique(depths).tolist()
        if present == [0]:
            lists = self.ordering.match(self._state, rows_at(rows, gated, 0))
        else:
            each = [self.ordering.match(self.state(depth), rows_at(rows, gated, depth)) for depth in present]
            lists = woven(each, depths)
        return MatchedRows(self, rows, gated, lists)

    def state(self, depth: int = 0) -> ContextState:
        """The state of the classes that rows of a depth are matched for; of all classes at depth 0."""
        return self._stricter(self.levels[depth - 1].tolerance) if depth else self._state


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """What became of some rows: the classes of each that is evaluated, and what admission control held back."""

    matcher: Matcher
    rows: pa.RecordBatch
    gated: Gated
    lists: ClassLists

    @property
    def evaluated(self) -> pa.RecordBatch:
        """The rows that are matched for somebody."""
        return self.rows.filter(pa.array(self.gated.depth < self.gated.groups)) if self.gated.shed else self.rows

    def withheld(self) -> dict[str, int]:
        """By what a group tolerates, how many rows were withheld from it."""
        counts = zip(self.matcher.levels, self.gated.withheld, strict=True)
        return {f"{level.tolerance:g}": count for level, count in counts if count}

    def errors(self) -> tuple[ErrorsReport, ClassErrors]:
        """What control has cost in matches: a seeded sample of shed and of reordered rows is matched in order.

        In all, and of each class that the sample has errors of. Where updates are shed or deferred, matches of shed
        rows are those with the state that there is.
        """
        gate, ordering, batch, state = (
            self.matcher.gate,
            self.matcher.ordering,
            self.matcher.batch,
            self.matcher.state(),
        )
        kept = rows_at(self.rows, self.gated, 0)
        missed, sampled, of_classes = self._missed()
        wrong: list[ErrorEstimate] = []
        if ordering.behind and kept.num_rows:
            places = gate.sample(batch, np.arange(kept.num_rows), kept.num_rows, DRAWN, DRAWN)
            rows = kept.take(pa.array(places))
            stale = ordering.stale_errors(state, rows, kept.num_rows, (gate.seed, batch))
            missed.append(stale.missed)
            wrong.append(stale.wrong)
            of_classes.append(stale.of_classes)
            sampled += len(places)
        elif ordering.reorders(state, kept):
            places = gate.sample(batch, np.arange(kept.num_rows), kept.num_rows)
            rows = kept.take(pa.array(places))
            exact, given = ordering.exact(state, rows), ordering.match(state, rows)
            fewer, more = compare_lists(exact, given)
            of_classes.append(compare_classes(exact, given, kept.num_rows))
            missed.append(estimate_errors(fewer.tolist(), kept.num_rows))
            wrong.append(estimate_errors(more.tolist(), kept.num_rows))
            sampled += len(places)
        whole = ErrorsReport(
            missed=sum(each.errors for each in missed),
            missed_var=sum(each.variance for each in missed),
            wrong=sum(each.errors for each in wrong),
            wrong_var=sum(each.variance for each in wrong),
            sampled=sampled,
        )
        return whole, add_errors(of_classes)

    def _missed(self) -> tuple[list[ErrorEstimate], int, list[ClassErrors]]:
        """Estimates of the matches that rows missed by being withheld, from a seeded sample; and the sample's size."""
        matcher, gated = self.matcher, self.gated
        of_classes: list[ClassErrors] = []
        found, sampled, admitted = [], 0, int(gated.keep.sum())
        for depth in range(1, gated.groups + 1):
            rows = np.flatnonzero(gated.depth == depth)
            if not len(rows):
                continue
            places = matcher.gate.sample(matcher.batch, rows, admitted)
            lists = matcher.ordering.exact(matcher.state(), self.rows.take(pa.array(places)))
            if depth < gated.groups:
                lists = lists.restrict(np.setdiff1d(lists.ids, matcher.state(depth).classes))
            found.append(estimate_errors(lists.counts().tolist(), len(rows)))
            of_classes.append(estimate_missed(lists, len(rows)))
            sampled += len(places)
        return found, sampled, of_classes


def rows_at(rows: pa.RecordBatch, gated: Gated, depth: int) -> pa.RecordBatch:
    """The rows that are withheld from so many groups."""
    at: npt.NDArray[np.bool_] = gated.depth == depth
    return rows if at.all() else rows.filter(pa.array(at))


def woven(lists: Sequence[ClassLists], depths: npt.NDArray[np.int8]) -> ClassLists:
    """The lists of all rows in their order, from those of the rows of each depth that occurs, ascending.

    >>> found = woven([ClassLists.of([[1], [2]]), ClassLists.of([[7]])], np.array([0, 1, 0], np.int8))
    >>> [found.row(k).tolist() for k in range(3)]
    [[1], [7], [2]]
    """
    places = np.empty(len(depths), np.int64)
    places[np.argsort(depths, kind="stable")] = np.arange(len(depths))
    return ClassLists.concat(list(lists)).take(places)
