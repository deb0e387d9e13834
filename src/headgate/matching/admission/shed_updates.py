"""Shed updates: every message is matched, against a state that drifts (section 4.2).

Cannot hold the bound when messages alone overload.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.matching.admission.costs import Costs
from headgate.matching.admission.method import AdmissionStep, WaitingEvents
from headgate.matching.admission.shedding import Shedder, count_for, excess_work, shed_and_go


@dataclass(frozen=True, slots=True)
class ShedUpdates:
    """Drops updates until the rest fits. Errors outlive the burst, until the profiles are updated again."""

    shedder: Shedder
    name: str = "shed updates"

    def plan(self, waiting: WaitingEvents, now_s: float, costs: Costs) -> Sequence[AdmissionStep]:
        """Shed if need be, then the next message."""
        excess = excess_work(self.shedder, waiting, now_s, costs)
        victims = self.shedder.update_victims(waiting.updates, count_for(excess, costs.update_s))
        return shed_and_go(waiting, waiting.messages[:0], victims)
