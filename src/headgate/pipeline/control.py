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
from headgate.pipeline.classes import never_shed
from headgate.pipeline.states import read_snapshot
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
        self._exempt: tuple[int, bool, bool] = (-1, False, False)
        self._rows = 0
        self._age_s = 0.0

    @property
    def method(self) -> str:
        """The method in force, as a deployment file names it; a requirement has chosen it."""
        return self._gate.method

    def learn(self, staged: Sequence[Any]) -> None:
        """Take in what a batch took."""
        rows, updates = sum(row["evaluated"] for row in staged), sum(row["updates"] for row in staged)
        if rows:
            self.row_cost_s = _smooth(self.row_cost_s, sum(row["busy_s"] for row in staged) / rows)
        if updates:
            self.update_cost_s = _smooth(self.update_cost_s, sum(row["update_s"] for row in staged) / updates)
        self._rows = max((row["given"] for row in staged), default=0)
        self._age_s = max((row["age_s"] for row in staged), default=0.0)

    def never_sheds(self, fabric: SyncFabric, version: int) -> bool:
        """Whether a version has classes that may miss nothing, although the stream's method sheds rows or reorders."""
        powers = self._gate.powers
        return (powers.rows or powers.reorders) and self._exemptions(fabric, version)[1]

    def _exemptions(self, fabric: SyncFabric, version: int) -> tuple[int, bool, bool]:
        """Of a version, whether some classes are exempt, and whether some of those have a context."""
        if self._exempt[0] != version:
            found = never_shed(read_snapshot(fabric, version), self._stream)
            self._exempt = (version, bool(found), any(each.context for each in found.values()))
        return self._exempt

    def plan(self, fabric: SyncFabric, batch: int, version: int, after: int, head: int) -> UpdatePlan:
        """What happens to the updates at places (after, head] of the context log; `pin_batch` asks.

        Where a class that may miss nothing has a context, all updates are applied: a message of the log changes many
        classes, and a state that lags would lag for that one too.
        """
        if self._gate.powers.updates == "apply" or self._exemptions(fabric, version)[2]:
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
