"""Blocks: rows on their way, with the range of the root's sequence that they cover and what was given up in it.

A block covers (after, upto]. Blocks of one output are adjacent: each starts where the one before ended, even when it
holds no rows. Gaps in row numbers are normal on a filtered stream; gaps in coverage are not. Blocks are cut at the
ends of commits first, so that a receiver often stands at such an end: the ledger is taken there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching import ClassLists
from headgate.reduction import Digest, merged
from headgate.wire.patch import Patches, concat_patches, restricted
from headgate.wire.unsent import Unsent

EXPIRED: Final = "expired"
GRANT: Final = "grant"
"""The reason of rows that were matched under a wider grant than their subscriber has now."""
_NONE: Final = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Commit:
    """A manifest as those below the root see it: its range, its version, when it was committed, what was shed.

    `shed` are rows, `shed_updates` new values of contexts, and `partly_shed` rows that were matched only for those who
    may miss nothing. `unsent` is what senders gave up before it reached the stream. `unevaluated` counts by
    subscription the rows that were not looked at for it, as its filter takes too long or its owner has used up its
    share of the matching: nobody knows whether they are rows of it.

    `whole` is there only when rows of the commit can no longer be read at the root: how many rows it matched, by
    subscription. Nobody knows any more which rows are gone, and each subscription has had others of them. So the count
    travels unchanged, in every block that has a part of the commit, and the reader settles it where the commit ends:
    what it has not counted by then has expired (`headgate.wire.ledger.Account`).
    """

    after: int
    upto: int
    version: int
    time_ms: int
    lag_ms: int = 0
    shed: int = 0
    shed_updates: int = 0
    partly_shed: int = 0
    unsent: Unsent | None = None
    whole: Mapping[int, int] = field(default_factory=dict)
    unevaluated: Mapping[int, int] = field(default_factory=dict)

    def meant_for(self, receivers: Collection[int]) -> Commit:
        """The commit with what it says of these subscriptions alone."""
        return replace(
            self,
            whole={mine: count for mine, count in self.whole.items() if mine in receivers},
            unevaluated={mine: count for mine, count in self.unevaluated.items() if mine in receivers},
        )


# Per subscription id: rows given up, by reason. The reason `expired` is a term of its own in the ledger.
Declared = Mapping[int, Mapping[str, int]]


def merge_declared(first: Declared, second: Declared) -> dict[int, dict[str, int]]:
    """Add up what two blocks declare.

    >>> merge_declared({1: {"overflow": 2}}, {1: {"overflow": 1, "expired": 4}})
    {1: {'overflow': 3, 'expired': 4}}
    """
    merged = {receiver: dict(reasons) for receiver, reasons in first.items()}
    for receiver, reasons in second.items():
        mine = merged.setdefault(receiver, {})
        for reason, count in reasons.items():
            mine[reason] = mine.get(reason, 0) + count
    return merged


def merge_digests(first: Mapping[int, Digest], second: Mapping[int, Digest]) -> dict[int, Digest]:
    """One digest per subscription from those of two blocks."""
    merged = dict(first)
    for receiver, digest in second.items():
        merged[receiver] = digest if receiver not in merged else merged[receiver].merge(digest)
    return merged


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of one stream in sequence order. `classes` is None on the last hop, where every row is the receiver's.

    `declared` counts for each subscription what was given up; `digests` has more about it where its policy asks. Both
    belong to the last commit, so that counts are exact wherever the block is cut; only where a block without rows
    begins and ends with a commit they may be of all of its commits. `patches` says
    where the rows of a subscription differ from those of its class (see `headgate.wire.patch`). `basis` is what a
    subscription had counted before the block, by its last acknowledgement, where a declaration stands for messages
    that it may have read in part without acknowledging them; `begun` is then how many rows of the commit that the
    block ends in are counted up to its end. `withheld` are rows that the receiver of a message may no longer have, as
    its grant has shrunk since they were sent; they keep their places so that whoever has read a part of the message
    counts the rest. `columns` names those of its rows where they are fewer than those of its output, for the same
    reason. Only the gate, through which users read, makes such messages.
    """

    stream: str
    after: int
    upto: int
    commits: tuple[Commit, ...]
    seqs: npt.NDArray[np.uint64] = field(repr=False)
    rows: pa.RecordBatch = field(repr=False)
    classes: ClassLists | None = field(default=None, repr=False)
    declared: Declared = field(default_factory=dict)
    digests: Mapping[int, Digest] = field(default_factory=dict)
    patches: Patches = field(default_factory=dict, repr=False)
    basis: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    begun: Mapping[int, int] = field(default_factory=dict)
    withheld: npt.NDArray[np.uint64] = field(default_factory=lambda: _NONE, repr=False)
    columns: tuple[str, ...] | None = None

    @property
    def version(self) -> int:
        """The version that routed it; all commits of a block share one."""
        return self.commits[-1].version

    @property
    def ended(self) -> tuple[Commit, ...]:
        """The commits that end in it: what they say of a whole micro-batch is told here, once."""
        return tuple(commit for commit in self.commits if self.after < commit.upto <= self.upto)

    @property
    def unsent(self) -> Unsent | None:
        """What senders gave up, of the commits that end in it."""
        return reduce(merged, (commit.unsent for commit in self.ended), None)

    @property
    def at_boundary(self) -> bool:
        """Whether it ends where a commit ends."""
        return self.upto == self.commits[-1].upto

    @property
    def of_whole_commits(self) -> bool:
        """Whether it begins and ends with a commit, and all of its commits can be read."""
        return self.after == self.commits[0].after and self.at_boundary and not any(each.whole for each in self.commits)

    def meant_for(self, receivers: Collection[int]) -> tuple[Commit, ...]:
        """Its commits as some subscriptions need to know them."""
        if not any(commit.whole or commit.unevaluated for commit in self.commits):
            return self.commits
        return tuple(commit.meant_for(receivers) for commit in self.commits)

    def take(self, indices: npt.NDArray[np.int64]) -> Block:
        """The same coverage with only these rows."""
        classes = None if self.classes is None else self.classes.take(indices)
        seqs = self.seqs[indices]
        patches = {receiver: part for receiver, patch in self.patches.items() if (part := patch.only(seqs))}
        return replace(self, seqs=seqs, rows=self.rows.take(pa.array(indices)), classes=classes, patches=patches)

    def exact_at(self, place: int) -> bool:
        """Whether it may be cut here although one half is taken from elsewhere.

        What it declares has no place inside of its last commit, so half of that commit cannot be told apart: whoever
        had the other half from somebody else would count what was given up twice, or not at all.
        """
        if not self.declared or not self.after < place < self.upto:
            return True
        return bool(len(self.seqs)) and place <= self.commits[-1].after

    def since(self, after: int) -> Block:
        """The part of it that covers what comes after a sequence number: what was covered before is left out."""
        if after <= self.after:
            return self
        first = int(np.searchsorted(self.seqs, np.uint64(after), side="right"))
        kept = self._slice(first, len(self.seqs))
        commits = tuple(commit for commit in self.commits if commit.upto > after)
        # Declarations have no place inside a block, so they belong to whoever takes its end.
        withheld = self.withheld[self.withheld > after]
        patches = restricted(self.patches, after, self.upto)
        return replace(kept, after=after, commits=commits, patches=patches, withheld=withheld)

    def until(self, upto: int) -> Block:
        """The part of it that covers what comes up to a sequence number; declarations stay with the end."""
        if upto >= self.upto:
            return self
        stop = int(np.searchsorted(self.seqs, np.uint64(upto), side="right"))
        commits = tuple(commit for commit in self.commits if commit.after < upto)
        patches = restricted(self.patches, self.after, upto)
        kept = replace(self._slice(0, stop), declared={}, digests={}, basis={}, begun={})
        withheld = self.withheld[self.withheld <= upto]
        return replace(kept, upto=upto, commits=commits, patches=patches, withheld=withheld)

    def _slice(self, start: int, stop: int) -> Block:
        classes = None if self.classes is None else self.classes.slice(start, stop)
        return replace(self, seqs=self.seqs[start:stop], rows=self.rows.slice(start, stop - start), classes=classes)

    def pieces(self, max_rows: int) -> Iterable[Block]:
        """Cut it into adjacent pieces of at most so many rows; declarations go with the last one.

        A block of several commits is cut at their ends first.
        """
        if len(self.seqs) <= max_rows:
            yield self
            return
        start, after = 0, self.after
        cuts: list[tuple[int, int]] = []
        for commit in self.commits:
            stop = int(np.searchsorted(self.seqs, np.uint64(commit.upto), side="right"))
            while stop - start > max_rows:
                start += max_rows
                cuts.append((start, int(self.seqs[start - 1])))
            start = stop
            cuts.append((stop, min(commit.upto, self.upto)))
        start = 0
        for number, (stop, upto) in enumerate(cuts):
            commits = tuple(commit for commit in self.commits if commit.upto > after and commit.after < upto)
            piece = self._slice(start, stop)
            last = number == len(cuts) - 1
            declared, digests = (self.declared, self.digests) if last else ({}, {})
            yield replace(
                piece,
                after=after,
                upto=upto,
                commits=commits,
                declared=declared,
                digests=digests,
                patches=restricted(self.patches, after, upto),
                withheld=self.withheld[(self.withheld > after) & (self.withheld <= upto)],
            )
            start, after = stop, upto


