"""Shed both messages and updates, with a preference between them (section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.matching.admission.costs import Costs
from headgate.matching.admission.method import AdmissionStep, WaitingEvents
from headgate.matching.admission.shedding import Shedder, count_for, excess_work, shed_and_go


@dataclass(frozen=True, slots=True)
class ShedBoth:
    """Drops both; `messages_share` of the excess work is taken from messages, the rest from updates.

    What one side cannot give is taken from the other, so the bound holds whatever overloads.
    """

    shedder: Shedder
    messages_share: float = 0.5
    name: str = "shed both"

    def plan(self, waiting: WaitingEvents, now_s: float, costs: Costs) -> Sequence[AdmissionStep]:
        """Shed if need be, then the next message."""
        excess = excess_work(self.shedder, waiting, now_s, costs)
        if not excess:
            return shed_and_go(waiting, waiting.messages[:0], waiting.updates[:0])
        most_updates = len(waiting.updates) * costs.update_s
        from_updates = min((1 - self.messages_share) * excess, most_updates)
        messages = count_for(excess - from_updates, costs.message_s)
        lacking = excess - min(messages, len(waiting.messages)) * costs.message_s
        return shed_and_go(
            waiting,
            self.shedder.victims(waiting.messages, messages),
            self.shedder.update_victims(waiting.updates, count_for(max(from_updates, lacking), costs.update_s)),
        )
