"""One output of a relay: a bounded queue of blocks towards a child's site log or a subscription's inbox.

What was published is final: `coverage` is the end of the last message in the output's log, and the next message
starts there. Rows that do not fit in the queue are given up as the receivers' policies say, and declared; nothing
upstream is ever held up. A policy may keep old rows, but not for ever: what came before the last `SPAN` times the
limit is given up, oldest first, because the site log has to keep everything behind it. `decided` is the end of what
was given up without being published yet; it is recorded apart (`held`) when an output stalls, so that the site log
can be purged behind it.

With `shed_after_s` a link's queue is bounded by time as well: what waits longer is thinned, every class by the same
part (see `headgate.relay.even_shedding`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import numpy as np

from headgate.model import Deployment, parse_duration
from headgate.protocol.reports import OutputReport
from headgate.reduction.backlog import Limit
from headgate.reduction.constant_thinning import Thinner
from headgate.relay.bounds import LEFT_BEHIND
from headgate.relay.queue_age import Aging
from headgate.relay.queue_report import age_s, waits_by_class, withheld_rows
from headgate.relay.queued_blocks import Waiting, WaitingBlocks, apart_from_declared, for_decisions, front_of, meant_for
from headgate.relay.reducer import Reducer
from headgate.relay.routes import Child, Receiver
from headgate.relay.shared import SharedWork
from headgate.wire.block import Block, merge_declared

OLDEST: Final = "oldest"
OVERSIZE: Final = "oversize"
_MOST_ROWS: Final = 1 << 31
_LEAST_PIECE, _MOST_PIECE = 16, 4096  # rows that are decided on, and so published, together
SPAN: Final = 4
FULL_BYTES: Final = 128 << 10  # so many bytes need not wait for more
QUIET: Final = 4
_EVEN_S: Final = 0.05
# More groups of policies or more rows than this take longer to pack than an event loop should be held up for.
HEAVY_GROUPS: Final = 16
HEAVY_ROWS: Final = 5_000
_FRONT: Final = 8
_ASTRAY: Final = 8  # so many messages may end inside a commit


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much one output may hold, and how it joins commits into messages.

    A message goes at once when the one before it is `linger_s` old, or when there is enough for a full one; else it
    waits for more, never longer than that. So an idle output adds no delay, and a busy one sends few messages, whatever
    the number of commits.
    A range without rows waits `idle_s`, or until `QUIET` times that after the message before it. With `shed_after_s`
    everything waits a little, as the controllers of `headgate.relay.even_shedding` want evenly spaced turns of links.
    """

    max_rows: int = 100_000
    max_bytes: int = 64 << 20
    linger_s: float = 0.2
    idle_s: float = 0.5
    shed_after_s: float | None = None
    heavy_rows: int = HEAVY_ROWS


def limits_of(deployment: Deployment, limits: QueueLimits) -> QueueLimits:
    """The limits with what the deployment's options say: `shed_after`, how long rows wait on a link at most."""
    after = deployment.options.get("shed_after")
    return limits if after is None else replace(limits, shed_after_s=parse_duration(str(after)))