def renamed(block: Block, before: int, now: int) -> Block:
    """The block with what it says of one subscription said of another one, and nothing of others.

    Subscriptions that share an inbox are told the same.
    """
    if before == now:
        return block
    commits = block.meant_for((before,))
    if any(commit.whole for commit in commits):
        commits = tuple(
            replace(commit, whole={now: commit.whole[before]} if commit.whole else {}) for commit in commits
        )
    return replace(
        block,
        commits=commits,
        declared={now: block.declared[before]} if before in block.declared else {},
        digests={now: block.digests[before]} if before in block.digests else {},
        basis={now: block.basis[before]} if before in block.basis else {},
        begun={now: block.begun[before]} if before in block.begun else {},
    )


def end_of(block: Block) -> Block:
    """A message that says only where a block ended: it covers nothing, and who has read the block passes it over."""
    last = replace(block.commits[-1], whole={})
    nothing = block.since(block.upto)
    return replace(nothing, commits=(last,), declared={}, digests={}, patches={}, basis={}, begun={})


def concat(blocks: Sequence[Block]) -> Block:
    """Join adjacent blocks of one output and version into one."""
    if len(blocks) == 1:
        return blocks[0]
    first, last = blocks[0], blocks[-1]
    commits: list[Commit] = []
    declared: dict[int, dict[str, int]] = {}
    digests: dict[int, Digest] = {}
    for before, block in zip([None, *blocks[:-1]], blocks, strict=True):
        if before is not None and block.after != before.upto:
            raise ValueError(f"blocks are not adjacent: {before.upto} then {block.after}")
        for commit in block.commits:
            if not commits or commit.upto > commits[-1].upto:
                commits.append(commit)
            elif commit.whole:  # a part of it was read before it was damaged, or from elsewhere
                commits[-1] = replace(commits[-1], whole=commit.whole)
        declared = merge_declared(declared, block.declared)
        digests = merge_digests(digests, block.digests)
    classes = None
    if first.classes is not None:
        classes = ClassLists.concat(block.classes for block in blocks if block.classes is not None)
    seqs = np.concatenate([block.seqs for block in blocks])
    rows = pa.Table.from_batches([block.rows for block in blocks]).combine_chunks().to_batches()
    return Block(
        first.stream,
        first.after,
        last.upto,
        _condensed(commits, seqs),
        seqs,
        rows[0] if rows else first.rows.slice(0, 0),
        classes,
        declared,
        digests,
        concat_patches([block.patches for block in blocks]),
        withheld=np.concatenate([block.withheld for block in blocks]),
    )


