"""What the driver has learned of a stream's work, and what it decides by it before a micro-batch: its context updates.

Rows are admitted in the workers, which see them; updates are the same for all workers, so that one decision is taken
here and travels with the pin.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from headgate.matching import MatchingError
from headgate.matching.admission import (
    ALL,
    BatchGate,
    Expected,
    ToleranceLevel,
    UpdatePlan,
    UpdateVictims,
    levels_of,
    plan_updates,
)
from headgate.model import Admission, Stream
from headgate.pipeline.classes import tolerances_of, true_states
from headgate.pipeline.staged import Staged
from headgate.protocol.port import LogPort
from headgate.protocol.published import require_snapshot
from headgate.wire.context import context_size, decode_context, encode_context
from headgate.wire.snapshot import Snapshot

# New costs count for so much: one odd batch does not shed the next.
_WEIGHT: Final = 0.3


def gate_of(admission: Admission) -> BatchGate:
    """The gate of a stream's admission entry."""
    return BatchGate.of(admission.method, admission.bound_s, admission.options, admission.require)


@dataclass(frozen=True, slots=True)
class Demands:
    """What the classes of a version demand of control: their groups, and whose updates may not be shed."""

    version: int
    levels: tuple[ToleranceLevel, ...] = ALL
    in_order: bool = False
    spared: frozenset[int] = frozenset()
    names: Mapping[int, str] = field(default_factory=dict)
    victims: UpdateVictims | None = None

    @classmethod
    def of(cls, snapshot: Snapshot, version: int, stream: str, gate: BatchGate) -> Demands:
        """The demands under a snapshot. A choice of updates that its contexts have no values for is not made."""
        strict = true_states(snapshot, stream)
        mine = {
            name: each
            for name, each in snapshot.deployment.subscriptions.items()
            if gate.update_victims is not None and each.stream == stream and each.context
        }
        victims = None
        if gate.update_victims is not None:
            try:
                victims = UpdateVictims.parse(gate.update_victims, (each.context for each in mine.values()))
            except MatchingError as error:
                print(f"headgate: stream {stream!r} sheds updates at random: {error}", file=sys.stderr, flush=True)
        return cls(
            version,
            levels_of(tolerances_of(snapshot, stream).values()) if gate.powers.rows else ALL,
            bool(strict) and gate.powers.reorders,
            frozenset(each for each, context in strict.items() if context),
            {snapshot.class_ids[name]: name for name in mine},
            victims,
        )


class UpdateController:
    """Learns costs from what batches staged, and plans the updates of the next. One per stream, in the driver."""

    def __init__(self, stream: Stream, row_cost_s: float = 0.0, update_cost_s: float = 0.0) -> None:
        self._stream = stream.name
        self._gate = gate_of(stream.admission)
        self.row_cost_s = row_cost_s
        self.update_cost_s = update_cost_s
        self.late_rows = 0
        self._demands: Demands | None = None
        self._rows = 0
        self._age_s = 0.0

    @property
    def method(self) -> str:
        """The method in force, as a deployment file names it; a requirement has chosen it."""
        return self._gate.method

    def learn(self, staged: Staged) -> None:
        """Take in what a batch took."""
        rows, updates = staged.total("evaluated"), staged.total("updates")
        if rows:
            self.row_cost_s = _smooth(self.row_cost_s, staged.total("busy_s") / rows)
        if updates:
            self.update_cost_s = _smooth(self.update_cost_s, staged.total("update_s") / updates)
        self.late_rows += staged.total("late")
        self._rows, self._age_s = staged.most("given"), staged.most("age_s")

    async def demands(self, port: LogPort, version: int) -> Demands:
        """What the classes of a version demand; nothing is read where control could not act on it."""
        powers = self._gate.powers
        if not powers.bounded and not powers.reorders:
            return Demands(version)
        if self._demands is None or self._demands.version != version:
            self._demands = Demands.of(await require_snapshot(port, version), version, self._stream, self._gate)
        return self._demands

    async def plan(self, port: LogPort, batch: int, version: int, after: int, head: int) -> UpdatePlan:
        """What happens to the updates at places (after, head] of the context log; `pin_batch` asks.

        Updates of a class that tolerates no wrong match are never shed; where there is one with a context, none is
        deferred either, since a state that lags would lag for that one too.
        """
        powers = self._gate.powers
        if powers.updates == "apply":
            return UpdatePlan(head)
        demands = await self.demands(port, version)
        if powers.updates == "defer" and demands.spared:
            return UpdatePlan(head)
        waiting = await self._waiting(port, after, head)
        if not waiting:
            return UpdatePlan(head)
        places = np.array([place for place, _ in waiting], np.int64)
        sizes = np.array([context_size(data) for _, data in waiting], np.int64)
        expected = Expected(self._rows, self._age_s, self.row_cost_s, self.update_cost_s)
        plan = plan_updates(self._gate, batch, places, sizes, expected)
        if not plan.shed or (demands.victims is None and not demands.spared):
            return plan
        changes = [change for _, data in waiting for change in decode_context(data).items()]
        first = None
        if demands.victims is not None:
            first = demands.victims.first([(demands.names.get(each, ""), was, now) for each, (was, now) in changes])
        spared = np.fromiter((each in demands.spared for each, _ in changes), bool, len(changes))
        return plan_updates(self._gate, batch, places, sizes, expected, first, spared)

    async def _waiting(self, port: LogPort, after: int, head: int) -> list[tuple[int, bytes]]:
        """The updates at places (after, head] as they are stored; one that cannot be read changes nothing."""
        log, subject, place = port.logs.root(self._stream), port.logs.context(self._stream), after
        waiting: list[tuple[int, bytes]] = []
        while place < head and (found := await port.read(log, subject, place)):
            for stored in found:
                readable = port.quarantine.take(log, stored, decode_context) is not None
                if stored.sequence <= head:
                    waiting.append((stored.sequence, stored.data if readable else encode_context({})))
            place = found[-1].sequence
        return waiting


def _smooth(before: float, now: float) -> float:
    return now if not before else (1 - _WEIGHT) * before + _WEIGHT * now
