"""Shed messages: false negatives for what was dropped, no other errors, the state stays true (section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.matching.admission.costs import Costs
from headgate.matching.admission.method import Step, Waiting
from headgate.matching.admission.shedding import Shedder, count_for, excess_work, shed_and_go


@dataclass(frozen=True, slots=True)
class ShedMessages:
    """Drops messages until the rest fits. Holds the bound unless updates alone overload."""

    shedder: Shedder
    name: str = "shed messages"

    def plan(self, waiting: Waiting, now_s: float, costs: Costs) -> Sequence[Step]:
        """Shed if need be, then the next message."""
        excess = excess_work(self.shedder, waiting, now_s, costs)
        victims = self.shedder.victims(waiting.messages, count_for(excess, costs.message_s))
        return shed_and_go(waiting, victims, waiting.updates[:0])
