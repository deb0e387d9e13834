"""Batching (section 4.3): all that waits is done at once, messages together and updates together.

At the end of a batch the state equals traditional execution, so no error outlives it. The order within says which
errors there are: `updates first` leaves no outdated state, `messages first` no state from the future, `arrival` makes
no errors at all and loses most of the speed-up, because only runs of one kind are done together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headgate.matching.admission.costs import Costs
from headgate.matching.admission.method import AdmissionStep, Numbers, WaitingEvents

Order = Literal["updates first", "messages first", "arrival"]
ORDERS: tuple[Order, ...] = ("updates first", "messages first", "arrival")


def batch_steps(messages: Numbers, updates: Numbers, order: Order) -> list[AdmissionStep]:
    """The steps of one batch."""
    applying, matching = AdmissionStep("update", updates, batched=True), AdmissionStep("match", messages, batched=True)
    if order == "updates first":
        steps = [applying, matching]
    elif order == "messages first":
        steps = [matching, applying]
    else:
        steps = _runs(messages, updates)
    return [step for step in steps if len(step.events)]


def _runs(messages: Numbers, updates: Numbers) -> list[AdmissionStep]:
    """Alternating runs: messages with no update between them are one run."""
    ends = np.searchsorted(updates, messages)
    groups, firsts = np.unique(ends, return_index=True)
    steps: list[AdmissionStep] = []
    done = 0
    for upto, run in zip(groups.tolist(), np.split(messages, firsts[1:]), strict=False):
        steps += [AdmissionStep("update", updates[done:upto], batched=True), AdmissionStep("match", run, batched=True)]
        done = upto
    return [*steps, AdmissionStep("update", updates[done:], batched=True)]


@dataclass(frozen=True, slots=True)
class Batching:
    """Takes all that has arrived, or as much from the front as `limit_s` of believed work allows."""

    order: Order = "updates first"
    limit_s: float | None = None

    @property
    def name(self) -> str:
        """Its name, with the order."""
        limited = "" if self.limit_s is None else f", {self.limit_s:g} s"
        return f"batching ({self.order}{limited})"

    def plan(self, waiting: WaitingEvents, now_s: float, costs: Costs) -> Sequence[AdmissionStep]:
        """One batch."""
        del now_s
        messages, updates = waiting.messages, waiting.updates
        if self.limit_s is not None:
            share = self.limit_s / max(costs.work(len(messages), len(updates), batched=True), 1e-12)
            if share < 1:
                both = np.sort(np.concatenate([messages, updates]))
                last = both[max(0, int(share * len(both)) - 1)]
                messages, updates = messages[messages <= last], updates[updates <= last]
        return batch_steps(messages, updates, self.order)
