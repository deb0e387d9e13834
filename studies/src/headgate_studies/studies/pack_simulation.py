"""One queue in front of one slow link or consumer, in simulated time: what `pack-queue` and `pack-locator` run.

Rows arrive at given times, the consumer takes one row whenever it is free. The queue is the one that relays and clients
use; only time is simulated. `drop_tail` is the peer: a full queue refuses what arrives.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.model import Schema
from headgate.reduction import Policy, ReductionQueue

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PackEvent:
    """One pack: when, at which level, the fraction of the queue that it freed."""

    time_s: float
    level: int
    freed: float


@dataclass(slots=True)
class PackOutcome:
    """What came through: arrival and delay of each delivered row, arrivals of lost rows, packs, the longest queue."""

    arrived_s: list[float] = field(default_factory=list)
    delay_s: list[float] = field(default_factory=list)
    lost: int = 0
    declared: int = 0
    longest: int = 0
    packs: list[PackEvent] = field(default_factory=list)
    level_changes: int = 0

    @property
    def loss(self) -> float:
        """The fraction of rows that did not come through."""
        return self.lost / max(1, self.lost + len(self.delay_s))

    @property
    def levels(self) -> list[int]:
        """The level of each pack."""
        return [pack.level for pack in self.packs]


def through_queue(
    policy: Policy, schema: Schema, rows: pa.RecordBatch, arrivals: Floats, service_s: Floats, limit: int
) -> PackOutcome:
    """Run rows through a queue of at most `limit` rows; `service_s` is how long the consumer takes for each row."""
    queue = ReductionQueue(policy, schema, limit)
    outcome = PackOutcome()
    free_at = 0.0

    def serve(until: float) -> None:
        nonlocal free_at
        while len(queue) and (start := max(free_at, queue.oldest or 0.0)) < until:
            taken = queue.take(1, now=start)
            outcome.declared += taken.reduced
            for seq in taken.seqs.tolist():
                free_at = start + float(service_s[seq - 1])
                outcome.arrived_s.append(float(arrivals[seq - 1]))
                outcome.delay_s.append(free_at - float(arrivals[seq - 1]))

    for index, now in enumerate(arrivals.tolist()):
        serve(now)
        before, packs = len(queue), queue.packs
        queue.offer(np.array([index + 1], dtype=np.uint64), rows.slice(index, 1), now)
        outcome.longest = max(outcome.longest, len(queue))
        if queue.packs > packs:
            outcome.packs.append(PackEvent(now, queue.level, 1 - len(queue) / (before + 1)))
    serve(float("inf"))
    outcome.declared += queue.take().reduced
    outcome.lost = sum(queue.reduced.values())
    outcome.level_changes = queue.changes
    return outcome


def drop_tail(arrivals: Floats, service_s: Floats, limit: int) -> PackOutcome:
    """The same through a queue that refuses what arrives when it is full."""
    outcome = PackOutcome()
    waiting: deque[int] = deque()
    free_at = 0.0

    def serve(until: float) -> None:
        nonlocal free_at
        while waiting and (start := max(free_at, float(arrivals[waiting[0]]))) < until:
            index = waiting.popleft()
            free_at = start + float(service_s[index])
            outcome.arrived_s.append(float(arrivals[index]))
            outcome.delay_s.append(free_at - float(arrivals[index]))

    for index, now in enumerate(arrivals.tolist()):
        serve(now)
        if len(waiting) >= limit:
            outcome.lost += 1
        else:
            waiting.append(index)
            outcome.longest = max(outcome.longest, len(waiting))
    serve(float("inf"))
    return outcome


def quality(outcome: PackOutcome, worst_loss: float, worst_delay_s: float) -> float:
    """A quality in [0, 1] that falls linearly with loss and with mean delay, 0 at either limit."""
    delay = float(np.mean(outcome.delay_s)) if outcome.delay_s else worst_delay_s
    return max(0.0, 1.0 - outcome.loss / worst_loss) * max(0.0, 1.0 - delay / worst_delay_s)
