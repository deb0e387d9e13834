"""Dealing the rows of a group: which member has which row, what comes back from members, and what is done.

Rows are dealt in the order of their sequence numbers to members that have room: in turn, or each to the member that
ranks highest for it. A row is a member's until that has acknowledged it, has left, or its lease is over; then it is
dealt again, to whoever has room. This is the state alone: no I/O and no clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.protocol.deals import GivenUp, MemberCall
from headgate.wire.block import Block

WINDOW_ROWS: Final = 4096
"""Rows, and messages without rows, that are in memory at most before another is taken in."""
_FREE: Final = -1
_DONE: Final = -2
_MOST_NOTES: Final = 64
Range = tuple[int, int]
Share = tuple[Block, npt.NDArray[np.int64]]
"""A block, and which of its rows."""
Rank = Callable[[pa.RecordBatch, Mapping[str, Any]], npt.NDArray[np.float64]]
"""How well each of some rows suits a member with these values; the largest gets the row."""


@dataclass(slots=True)
class Attendee:
    """A member that is there. `held` counts its rows; `sent` are those of its last turn."""

    name: str
    number: int
    session: str
    room: int = 0
    context: Mapping[str, Any] = field(default_factory=dict)
    heard_s: float = 0.0
    asking: int = 0
    turn: int = -1
    sent: frozenset[int] = frozenset()
    held: int = 0
    stalled: bool = False
    """Whether a lease of it ran out since it asked last: it gets nothing more until it asks."""
    dealt: int = 0
    done: int = 0


@dataclass(slots=True)
class _Kept:
    """A block in memory, with the tally that counts up to its end, and of each row who has it and until when."""

    block: Block
    tally: bytes
    holder: npt.NDArray[np.int64]
    due_s: npt.NDArray[np.float64]
    handed: npt.NDArray[np.bool_]

    @property
    def finished(self) -> bool:
        return bool((self.holder == _DONE).all())


class Dealing:
    """The rows of one group that are not done yet, and its members."""

    def __init__(self, lease_s: float, rank: Rank | None = None, beyond: Sequence[Range] = (), mark: int = 0) -> None:
        """Rows up to `mark` are acknowledged; `beyond` are ranges behind it that members were done with before."""
        self._upto = mark
        self.lease_s = lease_s
        self.members: dict[str, Attendee] = {}
        self.notes: list[GivenUp] = []
        self._rank = rank
        self._known = list(beyond)
        self._kept: list[_Kept] = []
        self._order: list[Attendee] = []  # whose turn is next comes first
        self._by_number: dict[int, Attendee] = {}
        self._numbers = 0

    @property
    def full(self) -> bool:
        """Whether no more rows are to be taken in for now."""
        return sum(len(kept.holder) + 1 for kept in self._kept) >= WINDOW_ROWS

    @property
    def empty(self) -> bool:
        """Whether nothing is open: everything that was taken in is done and settled."""
        return not self._kept

    def add(self, block: Block, tally: bytes, group: int) -> None:
        """Take in the next block of the group's inbox; `tally` is what is acknowledged when all of it is done."""
        holder = np.full(len(block.seqs), _FREE, dtype=np.int64)
        for first, last in self._known:
            holder[(block.seqs >= first) & (block.seqs <= last)] = _DONE
        self._known = [each for each in self._known if each[1] > block.upto]
        self._upto = block.upto
        rows = len(holder)
        self._kept.append(_Kept(block, tally, holder, np.zeros(rows), np.zeros(rows, dtype=np.bool_)))
        reasons = {why: count for why, count in block.declared.get(group, {}).items() if count}
        if reasons:
            self.notes = [*self.notes[1 - _MOST_NOTES :], GivenUp(block.after, block.upto, reasons)]

    def attend(self, call: MemberCall, context: Mapping[str, Any], now_s: float) -> Attendee:
        """A member asks: from now on it is there. What an earlier run of it held goes back."""
        known = self.members.get(call.member)
        if known is not None and known.session != call.session:
            self.leave(call.member)
            known = None
        if known is None:
            self._numbers += 1
            known = Attendee(call.member, self._numbers, call.session)
            self.members[call.member] = self._by_number[known.number] = known
            self._order.append(known)
        known.room, known.context, known.heard_s, known.stalled = call.room, context, now_s, False
        return known

    def leave(self, name: str) -> None:
        """A member is gone: its rows are free."""
        gone = self.members.pop(name, None)
        if gone is not None:
            self._order.remove(gone)
            del self._by_number[gone.number]
            for kept in self._kept:
                kept.holder[kept.holder == gone.number] = _FREE

    def acknowledge(self, member: Attendee, seqs: Sequence[int]) -> list[int]:
        """A member is done with rows; returns those that another member has by now.

        One whose lease ran out and that nobody else has yet is done all the same, and so is one of an earlier dealer
        that was not taken in here yet.
        """
        lost: list[int] = []
        for seq in seqs:
            found = self._find(seq)
            if found is None:  # settled before, as the question was repeated, or still to come
                if seq > self._upto and not any(first <= seq <= last for first, last in self._known):
                    self._foresee(seq, lost)
                continue
            kept, index = found
            holder = int(kept.holder[index])
            if holder not in (member.number, _FREE, _DONE):
                lost.append(seq)
            elif holder != _DONE:
                kept.holder[index] = _DONE
                member.held -= holder == member.number
                member.done += 1
        return lost

    def _foresee(self, seq: int, lost: list[int]) -> None:
        """A row that is not here yet is done: nobody is to get it."""
        if len(self._known) < WINDOW_ROWS:
            self._known.append((seq, seq))
        else:
            lost.append(seq)

    def _find(self, seq: int) -> tuple[_Kept, int] | None:
        place = bisect_left(self._kept, seq, key=lambda kept: kept.block.upto)
        if place == len(self._kept):
            return None
        kept = self._kept[place]
        index = int(np.searchsorted(kept.block.seqs, np.uint64(seq)))
        there = index < len(kept.block.seqs) and int(kept.block.seqs[index]) == seq
        return (kept, index) if there else None

    def deal(self, now_s: float) -> bool:
        """Give every free row to a member that has room; whether any was given."""
        given = False
        for kept in self._kept:
            ready = [each for each in self._order if each.held < each.room and not each.stalled]
            free = np.flatnonzero(kept.holder == _FREE) if ready else ()
            if not len(free):
                continue
            scores = None
            if self._rank is not None:
                rows = kept.block.rows.take(pa.array(free))
                scores = {each.number: self._rank(rows, each.context) for each in ready}
            for place, index in enumerate(free):
                if not ready:
                    break
                best = ready[0]
                if scores is not None:
                    best = max(ready, key=lambda each: scores[each.number][place])  # the first of equals
                self._give(best, kept, int(index), now_s)
                given = True
                ready.remove(best)
                if best.held < best.room:
                    ready.append(best)
                self._order.remove(best)
                self._order.append(best)
        return given

    def _give(self, member: Attendee, kept: _Kept, index: int, now_s: float) -> None:
        kept.holder[index], kept.handed[index] = member.number, False
        kept.due_s[index] = now_s + self.lease_s
        member.held += 1
        member.dealt += 1

    def collect(self, member: Attendee, turn: int, now_s: float, max_bytes: int = 1 << 30) -> list[Share]:
        """The rows of a member's turn: those that were dealt to it and that it has not seen, by block.

        They have the same columns, and about so many bytes at most; the rest comes with the next turn. A turn that was
        answered before is answered again, with what of it is still the member's.
        """
        again = turn == member.turn and bool(member.sent)
        found: list[Share] = []
        for kept in self._kept:
            if max_bytes <= 0 or (found and not found[0][0].rows.schema.equals(kept.block.rows.schema)):
                break
            mine = kept.holder == member.number
            if again:
                mine &= np.isin(kept.block.seqs, np.array(sorted(member.sent), dtype=np.uint64))
            else:
                mine &= ~kept.handed
            indices = np.flatnonzero(mine)
            if len(indices):
                each = max(kept.block.rows.nbytes // len(kept.holder), 1)
                indices = indices[: max(max_bytes // each, 1)]
                max_bytes -= each * len(indices)
                kept.handed[indices], kept.due_s[indices] = True, now_s + self.lease_s
                found.append((kept.block, indices))
        if not again:
            member.sent = frozenset(int(seq) for block, indices in found for seq in block.seqs[indices])
        member.turn = turn
        return found

    def expire(self, now_s: float) -> bool:
        """Take rows back whose lease is over, and members off that were not heard of for so long; whether any were."""
        came_back = False
        for kept in self._kept:
            late = np.flatnonzero((kept.holder >= 0) & (kept.due_s <= now_s))
            for index in late.tolist():
                member = self._by_number[int(kept.holder[index])]
                member.held, member.stalled = member.held - 1, True
                kept.holder[index] = _FREE
                came_back = True
        for member in list(self.members.values()):
            if not member.asking and member.heard_s + self.lease_s <= now_s:
                came_back = came_back or member.held > 0
                self.leave(member.name)
        return came_back

    def settle(self) -> bytes | None:
        """Let go of what is done from the front on; the tally up to there, None where nothing is new."""
        tally = None
        while self._kept and self._kept[0].finished:
            tally = self._kept.pop(0).tally
        return tally

    def beyond(self) -> list[Range]:
        """Ranges of rows that are done behind one that is not: every row of the group from the first to the last."""
        if not self._kept:
            return list(self._known)
        seqs = np.concatenate([kept.block.seqs for kept in self._kept])
        done = np.concatenate([kept.holder == _DONE for kept in self._kept]).astype(np.int8)
        edges = np.diff(done, prepend=0, append=0)
        firsts, lasts = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
        found = [(int(seqs[first]), int(seqs[last])) for first, last in zip(firsts, lasts, strict=True)]
        return found + self._known
