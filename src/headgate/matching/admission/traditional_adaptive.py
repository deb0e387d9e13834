"""Traditional adaptive: in order, with an index that adapts to the ratio of messages to updates (AGILE, section 4.1).

Where updates far outnumber messages, boxes may stay in their leaves and widen them: updates get cheaper, messages
dearer. The engine allows that for a small share of the boxes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headgate.matching.admission.costs import Costs
from headgate.matching.admission.method import AdmissionStep, WaitingEvents, next_in_order


@dataclass(frozen=True, slots=True)
class TraditionalAdaptive:
    """In order; lazy while more than `updates_per_message` updates wait for each message."""

    updates_per_message: float = 400.0
    name: str = "traditional adaptive"

    def plan(self, waiting: WaitingEvents, now_s: float, costs: Costs) -> Sequence[AdmissionStep]:
        """The next message and the updates before it."""
        del now_s, costs
        lazy = len(waiting.updates) > self.updates_per_message * max(1, len(waiting.messages))
        return next_in_order(waiting.messages, waiting.updates, lazy=lazy)
