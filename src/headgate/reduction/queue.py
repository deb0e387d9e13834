"""The queue of one output: bounded, in order, reduced by one policy, and able to say what became of every row.

Rows enter with the root's sequence numbers and leave as messages that cover a range (since, to] of them. The range is
closed: every row offered at or below `to` was either taken or is counted in a digest of this message or an earlier
one. A queue holds no decision that was not published: after a crash a new queue starts at the last published coverage
and is offered everything after it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headgate.model import Schema
from headgate.reduction.automatic import LevelChange
from headgate.reduction.backlog import Backlog, Limit
from headgate.reduction.digest import Digest
from headgate.reduction.held_rows import Held, joined
from headgate.reduction.policy import Policy
from headgate.reduction.rows import Bools, Ints, Seqs


@dataclass(frozen=True, slots=True)
class Taken:
    """One message's worth: rows kept, the covered range (since, to], and the digest of what was reduced in it."""

    seqs: Seqs
    rows: pa.RecordBatch
    since: int
    to: int
    digest: Digest | None

    @property
    def reduced(self) -> int:
        """How many rows of the range were reduced."""
        return self.digest.count if self.digest else 0

    def __bool__(self) -> bool:
        """Whether there is anything to publish."""
        return self.to > self.since


class ReductionQueue:
    """Rows that wait for one output under one policy, at most `max_rows` and `max_bytes` of them.

    The policy's own limits apply where they are lower. `coverage` is the sequence up to which everything was already
    published.
    """

    def __init__(
        self,
        policy: Policy,
        schema: Schema,
        max_rows: int | None = 10_000,
        max_bytes: float | None = None,
        *,
        coverage: int = 0,
    ) -> None:
        self._schema = schema.arrow
        self._own = (max_rows, max_bytes)
        self._held: deque[Held] = deque()
        self._rows = 0
        self._bytes = 0.0
        self._published = coverage
        self._offered = coverage
        self._backlog = Backlog(policy)
        self._limit = self._limits(policy)

    def _limits(self, policy: Policy) -> Limit:
        def lower(one: float | None, other: float | None) -> float | None:
            given = [value for value in (one, other) if value is not None]
            return min(given) if given else None

        return Limit(lower(self._own[0], policy.max_rows), lower(self._own[1], policy.max_bytes))

    def __len__(self) -> int:
        return self._rows

    @property
    def bytes(self) -> float:
        """The bytes of the rows that wait."""
        return self._bytes

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._backlog.policy

    @property
    def level(self) -> int:
        """The level of the last pack, 0 before the first."""
        return self._backlog.level

    @property
    def packs(self) -> int:
        """How many packs there were."""
        return self._backlog.packs

    @property
    def changes(self) -> int:
        """How often the level changed."""
        return self._backlog.changes

    @property
    def reduced(self) -> Mapping[str, int]:
        """Rows reduced so far, by reason, told to the receiver or not."""
        return self._backlog.reduced

    @property
    def untold(self) -> int:
        """Rows reduced whose digest has not been taken yet."""
        return self._backlog.waiting

    @property
    def coverage(self) -> int:
        """The sequence up to which messages were taken."""
        return self._published

    @property
    def offered(self) -> int:
        """The sequence up to which rows were offered."""
        return self._offered

    @property
    def reorderings(self) -> tuple[LevelChange, ...]:
        """The log of `levels: auto`."""
        return tuple(self._backlog.automatic.log) if self._backlog.automatic else ()

    @property
    def oldest(self) -> float | None:
        """When the row at the front arrived."""
        return float(self._held[0].arrived[0]) if self._held else None

    def set_policy(self, policy: Policy, now: float) -> None:
        """Change the policy while rows wait: order, coverage and counts go on, what is queued stays."""
        self._backlog.set_policy(policy)
        self._limit = self._limits(policy)
        self._shrink(now)

    def offer(self, seqs: Seqs, batch: pa.RecordBatch, now: float, to: int | None = None) -> None:
        """Add rows in order of sequence. `to` says up to where the input is complete, if beyond the last row."""
        if len(seqs) != batch.num_rows:
            raise ValueError(f"{len(seqs)} sequence numbers for {batch.num_rows} rows")
        if len(seqs):
            if int(seqs[0]) <= self._offered or np.any(seqs[1:] <= seqs[:-1]):
                raise ValueError(f"rows must come in order of sequence and after {self._offered}")
            self._held.append(Held.of(seqs, batch, now))
            self._rows += len(seqs)
            self._bytes += self._held[-1].bytes
            self._backlog.arrived(len(seqs))
            self._offered = int(seqs[-1])
        self._offered = max(self._offered, to or 0)
        self._shrink(now)

    def _shrink(self, now: float) -> None:
        over = (self._limit.rows is not None and self._rows > self._limit.rows) or (
            self._limit.bytes is not None and self._bytes > self._limit.bytes
        )
        if over:
            self._expire(now)
            held = self._all()
            if self._limit.excess(held) != (0.0, 0.0):
                verdict = self._backlog.pack(held, now, self._limit)
                self._note(held, verdict.kept, verdict.why, verdict.names)
                self._set(verdict.held)

    def _expire(self, now: float) -> None:
        if self._backlog.policy.max_age is not None and self._rows:
            held = self._all()
            mask = self._backlog.expire(held, now)
            if mask is not None:
                self._note(held, mask, np.zeros(len(held), dtype=np.int64), ("max_age",))
                self._set(held.pick(mask))

    def expire_before(self, arrived: float) -> None:
        """Give up the rows that came before a time, whatever the policy says (the end of a sender's grace period)."""
        if self.oldest is not None and self.oldest < arrived:
            held = self._all()
            mask = held.arrived >= arrived
            self._note(held, mask, np.zeros(len(held), dtype=np.int64), ("expired",))
            self._set(held.pick(mask))

    def _note(self, held: Held, kept: Bools, why: Ints, names: tuple[str, ...]) -> None:
        before = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
        dropped = np.flatnonzero(~kept)
        self._backlog.move(before)
        self._backlog.note(held.take(dropped), why[dropped], names, before[dropped])

    def _all(self) -> Held:
        if not self._held:
            return Held.empty(self._schema)
        if len(self._held) > 1:
            self._held = deque([joined(list(self._held))])
        return self._held[0]

    def _set(self, held: Held) -> None:
        self._held = deque([held] if len(held) else [])
        self._rows = len(held)
        self._bytes = held.bytes

    def take(self, max_rows: int | None = None, max_bytes: float | None = None, now: float = 0.0) -> Taken:
        """The next message: rows from the front (at least one if any wait and `max_rows` allows it) and its digest."""
        self._expire(now)
        parts = self._front(max_rows, max_bytes)
        taken = joined(parts) if parts else Held.empty(self._schema)
        self._rows -= len(taken)
        self._bytes = self._bytes - taken.bytes if self._rows else 0.0
        self._backlog.left(len(taken))
        if len(taken) and self._backlog.remembers:
            self._backlog.remember(taken.rows)
        digest = self._backlog.told(len(taken), everything=not self._rows)
        since = self._published
        self._published = int(self._held[0].seqs[0]) - 1 if self._held else self._offered
        return Taken(taken.seqs, taken.rows, since, self._published, digest)

    def _front(self, max_rows: int | None, max_bytes: float | None) -> list[Held]:
        parts: list[Held] = []
        rows, size = 0, 0.0
        while self._held:
            held = self._held[0]
            count = len(held) if max_rows is None else min(len(held), max_rows - rows)
            if max_bytes is not None:
                fits = int(np.searchsorted(np.cumsum(held.sizes), max_bytes - size + 1e-9, side="right"))
                count = min(count, max(fits, 1 if not rows else 0))
            if count <= 0:
                break
            parts.append(held.cut(0, count))
            rows, size = rows + count, size + parts[-1].bytes
            if count < len(held):
                self._held[0] = held.cut(count, len(held))
                break
            self._held.popleft()
        return parts

    def drain(self, now: float) -> Taken:
        """Everything that waits, as one message."""
        return self.take(None, None, now)
