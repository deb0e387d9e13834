"""The policies of an output at work on the blocks that wait in it.

An inbox has one policy. A link has those of all receivers below it: groups of one class and policy share the room (see
`headgate.reduction.sharing`), and because a link names rows by class, a row stays for a class as long as one of the
class's policies keeps it. What goes is declared in the block that it was in, which ends where a commit ends, so the
ledger is exact there. Nothing here is remembered beyond the process: decisions are final when they are published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching import ClassLists
from headgate.model import Column, Schema
from headgate.reduction import Digest, Policy, PolicyError, default_policy, merged, parse_policy
from headgate.reduction.backlog import Backlog, Limit
from headgate.reduction.digest import DigestTable
from headgate.reduction.group import Group
from headgate.reduction.held import Held
from headgate.reduction.policy import canonical
from headgate.reduction.rows import row_bytes
from headgate.reduction.sharing import Sharing, correct_shares
from headgate.relay.routes import Child, Receiver
from headgate.wire.block import Block, merge_declared, merge_digests

Ints = npt.NDArray[np.int64]

MAX_AGE: Final = "max_age"
_REORDERINGS: Final = 20


@dataclass(frozen=True, slots=True)
class Waiting:
    """A block that waits in an output: for whom, since when, and how many rows had come to the output before it.

    `first` is where the block began when it came and `span_s` the time since the block before it: a micro-batch comes
    at once, but its rows were made over that time.
    """

    block: Block
    target: Child | Receiver
    since: float
    came: int = 0
    first: int = 0
    span_s: float = 0.0

    def due(self, rows: int) -> float:
        """When the next so many rows began to wait, in the mean, as if they had come evenly over the block's time."""
        size, waiting = self.block.upto - self.first, len(self.block.seqs)
        if size <= 0:
            return self.since
        gone = min(max((self.block.after - self.first) / size, 0.0), 1.0)
        next_part = min(rows / waiting, 1.0) if waiting else 1.0
        return self.since + self.span_s * (gone + (1.0 - gone) * next_part / 2)


def policy_of(receiver: Receiver) -> Policy:
    """The policy of a subscription, over the columns that it selects. The catalog has checked it."""
    if receiver.subscription.policy is None:
        return default_policy()
    schema = Schema(tuple(Column(field.name, field.type) for field in receiver.schema))
    try:
        return parse_policy(receiver.subscription.policy, schema)
    except PolicyError:
        return default_policy()


