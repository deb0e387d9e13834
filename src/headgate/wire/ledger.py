"""The arithmetic behind "no silent loss": per subscription, matched = delivered + reduced + expired + in flight.

`matched` is summed at the root from manifests. `delivered`, `reduced` and `expired` are counted by the subscriber's
side from what arrived, up to the last commit boundary that it acknowledged. The difference is taken at that boundary;
in flight is what was matched after it. No term is a remainder of the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from headgate.wire.block import EXPIRED, GRANT, Block, merge_declared
from headgate.wire.frame import WireError
from headgate.wire.histogram import Histogram
from headgate.wire.record import Count, read_record, write_record
from headgate.wire.unsent import add_reasons

DELIVERED: Final = "delivered"
_TALLY: Final = "acknowledgement"


@dataclass(slots=True)
class Since:
    """What was counted past the last commit boundary."""

    delivered: Count = 0
    reduced: dict[str, Count] = field(default_factory=dict)
    expired: Count = 0
    shed: Count = 0
    shed_updates: Count = 0
    partly_shed: Count = 0
    unevaluated: Count = 0
    unsent: dict[str, Count] = field(default_factory=dict)


@dataclass(slots=True)
class Begun:
    """A commit that was counted in part: where it ends, rows counted, rows that it matched where some cannot be read.

    >>> Begun(20, counted=3, whole=5).missing, Begun(20, counted=3).missing
    (2, 0)
    """

    upto: Count
    counted: Count = 0
    whole: Count | None = None

    @property
    def missing(self) -> int:
        """Rows that have expired when the commit ends."""
        return max(0 if self.whole is None else self.whole - self.counted, 0)


@dataclass(slots=True)
class Tally:
    """What one subscriber counted, up to a commit boundary. This is the acknowledgement that it stores.

    `starts` is the sequence before the first row that it was owed. `inbox` is the place of the last message read in the
    inbox log of its `stay` (see `headgate.model.Stay`), and `entered` what was counted before it; `mark` is the
    coverage reached, which may lie past the boundary. What was counted between the two is kept in `since`, so that a
    reader who resumes inside a commit settles all of it. `begun` is the commit that the mark lies inside of, None at an
    end. `detached_ms` is when the subscriber said that it would be away, 0 while it has not; `grace_s` how long its
    rows are to be kept then, None for as long as the subscription says. `lost` is the place in the state log of an
    acknowledgement that could not be read, or behind which rows are no longer kept, 0 when there was none: what was
    counted before it is not in here.
    `incarnation` is the id of the stream's incarnation that the sequence numbers belong to, `run` that of the service's
    run in which they were read, `reader` that of the reader that stored it. `jitter` are differences of the delays of
    consecutive rows, from the commit on; `last_delay_ms` is the last one's delay. `beyond` are of a group: from a first
    to a last row, past the mark, all rows that members are done with while others still have some before them.
    """

    subscription: Count
    starts: Count | None = None
    boundary: Count = 0
    delivered: Count = 0
    reduced: dict[str, Count] = field(default_factory=dict)
    expired: Count = 0
    shed: Count = 0
    shed_updates: Count = 0
    partly_shed: Count = 0
    unevaluated: Count = 0
    unsent: dict[str, Count] = field(default_factory=dict)
    mark: Count = 0
    inbox: Count = 0
    since: Since = field(default_factory=Since)
    begun: Begun | None = None
    time_ms: Count = 0
    stay: Count = 0
    entered: dict[str, Count] = field(default_factory=dict)
    detached_ms: Count = 0
    grace_s: float | None = None
    lost: Count = 0
    incarnation: str = ""
    run: str = ""
    reader: str = ""
    commit_delay: Histogram = field(default_factory=Histogram)
    event_delay: Histogram = field(default_factory=Histogram)
    jitter: Histogram = field(default_factory=Histogram)
    last_delay_ms: float | None = None
    beyond: list[tuple[Count, Count]] = field(default_factory=list)

    def encode(self) -> bytes:
        """The stored form."""
        return write_record(_TALLY, self)

    @classmethod
    def decode(cls, data: bytes) -> Tally:
        """Read the stored form; fields that a newer client has added are passed over."""
        return read_record(_TALLY, cls, data)

    def place(self, stay: int) -> int:
        """The place of the last message read in the inbox of a stay; 0 when the reader has not come to it."""
        return self.inbox if stay == self.stay else 0

    @classmethod
    def read(cls, data: bytes) -> Tally | None:
        """Read what somebody stored as an acknowledgement, None when it is not one."""
        try:
            return cls.decode(data)
        except WireError:
            return None


def counted_by(tally: Tally) -> dict[str, int]:
    """Everything that a tally has counted up to its mark: rows delivered, and rows given up by reason."""
    found = {DELIVERED: tally.delivered + tally.since.delivered, EXPIRED: tally.expired + tally.since.expired}
    for reasons in (tally.reduced, tally.since.reduced):
        for reason, count in reasons.items():
            found[reason] = found.get(reason, 0) + count
    return found


def _ends(block: Block, seqs: npt.NDArray[np.uint64] | None = None) -> list[int]:
    """For each commit of a block, the number of rows up to its end."""
    ends = np.array([commit.upto for commit in block.commits], dtype=np.uint64)
    return [int(end) for end in (block.seqs if seqs is None else seqs).searchsorted(ends, side="right")]


def counted_in_stay(tally: Tally) -> dict[str, int]:
    """The same, of what was read at the site of its stay."""
    return {reason: count - tally.entered.get(reason, 0) for reason, count in counted_by(tally).items()}


class Account:
    """The subscriber's side: counts every block that it is handed and yields a `Tally` at each commit boundary."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    @property
    def coverage(self) -> int | None:
        """The sequence up to which everything was handed over; None before the first block."""
        return None if self.tally.starts is None else self.tally.mark

    def begin_again(self, start: int, lost: int) -> None:
        """Count from here on only: rows before it are lost to this reader, which `lost` says in every tally."""
        known, self.tally = self.tally, Tally(self.tally.subscription, start, start, mark=start, lost=lost or 1)
        self.tally.stay, self.tally.inbox = known.stay, known.inbox
        self.tally.incarnation, self.tally.run, self.tally.reader = known.incarnation, known.run, known.reader

    def rest(self, block: Block) -> Block:
        """The part of a block past the coverage, with what it declares of that part only.

        What lies unread in an inbox may expire while its reader has some of it in hand. The declaration then stands
        for rows that this account has counted already: they are taken off it.
        """
        have, mine = self.coverage, self.tally.subscription
        if have is None or block.after >= have or mine not in block.basis:
            return block if have is None else block.since(have)
        counted, before = counted_in_stay(self.tally), block.basis[mine]
        declared = dict(block.declared.get(mine, {}))
        for reason, count in counted.items():
            gone = EXPIRED if reason == DELIVERED else reason
            declared[gone] = declared.get(gone, 0) - (count - before.get(reason, 0))
        return replace(block.since(have), declared={mine: {why: count for why, count in declared.items() if count}})

    def add(self, block: Block, inbox: int, now_ms: int) -> Block:
        """Count a block that continues the coverage; returns it with all that has expired in it declared."""
        tally = self.tally
        if tally.starts is None:
            tally.starts = tally.mark = tally.boundary = block.after
        if block.after != tally.mark:
            raise ValueError(f"a block after {block.after} does not continue the coverage at {tally.mark}")
        missing = self._missing(block)
        if missing:
            expired = {tally.subscription: {EXPIRED: missing}}
            block = replace(block, declared=merge_declared(block.declared, expired))
        if len(block.withheld):
            kept_back = {tally.subscription: {GRANT: len(block.withheld)}}
            nothing = block.withheld[:0]
            block = replace(block, declared=merge_declared(block.declared, kept_back), withheld=nothing)
        since = tally.since
        since.delivered += len(block.seqs)
        for reason, count in block.declared.get(tally.subscription, {}).items():
            if reason == EXPIRED:
                since.expired += count
            else:
                since.reduced[reason] = since.reduced.get(reason, 0) + count
        for commit in block.ended:
            since.shed += commit.shed
            since.shed_updates += commit.shed_updates
            since.partly_shed += commit.partly_shed
            since.unevaluated += commit.unevaluated.get(tally.subscription, 0)
            add_reasons(since.unsent, commit.unsent.reasons if commit.unsent else {})
        tally.mark, tally.inbox, tally.time_ms = block.upto, inbox, now_ms
        self._observe(block, now_ms)
        if block.at_boundary:
            self._settle(block)
        return block

    def _missing(self, block: Block) -> int:
        """Rows that can no longer be read, of commits that end in a block.

        A commit some of whose rows are gone says how many it matched (`Commit.whole`), perhaps in a part of it only. By
        its end everything else of it has been counted here, whatever way it came.
        """
        tally, mine, last = self.tally, self.tally.subscription, block.commits[-1]
        if mine in block.begun:  # unread messages that have expired: they were counted in the same way to make it
            counted = Begun(last.upto, block.begun[mine], last.whole.get(mine))
            tally.begun = None if block.at_boundary else counted
            return 0
        missing, start = 0, 0
        ends = [rows + kept for rows, kept in zip(_ends(block), _ends(block, block.withheld), strict=True)]
        for commit, end in zip(block.commits, ends, strict=True):
            if tally.begun is not None and tally.begun.upto < commit.upto:  # nothing of its end is in the block
                missing, tally.begun = missing + tally.begun.missing, None
            begun = tally.begun = tally.begun or Begun(commit.upto)
            begun.counted += end - start
            begun.whole = commit.whole.get(mine, begun.whole)
            if commit is last:
                begun.counted += sum(block.declared.get(mine, {}).values())
            if commit.upto <= block.upto:
                missing, tally.begun = missing + begun.missing, None
            start = end
        return missing

    def _observe(self, block: Block, now_ms: int) -> None:
        """Count the delays of the rows, by the commit that they came with."""
        ends = _ends(block)
        for start, end, commit in zip([0, *ends[:-1]], ends, block.commits, strict=True):
            delay_ms = now_ms - commit.time_ms
            self.tally.commit_delay.add(delay_ms, end - start)
            self.tally.event_delay.add(delay_ms + commit.lag_ms, end - start)
            if end > start:
                if self.tally.last_delay_ms is not None:
                    self.tally.jitter.add(abs(delay_ms - self.tally.last_delay_ms))
                self.tally.jitter.add(0.0, end - start - 1)  # rows of one commit come together
                self.tally.last_delay_ms = delay_ms

    def _settle(self, block: Block) -> None:
        tally, since = self.tally, self.tally.since
        tally.boundary = block.upto
        tally.delivered += since.delivered
        tally.expired += since.expired
        for reason, count in since.reduced.items():
            tally.reduced[reason] = tally.reduced.get(reason, 0) + count
        tally.shed += since.shed
        tally.shed_updates += since.shed_updates
        tally.partly_shed += since.partly_shed
        tally.unevaluated += since.unevaluated
        add_reasons(tally.unsent, since.unsent)
        tally.since = Since()
