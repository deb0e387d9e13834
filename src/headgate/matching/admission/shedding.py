"""What the three shedding methods share (section 4.2): when to shed, how much, and whom.

When the filter is ready, the whole queue's believed work is compared with the time that the oldest message has left; if
it does not fit, as many events are dropped as bring it down to `settle` of that time. Settling below the bound keeps
the next decision from having to shed again at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headgate.matching.admission.costs import Costs
from headgate.matching.admission.method import AdmissionStep, Numbers, WaitingEvents, next_in_order

# Worth of events by number: those of least worth are shed first. None sheds at random.
Worth = Callable[[Numbers], npt.NDArray[np.float64]]


@dataclass(slots=True)
class Shedder:
    """Chooses victims, at random by seed or by least worth; events of equal worth are drawn at random.

    `worth` is that of messages, and of updates too where `update_worth` does not say otherwise.
    """

    bound_s: float
    seed: int = 0
    worth: Worth | None = None
    settle: float = 0.9
    update_worth: Worth | None = None
    _random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        if not self.bound_s > 0:
            raise ValueError(f"a latency bound is above 0 seconds, not {self.bound_s}")
        self._random = np.random.default_rng(self.seed)

    def excess_s(self, work_s: float, remaining_s: float) -> float:
        """Seconds of work to get rid of; 0 when it all fits."""
        return 0.0 if work_s <= remaining_s else work_s - self.settle * max(0.0, remaining_s)

    def victims(self, events: Numbers, count: int) -> Numbers:
        """So many of the messages, ascending; the newest is always kept, so that work goes on and costs are learned."""
        return self._chosen(events, count, self.worth)

    def update_victims(self, events: Numbers, count: int) -> Numbers:
        """As `victims`, of updates."""
        return self._chosen(events, count, self.update_worth or self.worth)

    def _chosen(self, events: Numbers, count: int, worth: Worth | None) -> Numbers:
        events = events[:-1]
        if count >= len(events):
            return events
        if worth is None:
            chosen = self._random.choice(len(events), count, replace=False, shuffle=False)
        else:
            chosen = np.lexsort([self._random.random(len(events)), worth(events)])[:count]
        return events[np.sort(chosen)]


def victims_first(first: npt.NDArray[np.bool_]) -> Worth:
    """The worth that sheds before others the events that an expression has marked, by number.

    >>> victims_first(np.array([True, False, True]))(np.array([1, 2])).tolist()
    [1.0, 0.0]
    """
    return lambda events: (~first[events]).astype(np.float64)


def shed_and_go(waiting: WaitingEvents, messages: Numbers, updates: Numbers) -> list[AdmissionStep]:
    """Steps that shed those messages and updates and then take the next message of what is left, if any."""
    steps = []
    if len(messages):
        steps.append(AdmissionStep("shed messages", messages))
    if len(updates):
        steps.append(AdmissionStep("shed updates", updates))
    left = np.setdiff1d(waiting.messages, messages, assume_unique=True) if len(messages) else waiting.messages
    kept = np.setdiff1d(waiting.updates, updates, assume_unique=True) if len(updates) else waiting.updates
    return [*steps, *next_in_order(left, kept)] if len(left) or len(kept) else steps


def count_for(seconds: float, each_s: float) -> int:
    """How many events of that cost make up so many seconds."""
    return int(np.ceil(seconds / each_s)) if seconds > 0 and each_s > 0 else 0


def excess_work(shedder: Shedder, waiting: WaitingEvents, now_s: float, costs: Costs) -> float:
    """Seconds by which in-order execution of the queue passes the bound."""
    work = costs.work(len(waiting.messages), len(waiting.updates))
    return shedder.excess_s(work, waiting.remaining_s(now_s, shedder.bound_s))
