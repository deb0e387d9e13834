"""What every subscriber should have got, worked out from what was committed and what was in force, by brute force.

Nothing of the product's routing, queues or ledger is used: a row is a number, a delivery class is a rule on it, and a
subscription is owed the rows of its class in every commit whose version serves it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headgate.model.start import EARLIEST
from headgate.protocol.records import Pin
from headgate.wire.snapshot import Snapshot
from headgate_studies.testing.world.matched_contexts import TrueUpdate, Window

Ints = npt.NDArray[np.int64]


def wanted(class_id: int, values: Ints, window: Window | None = None) -> npt.NDArray[np.bool_]:
    """Which values a delivery class takes: those of its window, or all, some, few or none of them."""
    if window is not None:
        return window.takes(values)
    step = (1, 2, 3, 5, 60)[class_id % 5]
    if class_id % 11 == 10:
        return np.zeros(len(values), dtype=np.bool_)
    return np.asarray((values + class_id) % step == 0)


@dataclass(frozen=True, slots=True)
class TrueCommit:
    """A commit as it happened: rows (after, upto] with their values, under a version and the windows of contexts."""

    after: int
    upto: int
    version: int
    values: Ints
    windows: Mapping[int, Window] = field(default_factory=dict)
    time_ms: int = 0
    _seqs: dict[int, list[int]] = field(default_factory=dict)

    def seqs(self, class_id: int) -> list[int]:
        """The sequence numbers of those of its rows that a delivery class wants."""
        if class_id not in self._seqs:
            takes = wanted(class_id, self.values, self.windows.get(class_id))
            self._seqs[class_id] = (np.flatnonzero(takes) + self.after + 1).tolist()
        return self._seqs[class_id]

    def count(self, class_id: int) -> int:
        """How many of its rows a delivery class wants."""
        return len(self.seqs(class_id))


@dataclass
class StreamTruth:
    """Everything that was committed to one stream."""

    commits: list[TrueCommit] = field(default_factory=list)
    read: int = 0
    """Rows of the source that were committed."""
    _ends: list[int] = field(default_factory=list)
    _values: list[int] = field(default_factory=list)

    @property
    def head(self) -> int:
        """The last sequence number."""
        return self.commits[-1].upto if self.commits else 0

    def add(self, commit: TrueCommit) -> None:
        """The next commit."""
        if commit.after != self.head:
            raise AssertionError(f"a commit after {commit.after} does not continue the stream at {self.head}")
        self.commits.append(commit)
        self._ends.append(commit.upto)

    def between(self, after: int, upto: int) -> list[TrueCommit]:
        """The commits that have rows in (after, upto]."""
        first = bisect_right(self._ends, after)
        found = []
        for commit in self.commits[first:]:
            if commit.after >= upto:
                break
            found.append(commit)
        return found

    def time_s(self, seq: int) -> float:
        """When a row was committed, as its manifest says."""
        return self.commits[bisect_left(self._ends, seq)].time_ms / 1000

    def values(self, seqs: list[int]) -> list[int]:
        """The values of some rows that were committed."""
        if len(self._values) < self.head:
            for commit in self.between(len(self._values), self.head):
                self._values += commit.values.tolist()
        return [self._values[seq - 1] for seq in seqs]


@dataclass
class _Summed:
    """The first commits of a stream, summed up by subscription."""

    commits: int = 0
    upto: int = 0
    found: dict[int, tuple[int, int]] = field(default_factory=dict)


class Oracle:
    """Rows that subscriptions are owed."""

    def __init__(self) -> None:
        self.streams: dict[str, StreamTruth] = {}
        self.versions: dict[int, Snapshot] = {}
        self.updates: dict[str, list[TrueUpdate]] = {}
        self.pins: dict[str, Pin] = {}
        self._classes: dict[tuple[int, int], int | None] = {}
        self._alive: dict[tuple[int, str], frozenset[int]] = {}
        self._first: dict[tuple[str, int], TrueCommit] = {}
        self._summed: dict[str, _Summed] = {}

    def class_of(self, version: int, subscription: int) -> int | None:
        """The delivery class of a subscription under a version, None when it is not served then."""
        key = (version, subscription)
        if key not in self._classes:
            snapshot = self.versions[version]
            name = next((each for each, found in snapshot.subscription_ids.items() if found == subscription), None)
            self._classes[key] = None if name is None else snapshot.class_ids[name]
        return self._classes[key]

    def classes(self, version: int, stream: str) -> frozenset[int]:
        """The delivery classes that a version matches on a stream."""
        key = (version, stream)
        if key not in self._alive:
            snapshot = self.versions[version]
            self._alive[key] = frozenset(
                snapshot.class_ids[name]
                for name, each in snapshot.deployment.subscriptions.items()
                if each.stream == stream
            )
        return self._alive[key]

    def _first_commit(self, stream: str, subscription: int) -> TrueCommit | None:
        """The first commit that serves a subscription; commits are only added, so it stays the first."""
        key = (stream, subscription)
        if key not in self._first:
            for commit in self.streams[stream].commits:
                if self.class_of(commit.version, subscription) is not None:
                    self._first[key] = commit
                    break
        return self._first.get(key)

    def starts(self, stream: str, subscription: int) -> int | None:
        """The sequence number before the first row that a subscription is owed from its first commit on."""
        commit = self._first_commit(stream, subscription)
        return None if commit is None else commit.after

    def first_class(self, stream: str, subscription: int) -> int | None:
        """The delivery class under which a subscription is served first: it gets the past by this one."""
        commit = self._first_commit(stream, subscription)
        return None if commit is None else self.class_of(commit.version, subscription)

    def rows(self, stream: str, subscription: int, after: int, upto: int, *, past: int | None = None) -> list[int]:
        """The sequence numbers in (after, upto] that a subscription is owed.

        `past` is the class by which a subscription that starts with the earliest row gets what came before it.
        """
        found: list[int] = []
        for commit in self.streams[stream].between(after, upto):
            class_id = self.class_of(commit.version, subscription)
            if class_id is None and past is not None and past in self.classes(commit.version, stream):
                class_id = past
            if class_id is None:
                continue
            seqs = commit.seqs(class_id)
            whole = after <= commit.after and commit.upto <= upto
            found += seqs if whole else [seq for seq in seqs if after < seq <= upto]
        return found

    def sums(self, stream: str, upto: int) -> dict[int, tuple[int, int]]:
        """By subscription that was served by then, where it starts and how many rows were matched for it.

        Goes on from what was summed up before; who asks for less than that begins again.
        """
        summed = self._summed.get(stream)
        if summed is None or summed.upto > upto:
            summed = self._summed[stream] = _Summed()
        commits = self.streams[stream].commits
        while summed.commits < len(commits) and commits[summed.commits].upto <= upto:
            self._sum_up(stream, commits[summed.commits], summed.found)
            summed.upto = commits[summed.commits].upto
            summed.commits += 1
        return dict(summed.found)

    def _sum_up(self, stream: str, commit: TrueCommit, found: dict[int, tuple[int, int]]) -> None:
        """Add what one commit has for everybody whom its version serves."""
        snapshot = self.versions[commit.version]
        for name, each in snapshot.deployment.subscriptions.items():
            if each.stream != stream:
                continue
            identity, class_id = snapshot.subscription_ids[name], snapshot.class_ids[name]
            if identity not in found:
                wants_past = each.start == EARLIEST
                found[identity] = self._before(stream, class_id, commit) if wants_past else (commit.after, 0)
            starts, count = found[identity]
            found[identity] = (starts, count + commit.count(class_id))

    def _before(self, stream: str, class_id: int, first: TrueCommit) -> tuple[int, int]:
        """What a subscription that wants the past gets of it: rows of its class under versions that had that class."""
        past = self.streams[stream].between(0, first.after)
        return 0, sum(each.count(class_id) for each in past if class_id in self.classes(each.version, stream))