def _condensed(commits: list[Commit], seqs: npt.NDArray[np.uint64]) -> tuple[Commit, ...]:
    """Only the commits that have rows here or are not whole, and the last one; the next covers what is left out.

    What the others shed is carried to the next. An output that waits for an hour would otherwise list every commit of
    that hour.
    """
    ends = np.searchsorted(seqs, np.array([commit.upto for commit in commits], dtype=np.uint64), side="right")
    named = (np.diff(ends, prepend=0) > 0) | [bool(commit.whole) for commit in commits]
    named[-1] = True
    kept: list[Commit] = []
    shed = updates = partly = 0
    unsent: Unsent | None = None
    unevaluated: Mapping[int, int] = {}
    after = commits[0].after
    for commit, keep in zip(commits, named.tolist(), strict=True):
        shed, updates, partly = shed + commit.shed, updates + commit.shed_updates, partly + commit.partly_shed
        unsent = merged(unsent, commit.unsent)
        unevaluated = _summed(unevaluated, commit.unevaluated)
        if keep:
            shedding = replace(commit, shed=shed, shed_updates=updates, partly_shed=partly, unsent=unsent)
            kept.append(replace(shedding, after=after, unevaluated=unevaluated))
            shed = updates = partly = 0
            unsent, unevaluated, after = None, {}, commit.upto
    return tuple(kept)


def _summed(first: Mapping[int, int], second: Mapping[int, int]) -> Mapping[int, int]:
    if not first or not second:
        return first or second
    return {each: first.get(each, 0) + second.get(each, 0) for each in {**first, **second}}