class Reducer:
    """Gives up rows of waiting blocks. `level` is that of the last pack, the highest of all groups on a link."""

    def __init__(self) -> None:
        self.packs = 0
        self.reasons: Counter[str] = Counter()
        self._groups: dict[tuple[int, str, int], Group] = {}
        self._receivers: dict[int, Group] = {}
        self._by_class: dict[int, list[Group]] = {}
        self._parsed: dict[tuple[str, tuple[str, ...]], Policy] = {}
        self._target: Child | Receiver | None = None
        self._offset = 0.0
        self._counted = (0, 0)

    @property
    def level(self) -> int:
        """The level of the last pack, 0 before the first."""
        return max((group.backlog.level for group in self._groups.values()), default=0)

    @property
    def reorderings(self) -> list[dict[str, Any]]:
        """What `levels: auto` has changed, with the receivers whose policy it is; the newest last."""
        found: list[dict[str, Any]] = [
            {
                "time_s": round(change.now, 3),
                "receivers": [int(name) for name in group.receivers],
                "before": list(change.before),
                "after": list(change.after),
                "fractions": [round(each, 4) for each in change.fractions],
            }
            for group in self._groups.values()
            for change in (group.backlog.automatic.log if group.backlog.automatic else ())
        ]
        return sorted(found, key=lambda each: each["time_s"])[-_REORDERINGS:]

    def groups(self, target: Child | Receiver) -> int:
        """How many groups of class and policy a target has: what a pack costs grows with them."""
        self._meet(target)
        return len(self._groups)

    def limit(self, target: Child | Receiver, max_rows: float, max_bytes: float) -> Limit:
        """The output's limits, or the policy's own where those of one receiver are lower."""
        if isinstance(target, Receiver) and target.subscription.policy is not None:
            self._meet(target)
            policy = self._receivers[target.id].policy
            max_rows = min(max_rows, policy.max_rows or max_rows)
            max_bytes = min(max_bytes, policy.max_bytes or max_bytes)
        return Limit(max_rows, max_bytes)

    def _meet(self, target: Child | Receiver) -> None:
        """Make groups of the target's receivers; policies that did not change keep their state."""
        if target is self._target:
            return
        self._target = target
        receivers = [target] if isinstance(target, Receiver) else list(target.receivers)
        groups: dict[tuple[int, str, int], Group] = {}
        self._receivers = {}
        known, self._parsed = self._parsed, {}
        for receiver in receivers:
            written = (canonical(receiver.subscription.policy or {}), tuple(receiver.schema.names))
            policy = self._parsed.get(written) or known.get(written) or policy_of(receiver)
            self._parsed[written] = policy
            priority = receiver.subscription.priority
            key = (receiver.class_id, policy.text, priority)
            group = groups.get(key)
            if group is None:
                backlog = Backlog(policy, shared=isinstance(target, Child))
                group = self._groups.get(key) or Group(receiver.class_id, policy, 0.0, priority, backlog)
                group.weight, group.receivers = 0.0, []
                groups[key] = group
            group.weight += max(receiver.subscription.weight, 1e-9)
            group.receivers.append(str(receiver.id))
            self._receivers[receiver.id] = group
        self._groups = groups
        self._by_class = {}
        for group in groups.values():
            self._by_class.setdefault(group.class_id, []).append(group)

    def offered(self, block: Block, target: Child | Receiver) -> None:
        """Rows came in: on a link, count them for the groups that share it."""
        if isinstance(target, Child):
            self._meet(target)
            for group, count, size in self._shares(block):
                group.backlog.arrived(count)
                group.came += size

    def published(self, block: Block, target: Child | Receiver) -> None:
        """Rows went out for good: count them, and remember them where a policy compares with what was sent."""
        if isinstance(target, Child):
            self._meet(target)
            for group, count, size in self._shares(block):
                group.backlog.left(count)
                group.left += size
        elif target.subscription.policy is not None and len(block.seqs):
            self._meet(target)
            if self._receivers[target.id].backlog.remembers:
                self._receivers[target.id].backlog.remember(block.rows)

    def _shares(self, block: Block) -> Iterator[tuple[Group, int, float]]:
        """Rows and bytes of each group in a link's block; a row of k classes counts 1/k for each."""
        if not len(block.seqs) or block.classes is None:
            return
        counts = np.diff(block.classes.offsets)
        size = np.repeat(1.0 / np.maximum(counts, 1), counts) * (block.rows.nbytes / len(block.seqs))
        ids, inverse = np.unique(block.classes.ids, return_inverse=True)
        sizes = zip(ids.tolist(), np.bincount(inverse).tolist(), np.bincount(inverse, size).tolist(), strict=True)
        for class_id, count, bytes_ in sizes:
            for group in self._by_class.get(class_id, ()):
                yield group, count, bytes_

    def expire(self, waiting: Sequence[Waiting], now: float) -> list[Waiting] | None:
        """What is left when rows older than an inbox's `max_age` are given up; None when nothing changes."""
        target = waiting[-1].target
        if not isinstance(target, Receiver) or target.subscription.policy is None:
            return None
        self._meet(target)
        self._read_clock(waiting)
        backlog = self._receivers[target.id].backlog
        if backlog.policy.max_age is None:
            return None
        runs = []
        for run in _runs(waiting):
            held = self._held(run)
            mask = backlog.expire(held, self._wall(now))
            if mask is None:
                runs.append(list(run))
            else:
                why = np.where(mask, -1, 0)
                runs.append(self._written(run, held.pick(mask).rows, mask, [(target.id, why, (MAX_AGE,))], None))
        changed = [each for run in runs for each in run]
        return None if all(a.block is b.block for a, b in zip(changed, waiting, strict=True)) else changed

    def reduce(
        self, waiting: Sequence[Waiting], limit: Limit, now: float, came: int = 0, went: int = 0
    ) -> list[Waiting]:
        """Give up rows until what waits is under the limit; runs of one schema share it by their rows.

        `came` and `went` are how many rows the output has taken in and sent so far.
        """
        self.packs += 1
        self._read_clock(waiting)
        target = waiting[-1].target
        self._meet(target)
        if isinstance(target, Receiver):
            backlog = self._receivers[target.id].backlog
            backlog.arrived(came - self._counted[0])
            backlog.left(went - self._counted[1])
            self._counted = (came, went)
        runs = list(_runs(waiting))
        total = max(1, sum(len(each.block.seqs) for each in waiting))
        result: list[Waiting] = []
        for run in runs:
            rows = sum(len(each.block.seqs) for each in run)
            part = Limit(*(None if bound is None else bound * rows / total for bound in (limit.rows, limit.bytes)))
            split = [piece for each in run for piece in _by_commit(each)]
            if not rows:
                result += split
            elif isinstance(split[-1].target, Receiver):
                result += self._reduce_inbox(split, split[-1].target, part, now)
            else:
                result += self._reduce_link(split, split[-1].target, part, now)
        return result

    def thin(self, waiting: Sequence[Waiting], part: float, now: float) -> list[Waiting]:
        """Keep about `part` of every group's rows on a link, whatever the groups' shares are."""
        self.packs += 1
        self._read_clock(waiting)
        result: list[Waiting] = []
        for run in _runs(waiting):
            split = [piece for each in run for piece in _by_commit(each)]
            target = split[-1].target
            if any(len(each.block.seqs) for each in split) and isinstance(target, Child):
                result += self._reduce_link(split, target, part, now)
            else:
                result += split
        return result

    def emptied(self, each: Waiting, reason: str) -> Waiting:
        """Give up all rows of a block, whatever the policies say, with their digests."""
        block, count = each.block, len(each.block.seqs)
        if not count:
            return each
        self._meet(each.target)
        notes: list[tuple[int, Ints, tuple[str, ...]]] = []
        lists = None
        if isinstance(each.target, Receiver):
            notes.append((each.target.id, np.zeros(count, dtype=np.int64), (reason,)))
        elif block.classes is not None:
            lists = ClassLists.empty(0)
            row_of = np.repeat(np.arange(count), np.diff(block.classes.offsets))
            for receiver in each.target.receivers:
                why = np.full(count, -1, dtype=np.int64)
                why[row_of[block.classes.ids == receiver.class_id]] = 0
                notes.append((receiver.id, why, (reason,)))
        gone = np.zeros(count, dtype=np.bool_)
        return self._written([each], block.rows.slice(0, 0), gone, notes, lists)[0]

    def _read_clock(self, waiting: Sequence[Waiting]) -> None:
        """How far the clock of the rows, which is that of their commits, is ahead of the relay's own."""
        self._offset = max(each.block.commits[-1].time_ms / 1000.0 - each.since for each in waiting)

    def _wall(self, now: float) -> float:
        return now + self._offset

    def _held(self, run: Sequence[Waiting]) -> Held:
        rows = pa.concat_batches([each.block.rows for each in run])
        counts = [len(each.block.seqs) for each in run]
        since = np.repeat([self._wall(each.since) for each in run], counts)
        seqs = np.concatenate([each.block.seqs for each in run])
        return Held(seqs, rows, since, row_bytes(rows), np.ones(len(seqs)))

    def _reduce_inbox(self, run: list[Waiting], target: Receiver, limit: Limit, now: float) -> list[Waiting]:
        self._meet(target)
        held = self._held(run)
        verdict = self._receivers[target.id].backlog.pack(held, self._wall(now), _scaled(limit, held, run))
        return self._written(run, verdict.held.rows, verdict.kept, [(target.id, verdict.why, verdict.names)], None)

    def _reduce_link(self, run: list[Waiting], target: Child, bound: Limit | float, now: float) -> list[Waiting]:
        """Down to a limit by the groups' shares, or by a number: to that part of every group's rows."""
        self._meet(target)
        held = self._held(run)
        lists = ClassLists.concat(each.block.classes for each in run if each.block.classes is not None)
        row_of = np.repeat(np.arange(len(held)), np.diff(lists.offsets))
        order = np.argsort(lists.ids, kind="stable")
        ids, starts = np.unique(lists.ids[order], return_index=True)
        rows_of = dict(zip(ids.tolist(), np.split(row_of[order], starts[1:]) if len(ids) else [], strict=True))
        groups = [group for class_id in rows_of for group in self._by_class.get(class_id, ())]
        for group in groups:
            group.refs = rows_of[group.class_id].astype(np.int64)
        if isinstance(bound, float):
            sharing = Sharing(held, groups, Limit(), self.packs)
            sharing.thin(bound, self._wall(now))
        else:
            correct_shares(groups)
            sharing = Sharing(held, groups, _scaled(bound, held, run), self.packs)
            sharing.run(self._wall(now))
        stays = np.zeros(len(lists.ids), dtype=np.bool_)
        by_class: dict[int, npt.NDArray[np.bool_]] = {}
        for group in groups:
            kept = by_class.setdefault(group.class_id, np.zeros(len(held), dtype=np.bool_))
            kept[group.refs] = True
        for class_id, kept in by_class.items():
            mine = lists.ids == class_id
            stays[mine] = kept[row_of[mine]]
        notes = []
        for group in groups:
            for positions, why, names in sharing.notes(group):
                gone = ~by_class[group.class_id][positions]
                full = np.full(len(held), -1, dtype=np.int64)
                full[positions[gone]] = why[gone]
                notes += [(int(name), full, names) for name in group.receivers]
        kept_rows = np.bincount(row_of[stays], minlength=len(held)) > 0
        counts = np.bincount(row_of[stays], minlength=len(held))[kept_rows]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        kept_lists = ClassLists(offsets, lists.ids[stays])
        return self._written(run, held.rows.filter(pa.array(kept_rows)), kept_rows, notes, kept_lists)

    def _written(
        self,
        run: Sequence[Waiting],
        rows: pa.RecordBatch,
        kept: npt.NDArray[np.bool_],
        notes: Sequence[tuple[int, Ints, tuple[str, ...]]],
        lists: ClassLists | None,
    ) -> list[Waiting]:
        """The blocks of a run with the rows that stay, and what went declared in the block that it was in."""
        ends = np.cumsum([len(each.block.seqs) for each in run])
        starts = np.concatenate([[0], ends[:-1]])
        before = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
        everything = pa.concat_batches([each.block.rows for each in run])
        seqs = np.concatenate([each.block.seqs for each in run])
        declared: list[dict[int, dict[str, int]]] = [{} for _ in run]
        digests: list[dict[int, Digest]] = [{} for _ in run]
        for receiver, why, names in notes:
            for index in np.unique(np.searchsorted(ends, np.flatnonzero(why >= 0), side="right")).tolist():
                inside = np.flatnonzero(why[starts[index] : ends[index]] >= 0) + starts[index]
                found = np.bincount(why[inside], minlength=len(names))
                reasons = {name: int(count) for name, count in zip(names, found, strict=True) if count}
                self.reasons.update(reasons)
                declared[index] = merge_declared(declared[index], {receiver: reasons})
                digesters = self._receivers[receiver].policy.digesters
                if digesters:
                    gone = everything.take(pa.array(inside))
                    digest = DigestTable.of(gone, seqs[inside], why[inside], names, digesters).total()
                    joined = merged(digests[index].get(receiver), digest)
                    assert joined is not None
                    digests[index][receiver] = joined
        result = []
        for index, each in enumerate(run):
            low, high = int(before[starts[index]]), int(before[ends[index]])
            inside = np.flatnonzero(kept[starts[index] : ends[index]])
            block = replace(
                each.block,
                seqs=each.block.seqs[inside],
                rows=rows.slice(low, high - low),
                classes=each.block.classes if lists is None else _part(lists, low, high),
                declared=merge_declared(each.block.declared, declared[index]),
                digests=merge_digests(each.block.digests, digests[index]),
            )
            result.append(replace(each, block=block))
        return result


