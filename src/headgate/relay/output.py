"""One output of a relay: a bounded queue of blocks towards a child's site log or a subscription's inbox.

What was published is final: `coverage` is the end of the last message in the output's log, and the next message
starts there. Rows that do not fit in the queue are given up as the receivers' policies say, and declared; nothing
upstream is ever held up. A policy may keep old rows, but not for ever: what came before the last `SPAN` times the
limit is given up, oldest first, because the site log has to keep everything behind it. `decided` is the end of what
was given up without being published yet; it is recorded apart (`held`) when an output stalls, so that the site log
can be purged behind it.

With `shed_after_s` a link's queue is bounded by time as well: what waits longer is thinned, every class by the same
part (see `headgate.relay.evenly`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from headgate.model import Deployment, parse_duration
from headgate.reduction.backlog import Limit
from headgate.relay.bounds import LEFT_BEHIND, Bounds
from headgate.relay.reducer import Reducer
from headgate.relay.routes import Child, Receiver
from headgate.relay.waiting import Waiting, for_decisions, front_of, meant_for
from headgate.relay.waits import report
from headgate.wire.block import Block, concat

OLDEST: Final = "oldest"
OVERSIZE: Final = "oversize"
_MOST_ROWS: Final = 1 << 31
_LEAST_PIECE, _MOST_PIECE = 16, 4096  # rows that are decided on, and so published, together
SPAN: Final = 4
# More groups of policies or more rows than this take longer to pack than an event loop should be held up for.
HEAVY_GROUPS: Final = 16
HEAVY_ROWS: Final = 5_000
_FRONT: Final = 8
_ASTRAY: Final = 8  # so many messages may end inside a commit


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much one output may hold, and how long it waits to fill a message."""

    max_rows: int = 100_000
    max_bytes: int = 64 << 20
    linger_s: float = 0.05
    idle_s: float = 0.5
    shed_after_s: float | None = None
    heavy_rows: int = HEAVY_ROWS


def limits_of(deployment: Deployment, limits: QueueLimits) -> QueueLimits:
    """The limits with what the deployment's options say: `shed_after`, how long rows wait on a link at most."""
    after = deployment.options.get("shed_after")
    return limits if after is None else replace(limits, shed_after_s=parse_duration(str(after)))


def _join(first: Block, second: Block) -> bool:
    """Whether two blocks may become one: they have no rows, and it stays known which commit their declarations are of.

    Where rows of a commit cannot be read any more, its reader takes what was declared off the rows that it matched.
    """
    if len(first.seqs) or len(second.seqs):
        return False
    if not first.declared or first.commits[-1].upto == second.commits[-1].upto:
        return True
    return first.of_whole_commits and second.of_whole_commits