class Output:
    """The queue of one output. `coverage` None means that nothing was ever published on it.

    With `defer` a pack that takes long is left to the owner: `overfull` says so (`bursting`: by more than twice),
    `begin_pack` gives the work, which may run in a thread, `end_pack` takes the result. Meanwhile
    the front of the queue can be sent; nothing may be offered. `began` is the sequence where it was taken up: until it
    sends something, blocks are routed that its log may have already.
    """

    def __init__(
        self,
        limits: QueueLimits,
        coverage: int | None = None,
        sequence: int = 0,
        *,
        defer: bool = False,
        shared: SharedWork | None = None,
    ) -> None:
        self.limits = limits
        self._shared = shared or SharedWork()
        self.defer = defer
        self.overfull = self.bursting = False
        self.packing = False
        self._packed_after = 0
        self._later: list[tuple[Block, Child | Receiver]] = []
        self.coverage = coverage
        self.sequence = self.began = sequence
        self.reducer = Reducer()
        self._alone = False
        self._blocks = WaitingBlocks()
        self._aging = Aging(limits.shed_after_s)
        self.busy: Block | None = None
        self.stalled = False
        self.held: int | None = None
        self.reduced = 0
        self.purged = 0
        self.tail_bytes = 0
        """The size of the last message of the output's log, as far as it is known."""
        self.came = 0
        self.went = 0
        self._astray = 0
        self._message_rows = 1
        self._sent_s = -math.inf
        self._most_rows = _MOST_ROWS
        self._expire_s = math.inf
        self._thinner: Thinner | None = None

    @property
    def queue(self) -> deque[Waiting]:
        """The blocks that wait, in order; those on their way out are still among them."""
        return self._blocks.entries

    @property
    def rows(self) -> int:
        """How many rows wait."""
        return self._blocks.rows

    @property
    def bytes(self) -> int:
        """How many bytes wait."""
        return self._blocks.bytes

    @property
    def waits(self) -> bool:
        """Whether a message is on its way."""
        return self.busy is not None

    @property
    def reach(self) -> int | None:
        """The end of what is queued or published."""
        return self.queue[-1].block.upto if self.queue else (self.busy.upto if self.busy else self.coverage)

    @property
    def settled(self) -> int | None:
        """The end of what a restart does not need from the site log."""
        return self.held if self.held is not None else self.coverage

    def needs(self, came: int | None) -> bool:
        """Whether some of what came up to a place, None where that is not known, is still to be sent."""
        if came is None:
            return self.reach is not None
        return bool(self.queue) or self.busy is not None or self.packing

    def offer(self, block: Block, target: Child | Receiver, now: float) -> None:
        """Queue the part of a block that lies past what is here already."""
        reach = self.reach
        if reach is not None and block.upto <= reach:
            return
        block = meant_for(block if reach is None else block.since(reach), target)
        span_s = self._aging.offered(len(block.seqs), now)
        known = bool(self.queue) and self.queue[-1].target is target
        self.reducer.offered(block, target)
        for piece in apart_from_declared(block):
            entry = Waiting(piece, target, now, self.came, piece.after, span_s, decided=bool(piece.declared))
            whole = isinstance(target, Child) or target.thinning is None
            for each in (entry,) if whole else self._thinned(entry, target):
                self._blocks.add(each, self.reducer.bounds(target))
            self.came += len(piece.seqs)
        self._expire_s = min(self._expire_s, self.reducer.next_expiry([self.queue[-1]], now) if known else -math.inf)
        limit = self.reducer.limit(target, self.limits.max_rows, self.limits.max_bytes)
        if self.rows > (limit.rows or 0) or self.bytes > (limit.bytes or 0) or self._blocks.bounds.over:
            if self.defer and self._heavy(target):
                self.overfull = True
                self.bursting = self.rows > 2 * (limit.rows or 0) or self.bytes > 2 * (limit.bytes or 0)
            else:
                self._reduce(limit, now)

    def _thinned(self, whole: Waiting, target: Child | Receiver) -> Iterator[Waiting]:
        """A block in pieces without what its subscription wants thinned always: each declares what it lacks."""
        assert isinstance(target, Receiver)
        assert target.thinning is not None
        if self._thinner is None or self._thinner.thinning != target.thinning:
            self._thinner = Thinner(target.thinning)
        for each in for_decisions(whole, self.reducer.piece_rows):
            times_s = np.full(len(each.block.seqs), each.block.commits[-1].time_ms / 1000)
            mask, means, gone = self._thinner.reduce(each.block.rows, times_s)
            if gone or means is not None:
                declared = merge_declared(each.block.declared, {target.id: gone}) if gone else each.block.declared
                thin = replace(each.block.take(np.flatnonzero(mask)), declared=declared)
                thin = thin if means is None else replace(thin, rows=means)
                each = replace(each, block=thin, decided=True)  # noqa: PLW2901 - the same piece, decided on
                self.reducer.reasons.update(gone)
                self.reduced += sum(gone.values())
            yield each

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

    def waited(self, now: float) -> float:
        """The longest wait of late."""
        return self._aging.waited(self.oldest, now)

    def thin(self, part: float, now: float) -> None:
        """Keep about that part of every class of what waits and is not on its way out."""
        sent, waiting = self._apart()
        if waiting and not self.packing:
            self._refill([*sent, *self.reducer.thin(waiting, part, now)])

    def thin_fresh(self, part: float, now: float) -> None:
        """Give up as many rows as leave that part of what came since the last time, of every class that waits alike."""
        self._aging.keep(part)
        rows = self.rows - (len(self.busy.seqs) if self.busy is not None else 0)
        if rows > 0 and not self.packing and (taken := self._aging.give_up(rows)):
            self.thin(1.0 - taken / rows, now)

    def _room_behind(self, sent: list[Waiting], limit: Limit) -> Limit | None:
        """What the rest may take behind the first entries, None when it does not take more.

        A large message on its way must not cost everything that comes behind it: half of the room stays. Receivers
        on a link that are over limits of their own are reason enough to look at the rest.
        """
        sent_rows = sum(len(each.block.seqs) for each in sent)
        sent_bytes = sum(each.size for each in sent)
        rows, size = limit.rows or 0, limit.bytes or 0
        room = Limit(max(rows - sent_rows, LEFT_BEHIND * rows), max(size - sent_bytes, LEFT_BEHIND * size))
        rows_over = self.rows - sent_rows > (room.rows or 0)
        over = rows_over or self.bytes - sent_bytes > (room.bytes or 0) or self._blocks.bounds.over
        return room if over else None

    def begin_pack(self, now: float) -> Callable[[], list[Waiting]] | None:
        """The work of a pack that was left to the owner, None when there is nothing to do (any more)."""
        self.overfull = self.bursting = False
        if not self.queue:
            return None
        limit = self.reducer.limit(self.queue[-1].target, self.limits.max_rows, self.limits.max_bytes)
        sent, waiting = self._apart()
        front, rest = front_of(waiting, max(1, int(min(limit.rows or 0, self._blocks.bounds.least_rows) / _FRONT)))
        room = self._room_behind([*sent, *front], limit)
        if room is None or not rest:
            return None
        self._blocks.entries = deque([*sent, *front])
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
        return self._blocks.apart(None if self.busy is None else self.busy.upto)

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
        """Put back what is left; what is missing from it has been given up."""
        before = self.rows
        self._blocks.refill(waiting, self.busy.upto if self.busy is not None else -1)
        self.reduced += before - self.rows

    @property
    def remarkable(self) -> bool:
        """Whether there is something to report: rows wait, were given up, or the output stands."""
        return bool(self.rows or self.reduced or self.stalled or self.reducer.packs)

    def report(self, now: float) -> OutputReport:
        """What waits here, and what was done with what came, for status displays."""
        waited_s = age_s(self.queue, now)
        link = waited_s > 0 and isinstance(self.queue[-1].target, Child)
        return OutputReport(
            rows=self.rows,
            bytes=self.bytes,
            age_s=waited_s,
            classes=waits_by_class(self.queue, now) if link else {},
            not_for=withheld_rows(self.queue) if link else {},
            coverage=self.coverage,
            stalled=self.stalled,
            came=self.came,
            reduced=self.reduced,
            reasons=dict(self.reducer.reasons),
            level=self.reducer.level,
            packs=self.reducer.packs,
            reorderings=self.reducer.reorderings,
        )

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
        since, limits = self.queue[0].since, self.limits
        if limits.shed_after_s is not None and self.rows:
            return since + min(limits.linger_s, _EVEN_S)
        if self.rows >= self._message_rows or self.bytes >= FULL_BYTES:
            return since
        if self.rows > 0 or any(each.block.declared for each in self.queue):
            return max(since, min(self._sent_s, since) + limits.linger_s)
        link = isinstance(self.queue[0].target, Child)  # there are few of them, and many below may wait for it
        idle_s = limits.idle_s if link else max(limits.idle_s, self._shared.idle_s)
        return max(since + idle_s, min(self._sent_s, since) + QUIET * idle_s)

    def next_message(self, now: float, max_rows: int) -> Block | None:
        """The next message, None when there is nothing to send yet; it stays queued until `published`."""
        if not self.due(now):
            return None
        max_rows = min(max_rows, self._most_rows)
        self._message_rows, self._sent_s = max_rows, now
        self.reducer.piece_rows = min(max(max_rows, _LEAST_PIECE), _MOST_PIECE)
        first = self.queue[0]
        taken, rows, ends = [first], len(first.block.seqs), _declared_end(first.block)
        for each in islice(self.queue, 1, 1 if self._alone else None):
            rows += len(each.block.seqs)
            # What is declared belongs to the last commit of a message, so nothing of a later one comes behind it. A
            # site below that is served now and then in place of its parent is not sent what came in between.
            last = taken[-1].block
            parts = ends is not None and each.block.commits[-1].upto != ends
            if parts or last.upto != each.block.after or last.version != each.block.version or rows > max_rows:
                break
            taken.append(each)
            ends = ends if (end := _declared_end(each.block)) is None else end
        message = self._shared.join([each.block for each in taken])
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
        # A quarter more each time: doubling would run into the server's limit with every second message.
        self._most_rows, self._alone = min(self._most_rows + max(self._most_rows // 4, 1), _MOST_ROWS), False
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
        self._blocks.advance(upto)

    def too_large(self) -> None:
        """The message on its way is larger than the server takes: send fewer rows, or give up the one row that it is.

        What is given up is declared to every receiver of the row, as `oversize`.
        """
        assert self.busy is not None
        message, self.busy = self.busy, None
        joined = message.upto > self.queue[0].block.upto
        if len(message.seqs) > 1 and (joined or not self.queue[0].decided):
            self._most_rows = max(len(message.seqs) // 2, 1)
            return
        if joined:  # of several blocks with one row at most: it is not known which of them is too large
            self._alone = True
            return
        message = self.queue[0].block if self.queue[0].decided else message
        sent, rest = self._blocks.apart(message.upto)
        gone = [self.reducer.emptied(piece, OVERSIZE) for each in sent for piece in for_decisions(each, _MOST_ROWS)]
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
        self._blocks.refill([replace(piece, block=change(piece.block), decided=True) for piece in pieces], -1)


def _declared_end(block: Block) -> int | None:
    """The end of the commit that what a block declares belongs to; 0, where no commit ends, if it must be the last."""
    if block.basis or block.begun:
        return 0
    return block.commits[-1].upto if block.declared else None