def _part(lists: ClassLists, low: int, high: int) -> ClassLists:
    offsets = lists.offsets[low : high + 1]
    return ClassLists(offsets - offsets[0], lists.ids[offsets[0] : offsets[-1]])


def _scaled(limit: Limit, held: Held, run: Sequence[Waiting]) -> Limit:
    """The limit in the bytes of the rows' own values, which is what policies weigh."""
    if limit.bytes is None:
        return limit
    buffers = max(1.0, float(sum(each.block.rows.nbytes for each in run)))
    return Limit(limit.rows, limit.bytes * held.bytes / buffers)


def _runs(waiting: Sequence[Waiting]) -> Iterator[list[Waiting]]:
    """Neighbours that can be looked at together: the same columns for the same receivers."""
    run: list[Waiting] = []
    for each in waiting:
        if run and (each.target is not run[-1].target or each.block.rows.schema != run[-1].block.rows.schema):
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def _by_commit(each: Waiting) -> Iterator[Waiting]:
    """One block per commit, so that what is declared in a block is exact at its end.

    A block without rows is left whole: what it declares is of all its commits.
    """
    block = each.block
    if len(block.commits) == 1 or not len(block.seqs):
        yield each
        return
    for commit in block.commits[:-1]:
        yield replace(each, block=block.until(commit.upto))
        block = block.since(commit.upto)
    yield replace(each, block=block)
