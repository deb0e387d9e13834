"""One output of a relay: a bounded queue of blocks towards a child's site log or a subscription's inbox.

What was published is final: `coverage` is the end of the last message in the output's log, and the next message
starts there. Rows that do not fit in the queue are given up oldest first and declared; nothing upstream is ever held
up. `decided` is the end of what was given up without being published yet; it is recorded apart (`held`) when an
output stalls, so that the site log can be purged behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from headgate.relay.routes import Child, Receiver
from headgate.wire.block import Block, Declared, concat, merge_declared

OVERFLOW: Final = "overflow"


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much one output may hold, and how long it waits to fill a message."""

    max_rows: int = 100_000
    max_bytes: int = 64 << 20
    linger_s: float = 0.05
    idle_s: float = 0.5


def declare_rows(block: Block, target: Child | Receiver, reason: str) -> Declared:
    """What giving up all rows of a block means to each receiver behind an output."""
    if isinstance(target, Receiver):
        return {target.id: {reason: len(block.seqs)}} if len(block.seqs) else {}
    assert block.classes is not None
    ids, counts = block.classes.class_counts()
    return {
        receiver: {reason: int(count)}
        for class_id, count in zip(ids.tolist(), counts.tolist(), strict=True)
        for receiver in target.receivers_of.get(class_id, ())
    }


class Output:
    """The queue of one output. `coverage` None means that nothing was ever published on it."""

    def __init__(self, limits: QueueLimits, coverage: int | None = None, sequence: int = 0) -> None:
        self.limits = limits
        self.coverage = coverage
        self.sequence = sequence
        self.queue: deque[tuple[Block, Child | Receiver, float]] = deque()
        self.rows = 0
        self.bytes = 0
        self.busy: Block | None = None
        self.stalled = False
        self.held: int | None = None
        self.reduced = 0
        self.purged = 0

    @property
    def reach(self) -> int | None:
        """The end of what is queued or published."""
        return self.queue[-1][0].upto if self.queue else (self.busy.upto if self.busy else self.coverage)

    @property
    def settled(self) -> int | None:
        """The end of what a restart does not need from the site log."""
        return self.held if self.held is not None else self.coverage

    def offer(self, block: Block, target: Child | Receiver, now: float) -> None:
        """Queue the part of a block that lies past what is here already."""
        reach = self.reach
        if reach is not None and block.upto <= reach:
            return
        block = block if reach is None else block.since(reach)
        self.queue.append((block, target, now))
        self.rows += len(block.seqs)
        self.bytes += block.rows.nbytes
        if self.rows > self.limits.max_rows or self.bytes > self.limits.max_bytes:
            self._give_up()

    def _give_up(self) -> None:
        """Give up the oldest rows until half of the room is free, and merge what is left of their blocks."""
        limits = self.limits
        emptied: list[Block] = []
        target: Child | Receiver | None = None
        while self.queue and (self.rows > limits.max_rows // 2 or self.bytes > limits.max_bytes // 2):
            block, target, since = self.queue[0]
            if emptied and block.version != emptied[-1].version:
                break
            self.queue.popleft()
            self.rows -= len(block.seqs)
            self.bytes -= block.rows.nbytes
            self.reduced += len(block.seqs)
            emptied.append(_without_rows(block, declare_rows(block, target, OVERFLOW)))
        if target is not None:
            self.queue.appendleft((concat(emptied), target, since))

    def next_message(self, now: float, max_rows: int) -> Block | None:
        """The next message, None when there is nothing to send yet; it stays queued until `published`."""
        if self.busy is not None or not self.queue:
            return None
        first, _, since = self.queue[0]
        waited = now - since
        has_content = self.rows > 0 or any(block.declared for block, _, _ in self.queue)
        if waited < (self.limits.linger_s if has_content else self.limits.idle_s):
            return None
        blocks = [first]
        rows = len(first.seqs)
        for block, _, _ in list(self.queue)[1:]:
            rows += len(block.seqs)
            if block.version != first.version or rows > max_rows:
                break
            blocks.append(block)
        merged = concat(blocks)
        self.busy = next(iter(merged.pieces(max_rows)))
        return self.busy

    def published(self, sequence: int) -> None:
        """The message was stored: its end is now the coverage."""
        assert self.busy is not None
        self.sequence = sequence
        self.stalled = False
        self._advance(self.busy.upto)
        self.busy = None

    def _advance(self, upto: int) -> None:
        self.coverage = upto
        self.held = None
        while self.queue and self.queue[0][0].upto <= upto:
            block, _, _ = self.queue.popleft()
            self.rows -= len(block.seqs)
            self.bytes -= block.rows.nbytes
        if self.queue and self.queue[0][0].after < upto:
            block, target, since = self.queue[0]
            rest = block.since(upto)
            self.rows -= len(block.seqs) - len(rest.seqs)
            self.bytes -= block.rows.nbytes - rest.rows.nbytes
            self.queue[0] = (rest, target, since)

    def refused(self) -> None:
        """The output's log is full: keep the message and try again later."""
        self.busy = None
        self.stalled = True

    def resume(self, coverage: int | None, sequence: int) -> None:
        """Somebody's message was stored without our knowing (a lost answer, another relay): go on from the tail."""
        self.busy = None
        self.sequence = sequence
        if coverage is not None:
            self._advance(coverage)

    def hold(self) -> Block | None:
        """What a stalled output has given up at its front, to be recorded so that a restart knows it."""
        if not self.stalled or not self.queue:
            return None
        block = self.queue[0][0]
        if len(block.seqs) or self.held == block.upto:
            return None
        return block

    def restore_held(self, block: Block, target: Child | Receiver, now: float) -> None:
        """Take back a recorded decision after a restart."""
        if self.coverage is None or block.upto <= self.coverage:
            return
        self.queue.appendleft((block, target, now))
        self.held = block.upto

    def give_up_all(self, change: Callable[[Block], Block]) -> None:
        """Replace every queued block by what is left of it; nothing may be under way."""
        assert self.busy is None
        self.queue = deque((change(block), target, since) for block, target, since in self.queue)
        self.rows = self.bytes = 0


def _without_rows(block: Block, declared: Declared) -> Block:
    empty = np.zeros(0, dtype=np.int64)
    return replace(block.take(empty), declared=merge_declared(block.declared, declared))
