"""In which order a micro-batch's rows and the context updates that came with it are done (section 4.3).

Rows and updates share one order. Where a stream's admission names a column with the time of arrival (`arrived`), a row
stands after the updates that are not later than it; otherwise it stands after all updates that there were when its
batch was pinned. Whatever the order of execution, rows keep their places, so that output order is that of the sequence
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching import ClassLists, ContextState
from headgate.matching.admission import BatchGate, ErrorEstimate, estimate_crossed
from headgate.matching.admission.class_errors import ClassErrors, estimate_drawn
from headgate.matching.skipped import NOTHING, Skipped
from headgate.protocol.records import Pin

Places = npt.NDArray[np.int64]

# So many classes and rows are drawn to estimate what a state that is behind costs.
DRAWN = 64


def micros(rows: pa.RecordBatch, column: str) -> pa.Array:
    """A column of times as microseconds since the epoch."""
    return rows.column(column).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())


@dataclass(frozen=True, slots=True)
class StaleErrors:
    """Matches that were missed and wrong by a state that is behind: in all, and of classes."""

    missed: ErrorEstimate
    wrong: ErrorEstimate
    of_classes: ClassErrors


@dataclass(frozen=True, slots=True)
class Ordering:
    """The updates in (before, upto] and the rows of a batch, in one of the three orders of execution.

    `skipped` updates are left out. `head` is the last update that there was: past `upto` they are deferred.
    """

    order: str
    arrived: str | None
    before: int
    upto: int
    head: int
    skipped: Skipped = NOTHING

    @classmethod
    def of(cls, gate: BatchGate, pin: Pin) -> Ordering:
        """The order of a stream's gate, for one batch."""
        return cls(gate.order, gate.arrived, pin.before, pin.context, pin.head, pin.left_out)

    @property
    def behind(self) -> bool:
        """Whether the state is not the one that holds at the head."""
        return bool(self.skipped) or self.upto < self.head

    def settle(self, state: ContextState) -> None:
        """Bring the state to where the first rows need it."""
        runs = self.order == "arrival" and self.arrived is not None
        state.at(max(self.before, state.base) if runs or self.order == "messages first" else self.upto, self.skipped)

    def match(self, state: ContextState, rows: pa.RecordBatch) -> ClassLists:
        """The classes of each row, in this order of execution."""
        if self.order == "updates first":
            return state.match(rows, self.upto, self.skipped)
        if self.order == "messages first":
            return state.match(rows, max(self.before, state.base), self.skipped)
        return self.exact(state, rows)

    def exact(self, state: ContextState, rows: pa.RecordBatch) -> ClassLists:
        """The classes of each row when everything is done as it came, but for updates that are shed or deferred."""
        if self.arrived is None or max(self.before, state.base) >= self.upto or not rows.num_rows:
            return state.match(rows, self.upto, self.skipped)
        return state.match_each(rows, self._places(state, rows, self.upto), self.skipped)

    def _places(self, state: ContextState, rows: pa.RecordBatch, upto: int) -> Places:
        """The place of each row in the one order, up to a place."""
        if self.arrived is None:
            return np.full(rows.num_rows, upto, np.int64)
        times = micros(rows, self.arrived)
        known = times.fill_null(np.iinfo(np.int64).max).to_numpy(zero_copy_only=False)
        return state.arrivals(known // 1000, max(self.before, state.base), upto)

    def reorders(self, state: ContextState, rows: pa.RecordBatch) -> bool:
        """Whether rows may get other classes than in the order in which everything came."""
        if rows.num_rows == 0 or max(self.before, state.base) >= self.upto:
            return False
        return self.order == "messages first" or (self.order == "updates first" and self.arrived is not None)

    def stale_errors(
        self, state: ContextState, rows: pa.RecordBatch, population: int, seed: tuple[int, ...]
    ) -> StaleErrors:
        """Matches missed and wrong among `population` rows, of which these are a sample, by a state that is behind.

        Bringing the index up to date would cost what was to be saved, so a sample of the classes that are concerned is
        evaluated by itself on the rows, with the values that were used and with those that each row should have met.
        """
        start = max(self.before, state.base)
        if self.order == "updates first":
            used = np.full(rows.num_rows, self.upto, np.int64)
        elif self.order == "messages first":
            used = np.full(rows.num_rows, start, np.int64)
        else:
            used = self._places(state, rows, self.upto)
        right = self._places(state, rows, self.head)
        if self.arrived is None:  # all rows stand at one place: only classes that differ there can be wrong
            low, high = int(used[0]), int(right[0])
            concerned = [
                each
                for each in state.concerned(low, self.skipped, high)
                if state.value(each, low, self.skipped) != state.value(each, high)
            ]
        else:
            concerned = state.concerned(start, self.skipped, self.head)
        random = np.random.default_rng([*seed, 3])
        drawn = random.choice(len(concerned), min(DRAWN, len(concerned)), replace=False, shuffle=False)
        missed, wrong, identities = [], [], [concerned[each] for each in drawn.tolist()]
        for identity in identities:
            given = self._alone(state, identity, rows, used, self.skipped)
            true = self._alone(state, identity, rows, right, NOTHING)
            missed.append(true & ~given)
            wrong.append(given & ~true)
        shape = (len(missed), rows.num_rows)
        found = [np.array(each, bool).reshape(shape) for each in (missed, wrong)]
        fewer, more = (
            {each: int(hits) for each, hits in zip(identities, errors.sum(axis=1), strict=True) if hits}
            for errors in found
        )
        drawn_of = len(concerned) / max(len(identities), 1)
        return StaleErrors(
            estimate_crossed(found[0], len(concerned), population),
            estimate_crossed(found[1], len(concerned), population),
            estimate_drawn(fewer, more, rows.num_rows, population, drawn_of),
        )

    @staticmethod
    def _alone(
        state: ContextState, identity: int, rows: pa.RecordBatch, places: Places, skipped: Skipped
    ) -> npt.NDArray[np.bool_]:
        """Which rows a class takes, each with the value that the class has at the row's place."""
        found = np.zeros(rows.num_rows, bool)
        for place in np.unique(places).tolist():
            spec = state.spec(identity, state.value(identity, place, skipped))
            if spec is not None:
                at = places == place
                found[at] = spec.filter.evaluate(rows.filter(pa.array(at)), spec.context)
        return found
