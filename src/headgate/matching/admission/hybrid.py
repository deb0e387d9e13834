"""Hybrid of batching and shedding: the paper's future work (section 6), a gradual passage between them.

Five gears, the first that fits the time that the oldest message has left: in order; alternating runs; one batch of all
that waits; a batch of all messages with as many of the oldest updates as there is time for, the others deferred; and
the same with messages shed. The first two make no errors. Updates are deferred and never lost, because only messages
have a bound: the state lags while the burst lasts and is exact again once the queue is empty, so no error is lasting,
and messages, which cost little in a batch, are shed only when they alone are too much, those of least worth first.
Updates wait in their order whatever they are worth: an older one that came in after a newer would undo it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.matching.admission.batching import Order, batch_steps
from headgate.matching.admission.costs import Costs
from headgate.matching.admission.method import AdmissionStep, WaitingEvents, next_in_order
from headgate.matching.admission.shedding import Shedder, count_for


@dataclass(frozen=True, slots=True)
class Hybrid:
    """Holds the shedder's bound with as few errors as the load allows.

    `ease` is the share of the remaining time that a step may use: what arrives meanwhile has to wait for it.
    """

    shedder: Shedder
    order: Order = "updates first"
    ease: float = 0.4
    name: str = "hybrid"

    def plan(self, waiting: WaitingEvents, now_s: float, costs: Costs) -> Sequence[AdmissionStep]:
        """The next message, or a batch of what the bound allows."""
        remaining = max(0.0, waiting.remaining_s(now_s, self.shedder.bound_s))
        messages, updates = waiting.messages, waiting.updates
        allowed = self.ease * remaining
        if costs.work(len(messages), len(updates)) <= allowed:
            return next_in_order(messages, updates)
        runs = len(messages) * costs.message_s + len(updates) * costs.batched_update_s
        if runs <= allowed:
            return batch_steps(messages, updates, "arrival")
        if costs.work(len(messages), len(updates), batched=True) <= allowed:
            return batch_steps(messages, updates, self.order)
        matching = len(messages) * costs.batched_message_s
        excess = self.shedder.excess_s(matching, remaining)
        victims = self.shedder.victims(messages, count_for(excess, costs.batched_message_s))
        kept = np.setdiff1d(messages, victims, assume_unique=True) if len(victims) else messages
        shed = [AdmissionStep("shed messages", victims)] if len(victims) else []
        # At least a tenth of the allowance goes to updates, so that the state always moves on.
        spare = max(allowed - len(kept) * costs.batched_message_s, 0.1 * self.ease * self.shedder.bound_s)
        applied = updates[: count_for(spare, costs.batched_update_s)]
        return [*shed, *batch_steps(kept, applied, self.order)]
