"""What a method of control sees and says.

Events are numbered in their one order (contract 8). Messages and updates wait in two queues of event numbers, so their
order is the order of the numbers whatever was taken or shed before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from headgate.matching.admission.costs import Costs

Numbers = npt.NDArray[np.int64]
Kind = Literal["match", "update", "shed messages", "shed updates"]


@dataclass(frozen=True, slots=True)
class AdmissionStep:
    """One thing to do with events: match them, apply them, or shed them. `batched` events are done in one go."""

    kind: Kind
    events: Numbers
    batched: bool = False
    lazy: bool = False


@dataclass(frozen=True, slots=True)
class WaitingEvents:
    """Events that wait, by number, and the arrival time of every event."""

    messages: Numbers
    updates: Numbers
    times: npt.NDArray[np.float64]

    def before(self, message: int) -> int:
        """How many waiting updates come before a message."""
        return int(np.searchsorted(self.updates, message))

    def remaining_s(self, now_s: float, bound_s: float) -> float:
        """Seconds until the oldest waiting message misses the bound; the whole bound when none waits."""
        if len(self.messages) == 0:
            return bound_s
        return bound_s - (now_s - float(self.times[self.messages[0]]))


class Method(Protocol):
    """A way to control: asked whenever the filter is ready, with at least one event waiting."""

    @property
    def name(self) -> str:
        """Its name in deployments and studies."""
        ...

    def plan(self, waiting: WaitingEvents, now_s: float, costs: Costs) -> Sequence[AdmissionStep]:
        """What to do next, in order. Every step takes events from the front of its queue, except shedding."""
        ...


def next_in_order(messages: Numbers, updates: Numbers, *, lazy: bool = False) -> list[AdmissionStep]:
    """Traditional execution of the next message: first the updates before it, then it alone."""
    if len(messages) == 0:
        return [AdmissionStep("update", updates, lazy=lazy)]
    first = int(np.searchsorted(updates, messages[0]))
    steps = [AdmissionStep("update", updates[:first], lazy=lazy)] if first else []
    return [*steps, AdmissionStep("match", messages[:1])]
