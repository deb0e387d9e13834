"""The policies of an output at work on the blocks that wait in it.

An inbox has one policy. A link has those of all receivers below it: groups of one class and policy share the room (see
`headgate.reduction.sharing`), each within the limits of its own policy (`headgate.relay.bounds`). Because a link names
rows by class, a row stays for a class as long as one of the class's policies keeps it (`headgate.relay.link_rows`).
What goes is declared in the block that it was in, which ends where a commit ends, so the ledger is exact there. Nothing
here is remembered beyond the process: decisions are final when they are published.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching import ClassLists
from headgate.model import Column, Schema
from headgate.protocol.reports import Reordering
from headgate.reduction import Policy, PolicyError, default_policy, parse_policy
from headgate.reduction.backlog import Backlog, Limit
from headgate.reduction.group import Group
from headgate.reduction.held_rows import Held
from headgate.reduction.policy import canonical
from headgate.reduction.rows import Bools, row_bytes
from headgate.reduction.sharing import Sharing, correct_shares
from headgate.relay.bounds import Bounds
from headgate.relay.link_rows import LinkRows, Note, without_patched
from headgate.relay.pack_result import leave
from headgate.relay.queued_blocks import Waiting, for_decisions, runs
from headgate.relay.routes import Child, Receiver
from headgate.wire.block import Block
from headgate.wire.patch import Patch

Ints = npt.NDArray[np.int64]

MAX_AGE: Final = "max_age"
# Ages by event time are looked at so often; ages by arrival exactly when a row reaches them.
LOOK_S: Final = 0.1
_REORDERINGS: Final = 20


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
        self.piece_rows = 256  # what is decided on together, and so published together
        self.reasons: Counter[str] = Counter()
        self._groups: dict[tuple[int, str, int], Group] = {}
        self._receivers: dict[int, Group] = {}
        self._by_class: dict[int, list[Group]] = {}
        self._parsed: dict[tuple[str, tuple[str, ...]], Policy] = {}
        self._target: Child | Receiver | None = None
        self._offset = 0.0
        self._counted = (0, 0)
        self._bounds = Bounds(())
        self._arrival_age_s = math.inf
        self._event_ages = False

    @property
    def level(self) -> int:
        """The level of the last pack, 0 before the first."""
        return max((group.backlog.level for group in self._groups.values()), default=0)

    @property
    def reorderings(self) -> list[Reordering]:
        """What `levels: auto` has changed, with the receivers whose policy it is; the newest last."""
        found = [
            Reordering(
                time_s=round(change.now, 3),
                receivers=[int(name) for name in group.receivers],
                before=list(change.before),
                after=list(change.after),
                fractions=[round(each, 4) for each in change.fractions],
            )
            for group in self._groups.values()
            for change in (group.backlog.automatic.log if group.backlog.automatic else ())
        ]
        return sorted(found, key=lambda each: each.time_s)[-_REORDERINGS:]

    def groups(self, target: Child | Receiver) -> int:
        """How many groups of class and policy a target has: what a pack costs grows with them."""
        self._meet(target)
        return len(self._groups)

    def bounds(self, target: Child | Receiver) -> Bounds:
        """The limits of groups on a link, and how much of each waits; the owner of the queue keeps the counts."""
        if self._groups or isinstance(target, Child) or target.subscription.policy is not None:
            self._meet(target)
        return self._bounds

    def limit(self, target: Child | Receiver, max_rows: float, max_bytes: float) -> Limit:
        """The output's limits, or lower ones of the link in the deployment file or of the inbox's policy."""
        if isinstance(target, Child):
            return Limit(
                min(max_rows, target.queue.max_rows or max_rows), min(max_bytes, target.queue.max_bytes or max_bytes)
            )
        if target.subscription.policy is not None:
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
                group = self._groups.get(key) or Group(receiver.class_id, policy, 0.0, priority, Backlog(policy))
                group.weight, group.receivers = 0.0, []
                groups[key] = group
            group.weight += max(receiver.subscription.weight, 1e-9)
            group.receivers.append(str(receiver.id))
            self._receivers[receiver.id] = group
        self._groups = groups
        self._by_class = {}
        for group in groups.values():
            self._by_class.setdefault(group.class_id, []).append(group)
        self._bounds = Bounds(groups.values() if isinstance(target, Child) else ())
        ages = [group.policy.max_age for group in groups.values() if group.policy.max_age is not None]
        by_arrival = [age.age_s for age in ages if age.attribute is None]
        if isinstance(target, Child) and target.queue.max_age_s is not None:
            by_arrival.append(target.queue.max_age_s)
        self._arrival_age_s = min(by_arrival, default=math.inf)
        self._event_ages = len(by_arrival) < len(ages) + (
            isinstance(target, Child) and target.queue.max_age_s is not None
        )

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
        size = block.rows.nbytes / len(block.seqs) / np.maximum(block.classes.counts(), 1)
        sizes = zip(*(each.tolist() for each in block.classes.class_sums(size)), strict=True)
        for class_id, count, bytes_ in sizes:
            for group in self._by_class.get(class_id, ()):
                yield group, count, bytes_

    def next_expiry(self, waiting: Iterable[Waiting], now: float) -> float:
        """When to look next for rows that are too old; infinite when no limit of age concerns the queue."""
        first = next((each for each in waiting if len(each.block.seqs)), None)
        if first is None or (self._arrival_age_s == math.inf and not self._event_ages):
            return math.inf
        by_arrival = first.since + self._arrival_age_s
        return min(by_arrival, now + LOOK_S) if self._event_ages else by_arrival

    def expire(self, waiting: Sequence[Waiting], now: float) -> list[Waiting] | None:
        """What is left when rows older than a `max_age` are given up; None when nothing changes."""
        self._meet(waiting[-1].target)
        if self._arrival_age_s == math.inf and not self._event_ages:
            return None
        self._read_clock(waiting)
        # By arrival only blocks at the front can have become too old.
        count = len(waiting)
        if not self._event_ages:
            old = [now - each.since > self._arrival_age_s for each in waiting]
            count = old.index(False) if False in old else count
        result: list[Waiting] = []
        changed = False
        for run in runs(waiting[:count]):
            split = [piece for each in run for piece in for_decisions(each, self.piece_rows)]
            fresh = self._expire_run(split, now)
            result += run if fresh is split else fresh
            changed = changed or fresh is not split
        return [*result, *waiting[count:]] if changed else None

    def _expire_run(self, run: list[Waiting], now: float) -> list[Waiting]:
        target = run[-1].target
        if not any(len(each.block.seqs) for each in run):
            return run
        self._meet(target)
        held = self._held(run)
        if isinstance(target, Receiver):
            mask = self._receivers[target.id].backlog.expire(held, self._wall(now))
            if mask is None:
                return run
            return self._written(run, held.rows, mask, [(target.id, np.where(mask, -1, 0), (MAX_AGE,))], None)
        rows = LinkRows(run, held, self._by_class)
        sharing = Sharing(held, rows.groups, Limit(), self.packs, rows.views)
        age_s = math.inf if target.queue.max_age_s is None else target.queue.max_age_s
        before = sum(len(group.refs) for group in rows.groups)
        for group in rows.groups:
            mine = sharing.rows_for(group).take(group.refs)
            young = self._wall(now) - mine.arrived <= age_s
            kept = group.backlog.expire(mine, self._wall(now))
            sharing.drop(group, ~(young if kept is None else young & kept), MAX_AGE)
        unchanged = before == sum(len(group.refs) for group in rows.groups)
        return run if unchanged else self._link_written(run, rows, sharing)

    def reduce(
        self,
        waiting: Sequence[Waiting],
        limit: Limit,
        now: float,
        came: int = 0,
        went: int = 0,
        ahead: Sequence[Waiting] = (),
    ) -> list[Waiting]:
        """Give up rows until what waits is under the limit; runs of one schema share it by their rows.

        On a link each group is brought under its own limits first. `came` and `went` are how many rows the output has
        taken in and sent so far, `ahead` is what goes before and stays as it is.
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
        total = max(1, sum(len(each.block.seqs) for each in waiting))
        result: list[Waiting] = []
        for run in runs(waiting):
            rows = sum(len(each.block.seqs) for each in run)
            split = [piece for each in run for piece in for_decisions(each, self.piece_rows)]
            target = split[-1].target
            if not rows:
                result += split
            elif isinstance(target, Receiver):
                result += self._reduce_inbox(split, target, limit.part(rows / total), now)
            else:
                room = self.bounds(target).room([each.block for each in ahead])
                own = {group: found.part(rows / total) for group, found in room.items()}
                result += self._reduce_link(split, target, limit.part(rows / total), now, own)
        return result

    def thin(self, waiting: Sequence[Waiting], part: float, now: float) -> list[Waiting]:
        """Keep about `part` of every group's rows on a link, whatever the groups' shares are."""
        self.packs += 1
        self._read_clock(waiting)
        result: list[Waiting] = []
        for run in runs(waiting):
            split = [piece for each in run for piece in for_decisions(each, self.piece_rows)]
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
        notes: list[Note] = []
        lists = None
        if isinstance(each.target, Receiver):
            notes.append((each.target.id, np.zeros(count, dtype=np.int64), (reason,)))
        elif block.classes is not None:
            lists = ClassLists.empty(0)
            rows_of = block.classes.rows_by_class()
            for receiver in each.target.receivers:
                why = np.full(count, -1, dtype=np.int64)
                why[rows_of.get(receiver.class_id, [])] = 0
                notes.append((receiver.id, without_patched(block.patches, receiver.id, block.seqs, why), (reason,)))
        gone = np.zeros(count, dtype=np.bool_)
        return self._written([each], block.rows, gone, notes, lists)[0]

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
        notes: list[Note] = [(target.id, verdict.why, verdict.names)]
        return self._written(run, held.rows, verdict.kept, notes, None, left=verdict.held.rows)

    def _reduce_link(
        self,
        run: list[Waiting],
        target: Child,
        bound: Limit | float,
        now: float,
        own: Mapping[int, Limit] | None = None,
    ) -> list[Waiting]:
        """Down to a limit by the groups' shares, or by a number: to that part of every group's rows.

        `own` has, by `id` of the group, limits that single groups are brought under first.
        """
        self._meet(target)
        held = self._held(run)
        rows = LinkRows(run, held, self._by_class)
        limit = Limit() if isinstance(bound, float) else _scaled(bound, held, run)
        sharing = Sharing(held, rows.groups, limit, self.packs, rows.views)
        if isinstance(bound, float):
            sharing.thin(bound, self._wall(now))
        else:
            for group in rows.groups:
                if own and id(group) in own:
                    sharing.hold_to(group, own[id(group)], self._wall(now))
            if not sharing.fits():
                correct_shares(rows.groups)
                sharing.run(self._wall(now))
        return self._link_written(run, rows, sharing)

    def _link_written(self, run: Sequence[Waiting], rows: LinkRows, sharing: Sharing) -> list[Waiting]:
        kept, lists, notes, patches = rows.left(sharing)
        return self._written(run, pa.concat_batches([each.block.rows for each in run]), kept, notes, lists, patches)

    def _written(
        self,
        run: Sequence[Waiting],
        everything: pa.RecordBatch,
        kept: Bools,
        notes: Sequence[Note],
        lists: ClassLists | None,
        patches: Mapping[int, Patch] | None = None,
        left: pa.RecordBatch | None = None,
    ) -> list[Waiting]:
        digesters = {receiver: group.policy.digesters for receiver, group in self._receivers.items()}
        blocks, reasons = leave(run, everything, kept, notes, lists, patches or {}, left, digesters)
        self.reasons.update(reasons)
        return blocks


def _scaled(limit: Limit, held: Held, run: Sequence[Waiting]) -> Limit:
    """The limit in the bytes of the rows' own values, which is what policies weigh."""
    if limit.bytes is None:
        return limit
    buffers = max(1.0, float(sum(each.block.rows.nbytes for each in run)))
    return Limit(limit.rows, limit.bytes * held.bytes / buffers)
