"""What the driver has learned of a stream's work, and what it decides by it before a micro-batch: its context updates.

Rows are admitted in the workers, which see them; updates are the same for all workers, so that one decision is taken
here and travels with the pin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from headgate.fabric import SyncFabric
from headgate.matching.admission import BatchGate, Expected, UpdatePlan, plan_updates
from headgate.model import Admission, Stream
from headgate.wire.frame import decode_frame

# New costs count for so much: one odd batch does not shed the next.
_WEIGHT: Final = 0.3


def gate_of(admission: Admission) -> BatchGate:
    """The gate of a stream's admission entry."""
    return BatchGate.of(admission.method, admission.bound_s, admission.options, admission.require)


class Controller:
    """Learns costs from what batches staged, and plans the updates of the next. One per stream, in the driver."""

    def __init__(self, stream: Stream, row_cost_s: float = 0.0, update_cost_s: float = 0.0) -> None:
        self._stream = stream.name
        self._gate = gate_of(stream.admission)
        self.row_cost_s = row_cost_s
        self.update_cost_s = update_cost_s
        self._rows = 0
        self._age_s = 0.0

    def learn(self, staged: Sequence[Any]) -> None:
        """Take in what a batch took."""
        rows, updates = sum(row["evaluated"] for row in staged), sum(row["updates"] for row in staged)
        if rows:
            self.row_cost_s = _smooth(self.row_cost_s, sum(row["busy_s"] for row in staged) / rows)
        if updates:
            self.update_cost_s = _smooth(self.update_cost_s, sum(row["update_s"] for row in staged) / updates)
        self._rows = max((row["given"] for row in staged), default=0)
        self._age_s = max((row["age_s"] for row in staged), default=0.0)

    def plan(self, fabric: SyncFabric, batch: int, after: int, head: int) -> UpdatePlan:
        """What happens to the updates at places (after, head] of the context log; `pin_batch` asks."""
        if self._gate.powers.updates == "apply":
            return UpdatePlan(head)
        logs, place = fabric.logs, after
        places, sizes = [], []
        while place < head and (found := fabric.read(logs.root(self._stream), logs.context(self._stream), place)):
            for stored in found:
                if stored.sequence <= head:
                    places.append(stored.sequence)
                    sizes.append(int(decode_frame(stored.data, "c").header["classes"]))
            place = found[-1].sequence
        if not places:
            return UpdatePlan(head)
        expected = Expected(self._rows, self._age_s, self.row_cost_s, self.update_cost_s)
        return plan_updates(self._gate, batch, np.array(places), np.array(sizes), expected)


def _smooth(before: float, now: float) -> float:
    return now if not before else (1 - _WEIGHT) * before + _WEIGHT * now
