"""Hybrid of batching and shedding: the paper's future work (section 6), a gradual passage between them.

Four gears, the first that fits is taken: in order (no errors) while the believed work of the queue is small;
alternating runs (no errors) while they leave the bound; a batch in the chosen order; and a batch from which as many
messages are shed as the bound demands. Updates are never shed, so no error outlives a batch, and shedding starts only
where even batched work is too much: that is why it makes far fewer errors than shedding alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headgate.matching.admission.batching import Order, batch_steps
from headgate.matching.admission.costs import Costs
from headgate.matching.admission.method import Step, Waiting, next_in_order
from headgate.matching.admission.shedding import Shedder, count_for


@dataclass(frozen=True, slots=True)
class Hybrid:
    """Holds the shedder's bound with as few errors as the load allows.

    `ease` is the share of the remaining time that a gear may use. What arrives during a batch waits for it, so a batch
    takes at most that share too.
    """

    shedder: Shedder
    order: Order = "updates first"
    ease: float = 0.4
    name: str = "hybrid"

    def plan(self, waiting: Waiting, now_s: float, costs: Costs) -> Sequence[Step]:
        """The next message, or a batch of what the bound allows."""
        remaining = waiting.remaining_s(now_s, self.shedder.bound_s)
        messages, updates = waiting.messages, waiting.updates
        allowed = self.ease * max(0.0, remaining)
        if costs.work(len(messages), len(updates)) <= allowed:
            return next_in_order(messages, updates)
        runs = len(messages) * costs.message_s + len(updates) * costs.batched_update_s
        if runs <= allowed:
            return batch_steps(messages, updates, "arrival")
        batched = costs.work(len(messages), len(updates), batched=True)
        # What waits longest decides: a batch may take all the time that its oldest message has left.
        excess = self.shedder.excess_s(batched, max(0.0, remaining))
        victims = self.shedder.victims(messages, count_for(excess, costs.batched_message_s))
        kept = np.setdiff1d(messages, victims, assume_unique=True) if len(victims) else messages
        shed = [Step("shed messages", victims)] if len(victims) else []
        return [*shed, *batch_steps(kept, updates, self.order)]
