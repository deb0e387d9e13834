"""The arithmetic behind "no silent loss": per subscription, matched = delivered + reduced + expired + in flight.

`matched` is summed at the root from manifests. `delivered`, `reduced` and `expired` are counted by the subscriber's
side from what arrived, up to the last commit boundary that it acknowledged. The difference is taken at that boundary;
in flight is what was matched after it. No term is a remainder of the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.wire.block import EXPIRED, GRANT, Block, merge_declared
from headgate.wire.frame import WireError
from headgate.wire.histogram import Histogram
from headgate.wire.manifest import Manifest
from headgate.wire.packing import pack_text, unpack_text
from headgate.wire.record import Count, read_record, write_record
from headgate.wire.unsent import add_reasons

DELIVERED: Final = "delivered"
_TALLY: Final = "acknowledgement"
_SUMS: Final = "ledger"
_MOST_SUMS: Final = 1 << 30
# For each subscription id that a version serves on a stream, its delivery class.
Members = Mapping[int, int]


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
    consecutive rows, from the commit on; `last_delay_ms` is the last one's delay.
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


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger. `oldest_ms` is when the oldest row in flight was committed, None when there is none."""

    subscription: int
    stream: str
    starts: int
    boundary: int
    matched: int
    delivered: int
    reduced: Mapping[str, int]
    expired: int
    in_flight: int
    difference: int
    oldest_ms: int | None = None


class Committed(NamedTuple):
    """A commit that is not summed up yet: its end, when it was made, and rows matched by subscription."""

    upto: Count
    time_ms: int
    counts: dict[int, Count]


