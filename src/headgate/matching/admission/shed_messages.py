"""Shed messages: false negatives for what was dropped, no other errors, the state stays true (section 4.2).

A message is matched after all updates before it, and updates are never dropped here. Where updates alone overload, a
time comes when even the newest message stands behind more updates than its bound has time for. It is shed too then, and
updates are applied until messages can be matched in time again: what is delivered is within the bound, whatever
overloads, and what that costs is messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.matching.admission.costs import Costs
from headgate.matching.admission.method import AdmissionStep, WaitingEvents
from headgate.matching.admission.shedding import Shedder, count_for, excess_work, shed_and_go


@dataclass(frozen=True, slots=True)
class ShedMessages:
    """Drops messages until the rest fits, all of them where updates alone leave no time for one."""

    shedder: Shedder
    name: str = "shed messages"

    def plan(self, waiting: WaitingEvents, now_s: float, costs: Costs) -> Sequence[AdmissionStep]:
        """Shed if need be, then the next message, or updates alone."""
        excess = excess_work(self.shedder, waiting, now_s, costs)
        victims = self.shedder.victims(waiting.messages, count_for(excess, costs.message_s))
        if excess and len(victims) + 1 == len(waiting.messages) and self._hopeless(waiting, now_s, costs):
            return [AdmissionStep("shed messages", waiting.messages), AdmissionStep("update", waiting.updates)]
        return shed_and_go(waiting, victims, waiting.updates[:0])

    def _hopeless(self, waiting: WaitingEvents, now_s: float, costs: Costs) -> bool:
        """Whether the newest message cannot be matched in time even as the only one."""
        newest = int(waiting.messages[-1])
        before = waiting.before(newest)
        left_s = self.shedder.bound_s - (now_s - float(waiting.times[newest]))
        return before > 0 and costs.work(1, before) > self.shedder.settle * left_s
