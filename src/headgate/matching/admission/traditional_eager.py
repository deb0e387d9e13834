"""Traditional eager: every event by itself, in the order of arrival, the index kept tight (section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.matching.admission.costs import Costs
from headgate.matching.admission.method import AdmissionStep, WaitingEvents, next_in_order


@dataclass(frozen=True, slots=True)
class TraditionalEager:
    """No control: no errors, no bound on latency."""

    name: str = "traditional eager"

    def plan(self, waiting: WaitingEvents, now_s: float, costs: Costs) -> Sequence[AdmissionStep]:
        """The next message and the updates before it."""
        del now_s, costs
        return next_in_order(waiting.messages, waiting.updates)
