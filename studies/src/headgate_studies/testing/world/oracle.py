"""What every subscriber should have got, worked out from what was committed and what was in force, by brute force.

Nothing of the product's routing, queues or ledger is used: a row is a number, a delivery class is a rule on it, and a
subscription is owed the rows of its class in every commit whose version serves it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headgate.model.start import EARLIEST
from headgate.wire.snapshot import Snapshot

Ints = npt.NDArray[np.int64]


def wanted(class_id: int, values: Ints) -> npt.NDArray[np.bool_]:
    """Which values a delivery class takes: all, some, few or none of them."""
    step = (1, 2, 3, 5, 60)[class_id % 5]
    if class_id % 11 == 10:
        return np.zeros(len(values), dtype=np.bool_)
    return np.asarray((values + class_id) % step == 0)


@dataclass(frozen=True, slots=True)
class TrueCommit:
    """A commit as it happened: rows (after, upto] with their values, under a version."""

    after: int
    upto: int
    version: int
    values: Ints
    counts: dict[int, int] = field(default_factory=dict)

    def count(self, class_id: int) -> int:
        """How many of its rows a delivery class wants."""
        if class_id not in self.counts:
            self.counts[class_id] = int(np.count_nonzero(wanted(class_id, self.values)))
        return self.counts[class_id]


@dataclass
class StreamTruth:
    """Everything that was committed to one stream."""

    commits: list[TrueCommit] = field(default_factory=list)
    read: int = 0
    """Rows of the source that were committed."""
    _ends: list[int] = field(default_factory=list)

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

    def value(self, seq: int) -> int:
        """The value of a row."""
        commit = self.commits[bisect_right(self._ends, seq - 1)]
        return int(commit.values[seq - commit.after - 1])


class Oracle:
    """Rows that subscriptions are owed."""

    def __init__(self) -> None:
        self.streams: dict[str, StreamTruth] = {}
        self.versions: dict[int, Snapshot] = {}
        self._classes: dict[tuple[int, int], int | None] = {}
        self._alive: dict[tuple[int, str], frozenset[int]] = {}

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

    def starts(self, stream: str, subscription: int) -> int | None:
        """The sequence number before the first row that a subscription is owed from its first commit on."""
        for commit in self.streams[stream].commits:
            if self.class_of(commit.version, subscription) is not None:
                return commit.after
        return None

    def first_class(self, stream: str, subscription: int) -> int | None:
        """The delivery class under which a subscription is served first: it gets the past by this one."""
        found = (self.class_of(commit.version, subscription) for commit in self.streams[stream].commits)
        return next((class_id for class_id in found if class_id is not None), None)

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
            places = np.flatnonzero(wanted(class_id, commit.values)) + commit.after + 1
            found += [int(seq) for seq in places if after < seq <= upto]
        return found

    def sums(self, stream: str, upto: int) -> dict[int, tuple[int, int]]:
        """By subscription that was served by then, where it starts and how many rows were matched for it."""
        found: dict[int, tuple[int, int]] = {}
        for commit in self.streams[stream].commits:
            if commit.upto > upto:
                break
            snapshot = self.versions[commit.version]
            for name, each in snapshot.deployment.subscriptions.items():
                identity, class_id = snapshot.subscription_ids[name], snapshot.class_ids[name]
                if each.stream != stream:
                    continue
                if identity not in found:
                    found[identity] = (
                        self._before(stream, class_id, commit) if each.start == EARLIEST else (commit.after, 0)
                    )
                starts, count = found[identity]
                found[identity] = (starts, count + commit.count(class_id))
        return found

    def _before(self, stream: str, class_id: int, first: TrueCommit) -> tuple[int, int]:
        """What a subscription that wants the past gets of it: rows of its class under versions that had that class."""
        past = self.streams[stream].between(0, first.after)
        return 0, sum(each.count(class_id) for each in past if class_id in self.classes(each.version, stream))
