"""Running a method against an engine by the paper's rule for time (section 5.1).

Events carry the arrival times of the workload. Work starts when the filter is ready and something has arrived, and
takes what the engine says it took; nothing sleeps. Latency is from a message's arrival to the end of the step that
matched it. Output order is restored by the messages' numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headgate.matching.admission.costs import Costs, LearnedCosts, believed
from headgate.matching.admission.method import AdmissionStep, Method, Numbers, WaitingEvents
from headgate.matching.lists import ClassLists
from headgate_studies.models.fine_grained import FineGrained

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Events:
    """Arrivals in their one order: when, and whether each is an update."""

    times: Seconds
    is_update: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        if len(self.times) != len(self.is_update) or (np.diff(self.times) < 0).any():
            raise ValueError("events need a time each, in order")


class Engine(Protocol):
    """What is controlled. Both calls return the seconds that the work took."""

    def match(self, events: Numbers, *, batched: bool) -> tuple[ClassLists, float]:
        """Match messages against the current state."""
        ...

    def update(self, events: Numbers, *, batched: bool, lazy: bool) -> float:
        """Apply updates in order."""
        ...


@dataclass(frozen=True, slots=True)
class AdmissionOutcome:
    """What became of every message, by its place among the messages; a shed one has latency NaN and no list."""

    method: str
    arrivals_s: Seconds
    latencies_s: Seconds
    lists: ClassLists
    shed_messages: int
    shed_updates: int
    end_s: float
    busy_s: float

    @property
    def jitter_s(self) -> Seconds:
        """Difference of consecutive latencies of delivered messages, in output order."""
        found: Seconds = np.diff(self.latencies_s[~np.isnan(self.latencies_s)])
        return found


class _Queue:
    """Event numbers that wait: taken from the front, shed from anywhere, joined at the back."""

    def __init__(self, events: Numbers, times: Seconds) -> None:
        self._arriving, self._arrivals = events, times[events]
        self._seen = 0
        self._held = np.empty(len(events), np.int64)
        self._start = self._stop = 0

    def admit(self, now: float) -> None:
        upto = int(np.searchsorted(self._arrivals, now, side="right"))
        new = self._arriving[self._seen : upto]
        self._held[self._stop : self._stop + len(new)] = new
        self._stop += len(new)
        self._seen = max(self._seen, upto)

    @property
    def waiting(self) -> Numbers:
        return self._held[self._start : self._stop]

    @property
    def next_arrival(self) -> float:
        return float(self._arrivals[self._seen]) if self._seen < len(self._arrivals) else float("inf")

    def take(self, count: int) -> None:
        self._start += count

    def shed(self, victims: Numbers) -> None:
        kept = np.setdiff1d(self.waiting, victims, assume_unique=True)
        self._stop = self._start + len(kept)
        self._held[self._start : self._stop] = kept


class _Run:
    """The state of one replay."""

    def __init__(
        self,
        events: Events,
        engine: Engine,
        costs: Costs | LearnedCosts,
        owned: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self.events, self.engine, self.costs = events, engine, costs
        numbers = np.arange(len(events.times))
        self.message_numbers = numbers[~events.is_update]
        self.messages = _Queue(self.message_numbers, events.times)
        self.updates = _Queue(numbers[events.is_update if owned is None else owned], events.times)
        self.latencies = np.full(len(self.message_numbers), np.nan)
        self.places: list[Numbers] = []
        self.lists: list[ClassLists] = []
        self.shed = [0, 0]
        self.now = self.busy = 0.0

    def admit(self) -> None:
        self.messages.admit(self.now)
        self.updates.admit(self.now)

    @property
    def waiting(self) -> WaitingEvents:
        return WaitingEvents(self.messages.waiting, self.updates.waiting, self.events.times)

    @property
    def next_arrival(self) -> float:
        return min(self.messages.next_arrival, self.updates.next_arrival)

    def wait(self, tick_s: float) -> bool:
        """Go on to when something waits; False when nothing will. Updates alone are waited for up to a tick."""
        self.admit()
        if len(self.messages.waiting) + len(self.updates.waiting) == 0:
            if self.next_arrival == float("inf"):
                return False
            update = self.updates.next_arrival
            self.now = self.messages.next_arrival
            if update < self.now:
                self.now = min(self.now, update + tick_s)
            self.admit()
        return True

    def do(self, step: AdmissionStep) -> None:
        if step.kind == "shed messages":
            self.messages.shed(step.events)
            self.shed[0] += len(step.events)
        elif step.kind == "shed updates":
            self.updates.shed(step.events)
            self.shed[1] += len(step.events)
        elif step.kind == "update":
            spent = self.engine.update(step.events, batched=step.batched, lazy=step.lazy)
            self.updates.take(len(step.events))
            self._spend("update", step, spent)
        else:
            found, spent = self.engine.match(step.events, batched=step.batched)
            self.messages.take(len(step.events))
            self._spend("message", step, spent)
            places = np.searchsorted(self.message_numbers, step.events)
            self.latencies[places] = self.now - self.events.times[step.events]
            self.places.append(places)
            self.lists.append(found)

    def _spend(self, kind: str, step: AdmissionStep, spent: float) -> None:
        self.now += spent
        self.busy += spent
        if isinstance(self.costs, LearnedCosts):
            self.costs.see(kind, len(step.events), spent, batched=step.batched)

    def outcome(self, name: str) -> AdmissionOutcome:
        """What happened to every message, lists in output order; shed ones take an empty list from one past the end."""
        order = np.concatenate([np.empty(0, np.int64), *self.places])
        together = ClassLists.concat(self.lists)
        padded = ClassLists(np.append(together.offsets, together.offsets[-1]), together.ids)
        rows = np.full(len(self.latencies), together.rows)
        rows[order] = np.arange(len(order))
        arrivals = self.events.times[self.message_numbers]
        end = float(np.nanmax(arrivals + self.latencies, initial=0.0))
        lists = padded.take(rows)
        return AdmissionOutcome(name, arrivals, self.latencies, lists, self.shed[0], self.shed[1], end, self.busy)


def replay(
    events: Events, method: Method, engine: Engine, costs: Costs | LearnedCosts, tick_s: float = 0.0
) -> AdmissionOutcome:
    """Run all events through a method; what happened to every message.

    An idle filter lets updates gather for `tick_s`, or until the next message: the paper too measures the updates
    between two messages together.
    """
    run = _Run(events, engine, costs)
    while run.wait(tick_s):
        for step in method.plan(run.waiting, run.now, believed(costs)):
            run.do(step)
    return run.outcome(method.name)


def replay_groups(
    events: Events,
    grouped: FineGrained,
    engines: Sequence[Engine],
    owned: Sequence[npt.NDArray[np.bool_]],
    costs: Sequence[Costs | LearnedCosts],
) -> list[AdmissionOutcome]:
    """Run all events through groups of classes that share one processor; the outcome of each group.

    `owned[group]` says of every event whether it is an update of that group's classes. Every group sees every message.
    """
    runs = [_Run(events, engine, cost, mine) for engine, cost, mine in zip(engines, costs, owned, strict=True)]
    now = 0.0
    while True:
        for run in runs:
            run.now = now
            run.admit()
        chosen = grouped.turn([run.waiting for run in runs], now)
        if chosen is None:
            now = min(run.next_arrival for run in runs)
            if now == float("inf"):
                return [run.outcome(group.method.name) for run, group in zip(runs, grouped.groups, strict=True)]
            continue
        run, group = runs[chosen], grouped.groups[chosen]
        for step in group.method.plan(run.waiting, now, believed(run.costs)):
            run.do(step)
        now = run.now


def compare(outcome: AdmissionOutcome, truth: AdmissionOutcome) -> tuple[Numbers, Numbers]:
    """False positives and false negatives of each message, against traditional execution."""
    got, expected = _pairs(outcome.lists), _pairs(truth.lists)
    rows = truth.lists.rows

    def per_row(pairs: npt.NDArray[np.uint64]) -> Numbers:
        return np.bincount((pairs >> np.uint64(32)).astype(np.int64), minlength=rows)

    extra = np.setdiff1d(got, expected, assume_unique=True)
    return per_row(extra), per_row(np.setdiff1d(expected, got, assume_unique=True))


def _pairs(lists: ClassLists) -> npt.NDArray[np.uint64]:
    return (lists.row_of_id().astype(np.uint64) << np.uint64(32)) | lists.ids.astype(np.uint64)