class Output:
    """The queue of one output. `coverage` None means that nothing was ever published on it.

    With `defer` a pack that takes long is left to the owner: `overfull` says so, `begin_pack` gives the work, which may
    run in a thread, `end_pack` takes the result. Meanwhile the front of the queue can be sent; nothing may be offered.
    """

    def __init__(
        self, limits: QueueLimits, coverage: int | None = None, sequence: int = 0, *, defer: bool = False
    ) -> None:
        self.limits = limits
        self.defer = defer
        self.overfull = False
        self.packing = False
        self._packed_after = 0
        self._later: list[tuple[Block, Child | Receiver]] = []
        self.coverage = coverage
        self.sequence = sequence
        self.queue: deque[Waiting] = deque()
        self.reducer = Reducer()
        self.rows = 0
        self.bytes = 0
        self.busy: Block | None = None
        self.stalled = False
        self.held: int | None = None
        self.reduced = 0
        self.purged = 0
        self.came = 0
        self.went = 0
        self._offered_s = self._looked_s = -math.inf
        self._waits = (0.0, 0.0)
        self._fresh = 0
        self._owed = 0.0
        self._astray = 0
        self._message_rows = 1
        self._most_rows = _MOST_ROWS
        self._bounds = Bounds(())
        self._expire_s = math.inf

    @property
    def reach(self) -> int | None:
        """The end of what is queued or published."""
        return self.queue[-1].block.upto if self.queue else (self.busy.upto if self.busy else self.coverage)

    @property
    def settled(self) -> int | None:
        """The end of what a restart does not need from the site log."""
        return self.held if self.held is not None else self.coverage

    def offer(self, block: Block, target: Child | Receiver, now: float) -> None:
        """Queue the part of a block that lies past what is here already."""
        reach = self.reach
        if reach is not None and block.upto <= reach:
            return
        block = meant_for(block if reach is None else block.since(reach), target)
        span_s = min(now - self._offered_s, self.limits.shed_after_s or 0.0)
        self._offered_s = now
        known = bool(self.queue) and self.queue[-1].target is target
        self.queue.append(Waiting(block, target, now, self.came, block.after, span_s))
        self.came += len(block.seqs)
        self._fresh += len(block.seqs)
        self.rows += len(block.seqs)
        self.bytes += block.rows.nbytes
        self.reducer.offered(block, target)
        self._count_in(block, target)
        self._expire_s = min(self._expire_s, self.reducer.next_expiry([self.queue[-1]], now) if known else -math.inf)
        limit = self.reducer.limit(target, self.limits.max_rows, self.limits.max_bytes)
        if self.rows > (limit.rows or 0) or self.bytes > (limit.bytes or 0) or self._bounds.over:
            if self.defer and self._heavy(target):
                self.overfull = True
            else:
                self._reduce(limit, now)

    def _count_in(self, block: Block, target: Child | Receiver) -> None:
        """Count a block that came for the receivers with limits of their own."""
        bounds = self.reducer.bounds(target)
        if bounds is self._bounds:
            if bounds:
                bounds.add(block)
        else:
            self._bounds = bounds
            self._recount()

    def _recount(self) -> None:
        if self._bounds:
            self._bounds.clear()
            for each in self.queue:
                self._bounds.add(each.block)

    def _heavy(self, target: Child | Receiver) -> bool:
        """Whether a pack is better done apart; an inbox that expires changes its queue at any time, so not there."""
        if isinstance(target, Receiver) and target.subscription.expires_s is not None:
            return False
        return self.rows > self.limits.heavy_rows or self.reducer.groups(target) > HEAVY_GROUPS

    def _reduce(self, limit: Limit, now: float) -> None:
        """Let the policies decide what goes of everything that is not on its way out."""
        sent, waiting = self._apart()
        room = self._room_behind(sent, limit)
        if waiting and room is not None:
            packed = self.reducer.reduce(waiting, room, now, self.came, self.went, sent)
            self._refill([*sent, *self._drop_ancient(packed)])

    @property
    def oldest(self) -> float:
        """Since when the rows of the next message have waited; infinite when there are none."""
        return self.queue[0].due(self._message_rows) if self.queue else math.inf

    def note_wait(self, now: float) -> None:
        """Look how long the next rows have waited."""
        if now - self._looked_s > (self.limits.shed_after_s or 0.0) / 2:
            self._looked_s, self._waits = now, (self._waits[1], 0.0)
        self._waits = (self._waits[0], max(self._waits[1], now - self.oldest))

    def waited(self, now: float) -> float:
        """The longest wait of late: an output that empties between two blocks has waited long only before its turn."""
        self.note_wait(now)
        return max(self._waits)

    def thin(self, part: float, now: float) -> None:
        """Keep about that part of every class of what waits and is not on its way out."""
        sent, waiting = self._apart()
        if waiting and not self.packing:
            self._refill([*sent, *self.reducer.thin(waiting, part, now)])

    def thin_fresh(self, part: float, now: float) -> None:
        """Give up as many rows as leave that part of what came since the last time, of every class that waits alike.

        What has been sent meanwhile cannot be given up any more: as much of what waits or comes later goes instead.
        """
        self._owed = self._owed + (1.0 - part) * self._fresh if part < 1.0 else 0.0
        self._fresh = 0
        rows = self.rows - (len(self.busy.seqs) if self.busy is not None else 0)
        if self._owed >= 1.0 and rows > 0 and not self.packing:
            taken = min(self._owed, float(rows))
            self._owed -= taken
            self.thin(1.0 - taken / rows, now)

    def _room_behind(self, sent: list[Waiting], limit: Limit) -> Limit | None:
        """What the rest may take behind the first entries, None when it does not take more.

        A large message on its way must not cost everything that comes behind it: half of the room stays. Receivers
        on a link that are over limits of their own are reason enough to look at the rest.
        """
        sent_rows = sum(len(each.block.seqs) for each in sent)
        sent_bytes = sum(each.block.rows.nbytes for each in sent)
        rows, size = limit.rows or 0, limit.bytes or 0
        room = Limit(max(rows - sent_rows, LEFT_BEHIND * rows), max(size - sent_bytes, LEFT_BEHIND * size))
        over = (
            self._bounds.over or self.rows - sent_rows > (room.rows or 0) or self.bytes - sent_bytes > (room.bytes or 0)
        )
        return room if over else None

    def begin_pack(self, now: float) -> Callable[[], list[Waiting]] | None:
        """The work of a pack that was left to the owner, None when there is nothing to do (any more)."""
        self.overfull = False
        if not self.queue:
            return None
        limit = self.reducer.limit(self.queue[-1].target, self.limits.max_rows, self.limits.max_bytes)
        sent, waiting = self._apart()
        front, rest = front_of(waiting, max(1, int(min(limit.rows or 0, self._bounds.least_rows) / _FRONT)))
        room = self._room_behind([*sent, *front], limit)
        if room is None or not rest:
            return None
        self.queue = deque([*sent, *front])
        self.packing = True
        self._packed_after = rest[0].block.after
        came, went = self.came, self.went
        return lambda: self.reducer.reduce(rest, room, now, came, went, [*sent, *front])

    def end_pack(self, waiting: list[Waiting]) -> None:
        """Take back what a pack has left, behind what was at the front."""
        self.packing = False
        have = self.coverage or 0
        kept = [replace(each, block=each.block.since(have)) for each in waiting if each.block.upto > have]
        self._refill([*self.queue, *self._drop_ancient(kept)])
        for block, target in self._later:
            self.reducer.published(block, target)
        self._later = []

    def _apart(self) -> tuple[list[Waiting], list[Waiting]]:
        """What the message on its way covers, which must stay as it is, and the rest."""
        if self.busy is None:
            return [], list(self.queue)
        upto = self.busy.upto
        sent, waiting = [], []
        for each in self.queue:
            if each.block.upto <= upto:
                sent.append(each)
            elif each.block.after >= upto:
                waiting.append(each)
            else:
                sent.append(replace(each, block=each.block.until(upto)))
                waiting.append(replace(each, block=each.block.since(upto)))
        return sent, waiting

    def _drop_ancient(self, waiting: list[Waiting]) -> list[Waiting]:
        """Give up what came before the last `SPAN` times the limit, whatever the policies say."""
        before, end = self.came - SPAN * self.limits.max_rows, self.came
        kept: list[Waiting] = []
        behind = self.came
        for each in reversed(waiting):
            if each.came < behind:
                # A block came as a whole: it is as old as its last row, or a large one would be old at once.
                behind, end = each.came, behind
            kept.append(self.reducer.emptied(each, OLDEST) if end < before else each)
        return kept[::-1]

    def _refill(self, waiting: list[Waiting]) -> None:
        """Put entries back; neighbours without rows become one, so that a queue is not much longer than its rows.

        What is on its way out stays apart: it has declared its own, and the rest must not declare it again.
        """
        before, leaving = self.rows, self.busy.upto if self.busy is not None else -1
        merged: list[Waiting] = []
        for each in waiting:
            last = merged[-1] if merged else None
            alike = last is not None and each.target is last.target and each.block.version == last.block.version
            if last is not None and alike and last.block.upto != leaving and _join(last.block, each.block):
                decided = last.decided or each.decided
                merged[-1] = replace(each, block=concat([last.block, each.block]), since=last.since, decided=decided)
            else:
                merged.append(each)
        self.queue = deque(merged)
        self.rows = sum(len(each.block.seqs) for each in merged)
        self.bytes = sum(each.block.rows.nbytes for each in merged)
        self._recount()
        self.reduced += before - self.rows

    def report(self, now: float) -> dict[str, Any]:
        """What waits here, for status displays."""
        link = bool(self.queue) and isinstance(self.queue[-1].target, Child)
        return {"rows": self.rows, "bytes": self.bytes, **report(self.queue, now, link=link)}

    def due(self, now: float) -> bool:
        """Whether there is something that has waited long enough to be sent; rows past their age go first."""
        if self.busy is not None or not self.queue:
            return False
        if now >= self._expire_s and not self.packing:
            fresh = self.reducer.expire(list(self.queue), now)
            if fresh is not None:
                self._refill(fresh)
            self._expire_s = self.reducer.next_expiry(self.queue, now)
        return now >= self.due_at

    @property
    def due_at(self) -> float:
        """From when on the next message may be sent."""
        if not self.queue:
            return math.inf
        has_content = self.rows > 0 or any(each.block.declared for each in self.queue)
        return self.queue[0].since + (self.limits.linger_s if has_content else self.limits.idle_s)

    def next_message(self, now: float, max_rows: int) -> Block | None:
        """The next message, None when there is nothing to send yet; it stays queued until `published`."""
        if not self.due(now):
            return None
        max_rows = min(max_rows, self._most_rows)
        self._message_rows = max_rows
        self.reducer.piece_rows = min(max(max_rows, _LEAST_PIECE), _MOST_PIECE)
        first = self.queue[0]
        taken, rows = [first], len(first.block.seqs)
        for each in islice(self.queue, 1, None):
            rows += len(each.block.seqs)
            # What is declared belongs to the last commit of a message, so nothing comes behind it.
            if taken[-1].block.declared or each.block.version != first.block.version or rows > max_rows:
                break
            taken.append(each)
        message = concat([each.block for each in taken])
        if any(each.decided for each in taken):
            self.busy = message
        else:
            self.busy = self._settling(next(iter(message.pieces(max_rows))))
        return self.busy

    def _settling(self, message: Block) -> Block:
        """The message, cut where a commit ends if none of the last ones did: a subscriber counts up to such ends only.

        Blocks that come through other relays end anywhere, so without it hundreds of messages in a row may not.
        """
        self._astray = 0 if message.at_boundary else self._astray + 1
        if self._astray < _ASTRAY:
            return message
        ends = [commit.upto for commit in message.commits if message.after < commit.upto <= message.upto]
        if not ends:
            return message
        self._astray = 0
        return message.until(ends[-1])

    def published(self, sequence: int) -> None:
        """The message was stored: its end is now the coverage."""
        assert self.busy is not None
        self.sequence = sequence
        self._most_rows = min(self._most_rows * 2, _MOST_ROWS)
        self.stalled = False
        self.went += len(self.busy.seqs)
        if self.queue and self.packing:
            self._later.append((self.busy, self.queue[0].target))
        elif self.queue:
            self.reducer.published(self.busy, self.queue[0].target)
        self._advance(self.busy.upto)
        self.busy = None

    def _advance(self, upto: int) -> None:
        self.coverage = upto
        self.held = None
        while self.queue and self.queue[0].block.upto <= upto:
            block = self.queue.popleft().block
            self.rows -= len(block.seqs)
            self.bytes -= block.rows.nbytes
            if self._bounds:
                self._bounds.take(block)
        if self.queue and self.queue[0].block.after < upto:
            block = self.queue[0].block
            rest = block.since(upto)
            self.rows -= len(block.seqs) - len(rest.seqs)
            self.bytes -= block.rows.nbytes - rest.rows.nbytes
            if self._bounds:
                self._bounds.take(block.until(upto))
            self.queue[0] = replace(self.queue[0], block=rest)

    def too_large(self) -> None:
        """The message on its way is larger than the server takes: send fewer rows, or give up the one row that it is.

        What is given up is declared to every receiver of the row, as `oversize`.
        """
        assert self.busy is not None
        message, self.busy = self.busy, None
        if len(message.seqs) > 1 and not self.queue[0].decided:
            self._most_rows = max(len(message.seqs) // 2, 1)
            return
        sent: list[Waiting] = []
        message = self.queue[0].block if self.queue[0].decided else message
        for each in self.queue:
            if each.block.after < message.upto < each.block.upto:
                sent += [replace(each, block=each.block.until(message.upto))]
                sent += [replace(each, block=each.block.since(message.upto))]
            else:
                sent.append(each)
        gone, rest = [], []
        for each in sent:
            if each.block.upto <= message.upto:
                gone += [self.reducer.emptied(piece, OVERSIZE) for piece in for_decisions(each, _MOST_ROWS)]
            else:
                rest.append(each)
        self._refill([*gone, *rest])

    def refused(self) -> None:
        """The output's log is full: keep the message and try again later."""
        self.busy = None
        self.stalled = True

    def resume(self, coverage: int | None, sequence: int) -> bool:
        """A message was stored without our knowing, as its answer was lost or another relay sent it: go on from there.

        False when that message ends inside of something that was decided on here, or is being decided on: what of the
        decision lies behind it cannot be told, so everything has to be read again.
        """
        self.busy = None
        self.sequence = sequence
        if coverage is None:
            return True
        split = any(each.decided and each.block.after < coverage < each.block.upto for each in self.queue)
        split = split or (self.packing and coverage > self._packed_after)
        self._advance(coverage)
        return not split

    def hold(self) -> Block | None:
        """What a stalled output has given up at its front, to be recorded so that a restart knows it."""
        if not self.stalled or not self.queue:
            return None
        block = self.queue[0].block
        if len(block.seqs) or self.held == block.upto:
            return None
        return block

    def restore_held(self, block: Block, target: Child | Receiver, now: float) -> None:
        """Take back a recorded decision after a restart, unless another relay has published since it was made."""
        if self.coverage is not None and block.after < self.coverage:
            return
        self.queue.appendleft(Waiting(block, target, now, decided=True))
        self.held = block.upto

    def give_up_all(self, change: Callable[[Block], Block]) -> None:
        """Replace every queued block by what is left of it; nothing may be under way."""
        assert self.busy is None
        pieces = (piece for each in self.queue for piece in for_decisions(each, _MOST_ROWS))
        self.queue = deque(replace(piece, block=change(piece.block), decided=True) for piece in pieces)
        self.rows = self.bytes = 0
        self._recount()