@dataclass(slots=True)
class Matched:
    """The root's side for one stream: rows matched per subscription, exact at any boundary from `mark` on.

    Sums up to the mark lie in one table; what came after is kept per manifest, so that the sum can be taken at the
    boundary that each subscriber has acknowledged. `fold` moves the mark when all of them have passed it. `withheld`
    counts rows by the tolerance of the group of classes that they were not matched for, `unsent` by reason those that
    senders gave up before they reached the stream: they are not among `rows_in`. `lost` is where the sums begin when
    those of rows up to there were lost together with the manifests, else 0. `place` is where in the root log the last
    manifest stands that was added.
    """

    stream: str
    lineage: str = ""
    batch: int = -1
    mark: Count = 0
    folded: dict[int, Count] = field(default_factory=dict)
    starts: dict[int, Count] = field(default_factory=dict)
    recent: list[Committed] = field(default_factory=list)
    rows_in: Count = 0
    evaluated: Count = 0
    dead: Count = 0
    shed: Count = 0
    gaps: Count = 0
    shed_updates: Count = 0
    partly_shed: Count = 0
    withheld: dict[str, Count] = field(default_factory=dict)
    unsent: dict[str, Count] = field(default_factory=dict)
    lost: Count = 0
    place: Count = 0

    @property
    def head(self) -> int:
        """The sequence up to which manifests were added."""
        return max(self.recent[-1].upto, self.mark) if self.recent else self.mark

    def has(self, manifest: Manifest) -> bool:
        """Whether a manifest was added: batches count up within a lineage, and a new one starts behind the head."""
        if manifest.lineage == self.lineage:
            return manifest.batch <= self.batch
        return manifest.after < self.head

    def add(self, manifest: Manifest, members: Members) -> None:
        """Add the next manifest; one that was added before is passed over."""
        if self.has(manifest):
            return
        if manifest.after != self.head:
            raise ValueError(f"manifest after {manifest.after} does not continue {self.stream!r} at {self.head}")
        counts = dict(zip(manifest.class_ids.tolist(), manifest.class_counts.tolist(), strict=True))
        found = {}
        for subscription, class_id in members.items():
            self.starts.setdefault(subscription, manifest.after)
            if count := counts.get(class_id):
                found[subscription] = int(count)
        self.lineage, self.batch = manifest.lineage, manifest.batch
        if manifest.evaluated:
            self.recent.append(Committed(manifest.upto, manifest.time_ms, found))
        self.rows_in += manifest.rows_in
        self.evaluated += manifest.evaluated
        self.dead += manifest.dead
        self.shed += manifest.shed
        self.gaps += manifest.gaps
        self.shed_updates += manifest.shed_updates
        self.partly_shed += manifest.partly_shed
        for tolerance, count in manifest.withheld.items():
            self.withheld[tolerance] = self.withheld.get(tolerance, 0) + count
        add_reasons(self.unsent, manifest.unsent.reasons if manifest.unsent else {})

    def add_history(self, subscription: int, counted: Iterable[tuple[Manifest, int]]) -> None:
        """Count a subscription from manifests that were committed before it was made, oldest first, and its rows."""
        for manifest, count in counted:
            self.starts.setdefault(subscription, manifest.after)
            if count:
                place = bisect_left([each.upto for each in self.recent], manifest.upto)
                if place < len(self.recent) and self.recent[place].upto == manifest.upto:
                    self.recent[place].counts[subscription] = count
                else:
                    self.recent.insert(place, Committed(manifest.upto, manifest.time_ms, {subscription: count}))

    def matched(self, subscription: int, upto: int | None = None) -> int:
        """Rows matched for a subscription up to a boundary that it has reached, or in all."""
        later = sum(each.counts.get(subscription, 0) for each in self.recent if upto is None or each.upto <= upto)
        return self.folded.get(subscription, 0) + later

    def fold(self, mark: int) -> None:
        """Fold everything up to a boundary into the table."""
        while self.recent and self.recent[0].upto <= mark:
            end, _, found = self.recent.pop(0)
            for subscription, count in found.items():
                self.folded[subscription] = self.folded.get(subscription, 0) + count
            self.mark = max(self.mark, end)

    def entries(self, tallies: Iterable[Tally], only: Collection[int] | None = None) -> list[Entry]:
        """The ledger: one line per subscription that was ever owed a row, in the order of their ids, or of some only.

        It takes one pass over the commits that are not summed up, whatever the number of subscriptions.
        """
        by_id = {tally.subscription: tally for tally in tallies}
        wanted = self.starts if only is None else [each for each in only if each in self.starts]
        ends = {each: max(by_id[each].boundary if each in by_id else 0, self.starts[each]) for each in sorted(wanted)}
        later: dict[int, int] = {}
        oldest: dict[int, int] = {}
        settled_of = {each: self.folded.get(each, 0) for each in ends}
        for upto, time_ms, counts in self.recent:
            for subscription in ends.keys() & counts.keys():
                if upto <= ends[subscription]:
                    settled_of[subscription] += counts[subscription]
                else:
                    later[subscription] = later.get(subscription, 0) + counts[subscription]
                    oldest.setdefault(subscription, time_ms)
        lines = []
        for subscription, boundary in ends.items():
            tally = by_id.get(subscription) or Tally(subscription)
            settled, in_flight = settled_of[subscription], later.get(subscription, 0)
            reduced = sum(tally.reduced.values())
            lines.append(
                Entry(
                    subscription=subscription,
                    stream=self.stream,
                    starts=self.starts[subscription],
                    boundary=boundary,
                    matched=settled + in_flight,
                    delivered=tally.delivered,
                    reduced=dict(tally.reduced),
                    expired=tally.expired,
                    in_flight=in_flight,
                    difference=settled - tally.delivered - reduced - tally.expired,
                    oldest_ms=oldest.get(subscription),
                )
            )
        return lines

    def encode(self) -> bytes:
        """The stored form, packed where it is large."""
        return pack_text(write_record(_SUMS, self))

    @classmethod
    def decode(cls, data: bytes, stream: str) -> Matched:
        """Read the stored sums of a stream."""
        try:
            text = unpack_text(data, _MOST_SUMS)
        except ValueError as error:
            raise WireError(f"these sums cannot be unpacked: {error}") from None
        found = read_record(_SUMS, cls, text)
        if found.stream != stream:
            raise WireError(f"these are the sums of stream {found.stream!r:.40}")
        return found
