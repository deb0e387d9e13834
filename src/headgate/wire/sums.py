"""The root's side of the ledger: rows matched by subscription, summed up from manifests, and its lines."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headgate.wire.frame import WireError
from headgate.wire.ledger import Tally
from headgate.wire.manifest import Manifest
from headgate.wire.packing import pack_text, unpack_text
from headgate.wire.record import Count, read_record, write_record
from headgate.wire.unsent import add_reasons

_SUMS: Final = "sums"
_BY_SUBSCRIPTION: Final = "ledger"
"""Sums as they were stored before, with counts by subscription."""
MOST_SUMS: Final = 1 << 30
NOBODY: Final = -1
"""The class of a subscription that a commit does not serve."""
MOST_COUNTS: Final = 50_000
"""So many counts of rows by commit and class the sums keep, about half a megabyte."""
# For each subscription id that a version serves on a stream, its delivery class.
Members = Mapping[int, int]


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
    """A commit, or several of them, not summed up yet: its end, when it was made, and rows matched by class.

    `changed` has the class that a subscription is of from this commit on, where that is another than before, `NOBODY`
    where the commit no longer serves it. `past` counts rows of single subscriptions that want rows of before they were
    made. `several` says that it is more than one commit.
    """

    upto: Count
    time_ms: int
    counts: dict[int, Count]
    changed: dict[int, int] = {}  # noqa: RUF012 # a named tuple's default, never written to
    past: dict[int, Count] = {}  # noqa: RUF012
    several: bool = False


@dataclass(slots=True)
class Matched:
    """The root's side for one stream: rows matched per subscription, exact at any boundary from `mark` on.

    Sums up to the mark lie in one table; what came after is kept per manifest and class, so that the sum can be taken
    at the boundary that each subscriber has acknowledged. `classes` are those of subscriptions at the mark, `served`
    at the head. `fold` moves the mark when all of them have passed it. A subscriber that stays away holds the mark:
    `limit` then joins the oldest commits, and a line inside of joined ones is exact again where they end. `withheld`
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
    classes: dict[int, int] = field(default_factory=dict)
    served: Members = field(default_factory=dict)
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

    def add(self, manifest: Manifest, members: Members, classes: Collection[int] | None = None) -> None:
        """Add the next manifest; one that was added before is passed over.

        `members` is kept as it is, and compared by identity first: whoever adds many commits of a version gives the
        same mapping, and with it the `classes` that are in it.
        """
        if self.has(manifest):
            return
        if manifest.after != self.head:
            raise ValueError(f"manifest after {manifest.after} does not continue {self.stream!r} at {self.head}")
        found: dict[int, int] = {}
        changed: dict[int, int] = {}
        if manifest.evaluated:
            changed = self._changes(members, manifest.after)
            wanted = set(members.values()) if classes is None else classes
            counted = zip(manifest.class_ids.tolist(), manifest.class_counts.tolist(), strict=True)
            found = {class_id: int(count) for class_id, count in counted if count and class_id in wanted}
        self.lineage, self.batch = manifest.lineage, manifest.batch
        if manifest.evaluated:
            self.recent.append(Committed(manifest.upto, manifest.time_ms, found, changed))
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

    def _changes(self, members: Members, after: int) -> dict[int, int]:
        """Whose class is another one from now on, and who is served no more; `served` is as it is then."""
        if self.served is members or self.served == members:
            return {}
        changed = {each: class_id for each, class_id in members.items() if self.served.get(each) != class_id}
        for subscription in changed:
            self.starts.setdefault(subscription, after)
        changed |= dict.fromkeys(self.served.keys() - members.keys(), NOBODY)
        self.served = members
        return changed

    def add_history(self, subscription: int, counted: Iterable[tuple[Manifest, int]]) -> None:
        """Count a subscription from manifests that were committed before it was made, oldest first, and its rows."""
        for manifest, count in counted:
            self.starts.setdefault(subscription, manifest.after)
            if count:
                place = bisect_left([each.upto for each in self.recent], manifest.upto)
                known = self.recent[place] if place < len(self.recent) else None
                if known is not None and known.upto == manifest.upto:
                    self.recent[place] = known._replace(past={**known.past, subscription: count})
                else:
                    alone = Committed(manifest.upto, manifest.time_ms, {}, {}, {subscription: count})
                    self.recent.insert(place, alone)

    def matched(self, subscription: int, upto: int | None = None) -> int:
        """Rows matched for a subscription up to a boundary that it has reached, or in all."""
        found, class_id = self.folded.get(subscription, 0), self.classes.get(subscription, NOBODY)
        for each in self.recent:
            class_id = each.changed.get(subscription, class_id)
            if upto is None or each.upto <= upto:
                found += each.counts.get(class_id, 0) + each.past.get(subscription, 0)
        return found

    def fold(self, mark: int) -> None:
        """Fold everything up to a boundary into the table."""
        if not self.recent or self.recent[0].upto > mark:
            return
        members = _Members(self.classes)
        while self.recent and self.recent[0].upto <= mark:
            each = self.recent.pop(0)
            for subscription, count in members.counted(each):
                self.folded[subscription] = self.folded.get(subscription, 0) + count
            self.mark = max(self.mark, each.upto)
        self.classes = members.classes

    def limit(self, most: int = MOST_COUNTS) -> None:
        """Join commits, the oldest first, while more counts than that are kept; the newest stay as they are.

        A commit with which a subscription changes its class, or that has rows of the past of one, stays apart.
        """
        while sum(1 + len(each.counts) for each in self.recent) > most:
            old = self.recent[: -max(len(self.recent) // 4, 1)]
            joined: list[Committed] = []
            alone = False  # whether the last one may take the next: two become one, not all of them
            for each in old:
                if alone and not (each.changed or each.past or joined[-1].past):
                    joined[-1], alone = _joined(joined[-1], each), False
                else:
                    joined.append(each)
                    alone = True
            if len(joined) == len(old):
                return
            self.recent[: len(old)] = joined

    def entries(self, tallies: Iterable[Tally], only: Collection[int] | None = None) -> list[Entry]:
        """The ledger: one line per subscription that was ever owed a row, in the order of their ids, or of some only.

        It takes one pass over the commits that are not summed up, whatever the number of subscriptions.
        """
        by_id = {tally.subscription: tally for tally in tallies}
        wanted = self.starts if only is None else [each for each in only if each in self.starts]
        ends = {each: max(by_id[each].boundary if each in by_id else 0, self.starts[each]) for each in sorted(wanted)}
        later: dict[int, int] = {}
        unsure: dict[int, int] = {}
        oldest: dict[int, int] = {}
        settled_of = {each: self.folded.get(each, 0) for each in ends}
        members = _Members({each: class_id for each, class_id in self.classes.items() if each in ends}, ends)
        before = self.mark
        for each in self.recent:
            for subscription, count in members.counted(each):
                end = ends[subscription]
                if each.upto <= end:
                    settled_of[subscription] += count
                    continue
                later[subscription] = later.get(subscription, 0) + count
                oldest.setdefault(subscription, each.time_ms)
                if each.several and before < end:
                    unsure[subscription] = count
            before = each.upto
        lines = []
        for subscription, boundary in ends.items():
            tally = by_id.get(subscription) or Tally(subscription)
            reduced = sum(tally.reduced.values())
            counted = tally.delivered + reduced + tally.expired
            # Inside of joined commits nobody knows how many rows were matched up to the boundary, only between which.
            inside = min(max(counted - settled_of[subscription], 0), unsure.get(subscription, 0))
            settled, in_flight = settled_of[subscription] + inside, later.get(subscription, 0) - inside
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
                    difference=settled - counted,
                    oldest_ms=oldest.get(subscription) if in_flight else None,
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
            text = unpack_text(data, MOST_SUMS)
        except ValueError as error:
            raise WireError(f"these sums cannot be unpacked: {error}") from None
        try:
            found = read_record(_SUMS, cls, text)
        except WireError:
            found = read_record(_BY_SUBSCRIPTION, cls, text)
            found.recent = [each._replace(counts={}, past=each.counts) for each in found.recent]
        if found.stream != stream:
            raise WireError(f"these are the sums of stream {found.stream!r:.40}")
        return found


class _Members:
    """The subscriptions of each class while commits are passed over in order, or only some of them."""

    def __init__(self, classes: dict[int, int], only: Collection[int] | None = None) -> None:
        self.classes = dict(classes)
        self._only = only
        self._of: dict[int, dict[int, None]] = {}
        for subscription, class_id in classes.items():
            self._of.setdefault(class_id, {})[subscription] = None

    def counted(self, commit: Committed) -> Iterator[tuple[int, int]]:
        """Whom a commit has rows for, and how many; afterwards its changes are in force."""
        for subscription, class_id in commit.changed.items():
            if self._only is None or subscription in self._only:
                self._of.get(self.classes.pop(subscription, NOBODY), {}).pop(subscription, None)
                if class_id != NOBODY:
                    self.classes[subscription] = class_id
                    self._of.setdefault(class_id, {})[subscription] = None
        for class_id, count in commit.counts.items():
            for subscription in self._of.get(class_id, ()):
                yield subscription, count
        for subscription, count in commit.past.items():
            if self._only is None or subscription in self._only:
                yield subscription, count


def _joined(first: Committed, second: Committed) -> Committed:
    """Two commits of the same members as one, as old as the first of them."""
    counts = dict(first.counts)
    for class_id, count in second.counts.items():
        counts[class_id] = counts.get(class_id, 0) + count
    return Committed(second.upto, first.time_ms, counts, first.changed, several=True)
