"""The buffer of one link: rows of one stream that many receivers share, each with its own policy (PACK section 4).

Under normal conditions rows wait once, for all. When the buffer is over its limit every group of receivers with the
same class and policy gets a private queue: references into the shared rows, reduced by its own policy. New rows join
the shared part behind. Rows leave in order of sequence, private ones first because they are older, each once and with
the receivers that keep it named.

The paper bounds only the shared queue and drains private queues one by one; here the whole is bounded, and because a
link has one coverage for all receivers, fairness is exercised where rows are given up: each group may hold its weighted
max-min share of the buffer (a row kept by k groups counts 1/k for each). A share of the buffer is a share of the link
only as far as rows that wait do leave, which depends on what a policy drops; so shares are corrected by what each group
really got. A higher priority is served in full first.

Relays run `headgate.relay.output.Output`, which also keeps coverage and accounts; this is the buffer by itself, for
studies and benchmarks of policies.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headgate.model import Schema
from headgate.reduction.backlog import Backlog, Limit
from headgate.reduction.digest import Digest
from headgate.reduction.group import NO_ROWS, Group
from headgate.reduction.held_rows import Held, joined
from headgate.reduction.policy import Policy
from headgate.reduction.rows import Bools, Floats, Ints, Seqs, packed
from headgate.reduction.sharing import Sharing, correct_shares
from headgate_studies.models.link_taken import LinkTaken


class LinkBuffer:
    """Rows waiting for one link, at most `max_rows` and `max_bytes`, for receivers that come and go."""

    def __init__(
        self, schema: Schema, max_rows: int | None = 10_000, max_bytes: float | None = None, *, coverage: int = 0
    ) -> None:
        self._schema = schema.arrow
        self._limit = Limit(max_rows, max_bytes)
        self._held = Held.empty(self._schema)
        self._incoming: list[Held] = []
        self._offsets: Ints = np.zeros(1, dtype=np.int64)
        self._classes: Ints = NO_ROWS
        self._pending: list[tuple[Ints, Ints]] = []
        self._private = 0
        self._count = 0
        self._bytes = 0.0
        self._groups: dict[int, Group] = {}
        self._numbers: dict[tuple[int, str, float, int], int] = {}
        self._next = 0
        self._published = self._offered = coverage
        self.packs = 0

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> float:
        """The bytes of the rows that wait, each counted once."""
        return self._bytes

    @property
    def coverage(self) -> int:
        """The sequence up to which messages were taken."""
        return self._published

    @property
    def groups(self) -> Mapping[int, Group]:
        """The groups by number, for status displays."""
        return self._groups

    def add(self, receiver: str, class_id: int, policy: Policy, weight: float = 1.0, priority: int = 0) -> int:
        """Add a receiver; the number of its group, which is shared with equal ones, is returned."""
        key = (class_id, policy.text, weight, priority)
        number = self._numbers.get(key)
        if number is None:
            number, self._next = self._next, self._next + 1
            self._numbers[key] = number
            self._groups[number] = Group(class_id, policy, weight, priority, Backlog(policy, shared=True))
            self._groups[number].refs = self._of_class(class_id, 0, self._private)
        self._groups[number].receivers.append(receiver)
        return number

    def remove(self, receiver: str) -> None:
        """Remove a receiver; the last of a group takes its private queue and digests along."""
        for key, number in list(self._numbers.items()):
            group = self._groups[number]
            if receiver in group.receivers:
                group.receivers.remove(receiver)
                if not group.receivers:
                    del self._groups[number], self._numbers[key]

    def offer(
        self, seqs: Seqs, batch: pa.RecordBatch, offsets: Ints, classes: Ints, now: float, to: int | None = None
    ) -> None:
        """Add rows in order, row i with the classes `classes[offsets[i]:offsets[i + 1]]`; `to` as for a queue."""
        if len(seqs):
            if int(seqs[0]) <= self._offered or np.any(seqs[1:] <= seqs[:-1]):
                raise ValueError(f"rows must come in order of sequence and after {self._offered}")
            held = Held.of(seqs, batch, now)
            self._incoming.append(held)
            self._pending.append((np.asarray(offsets, dtype=np.int64), np.asarray(classes, dtype=np.int64)))
            self._count += len(seqs)
            self._bytes += held.bytes
            self._offered = int(seqs[-1])
        self._offered = max(self._offered, to or 0)
        limit = self._limit
        if (limit.rows is not None and self._count > limit.rows) or (
            limit.bytes is not None and self._bytes > limit.bytes
        ):
            self._pack(now)

    def _settle(self) -> None:
        """Bring what came in behind what waits."""
        if not self._incoming:
            return
        self._held = joined([*([self._held] if len(self._held) else []), *self._incoming])
        lengths = [np.diff(self._offsets), *(np.diff(offsets) for offsets, _ in self._pending)]
        self._offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
        self._classes = np.concatenate([self._classes, *(classes for _, classes in self._pending)])
        self._incoming, self._pending = [], []

    def _of_class(self, class_id: int, start: int, stop: int) -> Ints:
        self._settle()
        low, high = int(self._offsets[start]), int(self._offsets[stop])
        hits = np.flatnonzero(self._classes[low:high] == class_id) + low
        return np.asarray(np.searchsorted(self._offsets, hits, side="right") - 1, dtype=np.int64)

    def _by_class(self, start: int, stop: int) -> dict[int, Ints]:
        """The positions of each class's rows between start and stop, by one sort."""
        low, high = int(self._offsets[start]), int(self._offsets[stop])
        classes = self._classes[low:high]
        rows = np.repeat(np.arange(start, stop), np.diff(self._offsets[start : stop + 1]))
        order = np.argsort(classes, kind="stable")
        found, starts = np.unique(classes[order], return_index=True)
        pieces = np.split(rows[order], starts[1:])
        return dict(zip(found.tolist(), pieces, strict=True))

    def _pack(self, now: float) -> None:
        """Give every group its private queue and bring the whole under the limit."""
        self._settle()
        self.packs += 1
        shared = self._by_class(self._private, self._count)
        everyone = list(self._groups.values())
        cost = self._cost(self._private, self._count)
        for group in everyone:
            fresh = shared.get(group.class_id, NO_ROWS)
            group.refs = np.concatenate([group.refs, fresh])
            group.backlog.arrived(len(fresh))
            group.came += float(cost[fresh].sum())
        correct_shares(everyone)
        sharing = Sharing(self._held, everyone, self._limit, self.packs)
        sharing.run(now)
        self._compact(everyone, sharing)

    def _cost(self, start: int, stop: int) -> Floats:
        """For each waiting row the bytes that each of its groups is charged, by class; 0 outside of the range."""
        members = np.zeros(int(self._classes.max(initial=-1)) + 2, dtype=np.int64)
        for group in self._groups.values():
            if group.class_id < len(members):
                members[group.class_id] += 1
        low, high = int(self._offsets[start]), int(self._offsets[stop])
        row = np.repeat(np.arange(start, stop), np.diff(self._offsets[start : stop + 1]))
        keepers = np.bincount(row, members[self._classes[low:high]], minlength=self._count)
        inside = np.zeros(self._count)
        inside[start:stop] = self._held.sizes[start:stop]
        cost: Floats = inside / np.maximum(1, keepers)
        return cost

    def _compact(self, everyone: list[Group], sharing: Sharing) -> None:
        """Forget rows that nobody keeps and renumber references and gaps."""
        kept: Bools = sharing.keepers() > 0
        moved = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
        for group in everyone:
            group.refs = packed(moved[group.refs])
            group.backlog.move(moved)
            for positions, why, names in sharing.notes(group):
                gone = sharing.rows_for(group).take(positions)
                group.backlog.note(gone, why, names, moved[positions + 1])
        lengths = np.diff(self._offsets)
        self._classes = self._classes[np.repeat(kept, lengths)]
        self._offsets = np.concatenate([[0], np.cumsum(lengths[kept])]).astype(np.int64)
        self._held = self._held.pick(kept)
        self._count = self._private = len(self._held)
        self._bytes = self._held.bytes

    def take(self, max_rows: int | None = None, max_bytes: float | None = None) -> LinkTaken:
        """The next message: rows from the front (at least one if any wait and `max_rows` allows it)."""
        self._settle()
        count = self._count if max_rows is None else min(self._count, max_rows)
        if max_bytes is not None and count:
            fits = int(np.searchsorted(np.cumsum(self._held.sizes[:count]), max_bytes + 1e-9, side="right"))
            count = min(count, max(1, fits))
        taken = self._held.cut(0, count)
        offsets, groups = self._keepers(count)
        last = count == self._count
        digests: dict[int, Digest] = {}
        for number, group in self._groups.items():
            digest = group.backlog.told(count, everything=last)
            if digest is not None:
                digests[number] = digest
        self._forget(count)
        since = self._published
        self._published = self._offered if last else int(self._held.seqs[0]) - 1
        names = {number: tuple(group.receivers) for number, group in self._groups.items()}
        return LinkTaken(taken.seqs, taken.rows, since, self._published, offsets, groups, names, digests)

    def _keepers(self, count: int) -> tuple[Ints, Ints]:
        """The groups of each of the first rows: by reference where they are private, by class where they are shared."""
        private = min(count, self._private)
        shared = self._by_class(private, count) if count > private else {}
        rows: list[Ints] = []
        numbers: list[Ints] = []
        for number, group in self._groups.items():
            mine = group.refs[: int(np.searchsorted(group.refs, private))]
            fresh = shared.get(group.class_id, NO_ROWS)
            if not len(mine) and not len(fresh):
                continue
            found = np.concatenate([mine, fresh]) if len(fresh) else mine
            group.backlog.arrived(len(fresh))
            group.backlog.left(len(found))
            if group.backlog.remembers:
                group.backlog.remember(self._held.select(group.columns).rows.take(pa.array(found)))
            rows.append(found)
            numbers.append(np.full(len(found), number, dtype=np.int64))
        if not rows:
            return np.zeros(count + 1, dtype=np.int64), NO_ROWS
        row, group_of = np.concatenate(rows), np.concatenate(numbers)
        cost = self._held.sizes[:count] / np.maximum(1, np.bincount(row, minlength=count))
        fresh_cost = np.where(np.arange(count) >= private, cost, 0.0)
        for found, repeated in zip(rows, numbers, strict=True):
            group = self._groups[int(repeated[0])]
            group.left += float(cost[found].sum())
            group.came += float(fresh_cost[found].sum())
        order = np.lexsort((group_of, row))
        offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=count))]).astype(np.int64)
        return offsets, group_of[order]

    def _forget(self, count: int) -> None:
        private = min(count, self._private)
        for group in self._groups.values():
            if len(group.refs):
                group.refs = packed(group.refs[int(np.searchsorted(group.refs, private)) :].astype(np.int64) - count)
        self._private -= private
        self._classes = self._classes[int(self._offsets[count]) :]
        self._offsets = self._offsets[count:] - self._offsets[count]
        self._held = self._held.cut(count, self._count)
        self._count -= count
        self._bytes = self._held.bytes
