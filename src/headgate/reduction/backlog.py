"""One receiver's view of waiting rows: its policy, the level it is at, and the digests of the gaps between kept rows.

A backlog does not own the rows, so that many can share them. It is told when the queue is over its limit (`pack`) and
when rows have left (`taken`). Gaps are kept by the position of the kept row that follows them, at most one per
position, so their number is bounded by the rows kept plus one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.reduction.automatic import AutoOrder
from headgate.reduction.controllers import Pressure, make_controller
from headgate.reduction.digest import Digest, DigestTable
from headgate.reduction.filters import Moment, ReductionFilter
from headgate.reduction.held_rows import Held
from headgate.reduction.policy import Level, Policy
from headgate.reduction.rows import Bools, Ints, packed

_OLDEST = "oldest"
_FOLD_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Limit:
    """What must hold after a pack: at most so many rows and bytes. None is no limit."""

    rows: float | None = None
    bytes: float | None = None

    def excess(self, held: Held, free: float = 0.0) -> tuple[float, float]:
        """How many rows and bytes are over the limit when the fraction `free` of it is to stay free."""
        rows = 0.0 if self.rows is None else len(held) - (1.0 - free) * self.rows
        size = 0.0 if self.bytes is None else held.bytes - (1.0 - free) * self.bytes
        return max(0.0, rows), max(0.0, size)

    def part(self, share: float) -> Limit:
        """That part of the limit."""
        return Limit(*(None if bound is None else bound * share for bound in (self.rows, self.bytes)))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a pack decided: the mask of rows that stay, those rows, and for each row the index of its reason or -1."""

    kept: Bools
    held: Held
    why: Ints
    names: tuple[str, ...]


def _number(names: list[str], name: str) -> int:
    """The place of a reason in the list, counted from 1; a new one is added."""
    if name not in names:
        names.append(name)
    return names.index(name) + 1


def _oldest(held: Held, rows: float, size: float) -> int:
    """How many of the oldest rows have to go to free that many rows and bytes."""
    count = int(np.ceil(rows - 1e-9))
    if size > 0:
        count = max(count, int(np.searchsorted(np.cumsum(held.sizes), size - 1e-6)) + 1)
    return min(count, len(held))


def _remembers(found: ReductionFilter) -> bool:
    return type(found).delivered is not ReductionFilter.delivered


class Backlog:
    """A policy at work on one queue's rows.

    `level` is the level of the last pack (0 before the first, one past the last level when the oldest had to go),
    `changes` how often it changed, `packs` how many packs there were, `reduced` counts rows by reason. `shared` says
    that the owner of the rows has no place for values of one receiver only: filters that rewrite are passed over.
    """

    def __init__(self, policy: Policy, *, shared: bool = False) -> None:
        self.shared = shared
        self.level = 0
        self.changes = 0
        self.packs = 0
        self._round = 0
        self.reduced: Counter[str] = Counter()
        self._slots: Ints = np.zeros(0, dtype=np.int64)
        self._gaps = DigestTable.empty()
        self._arrived = 0
        self._left = 0
        self.set_policy(policy)

    def set_policy(self, policy: Policy) -> None:
        """Use another policy from now on: rows stay where they are, gaps keep the digests they have."""
        self.policy = policy
        self.controller = make_controller(policy.controller, policy.headroom)
        self.automatic = AutoOrder(policy.levels) if policy.automatic else None
        self._states: dict[int, Any] = {}
        self._pending: list[pa.RecordBatch] = []
        self._memory = [found for level in policy.levels for found in level.filters if _remembers(found)]
        self._index = {id(found): number for number, found in enumerate(self._memory)}

    @property
    def order(self) -> tuple[Level, ...]:
        """The levels in the order in which they are applied."""
        if self.automatic is None:
            return self.policy.levels
        return tuple(self.policy.levels[index] for index in self.automatic.order)

    @property
    def waiting(self) -> int:
        """How many reduced rows have not been told to the receiver yet."""
        return self._gaps.reduced()

    @property
    def gaps(self) -> int:
        """How many digests are held."""
        return len(self._gaps)

    def arrived(self, rows: int) -> None:
        """Rows were added to the queue."""
        self._arrived += rows

    def expire(self, held: Held, now: float) -> Bools | None:
        """The rows that the policy's `max_age` lets stay, None if all. Nothing is noted yet."""
        if self.policy.max_age is None or not len(held):
            return None
        mask, _ = self.policy.max_age.keep(held.rows, None, self._moment(held, now))
        if mask.all():
            return None
        return mask

    def pack(self, held: Held, now: float, limit: Limit, round_: int | None = None, *, exact: bool = False) -> Verdict:
        """Decide what goes from a queue that is over its limit.

        Levels are applied one after the other, at least up to the controller's, until the queue has room again. When
        all levels together do not free enough, the oldest rows go. So after a pack the queue is always under `limit`.
        Receivers that share a link are packed with the same `round_`, so that their random draws are the same and what
        one throws away the others throw away too. `exact` goes down to the limit and no further: of what the last level
        would drop, only as much goes as is needed.
        """
        self.packs += 1
        self._round = self.packs if round_ is None else round_
        if self.automatic is not None and self.automatic.due():
            self._measure(held, now)
        levels = self.order
        pressure = Pressure(now, len(held), self._arrived, self._left, len(levels))
        self._arrived = self._left = 0
        start, want = self.controller.start(pressure), self.controller.want(pressure)
        enough = self.controller.enough(pressure)
        if exact:
            start, want = 1, 0.0
        alive, current = np.arange(len(held)), held
        why = np.zeros(len(held), dtype=np.int64)
        names: list[str] = []
        used = len(levels) + 1
        for number, level in enumerate(levels, start=1):
            before = current, alive
            # The overload chooses the level. A level that drops as many as needed is not asked for more than that.
            goal = min(want, self.policy.headroom) if level.as_needed else want
            for found in level.filters:
                if self.shared and found.rewrites:
                    continue
                reason = _number(names, found.name)
                mask, current = self._apply(found, current, now, limit, goal)
                why[alive[~mask]] = reason
                alive = alive[mask]
            if number >= start and limit.excess(current, goal if number < enough else 0.0) == (0.0, 0.0):
                if exact and not level.rewrites:  # what was rewritten stands for the rows that went
                    current, alive = self._spared(*before, why, limit, newest_first=level.newest_first)
                used = number
                break
        if used > len(levels) and limit.excess(current, 0.0 if exact else self.policy.headroom) != (0.0, 0.0):
            count = _oldest(current, *limit.excess(current, 0.0 if exact else self.policy.headroom))
            why[alive[:count]] = _number(names, _OLDEST)
            current = current.cut(count, len(current))
        elif used > len(levels):
            used = len(levels)
        kept: Bools = why == 0
        freed = 1.0 - len(current) / max(1, len(held))
        self.controller.packed(now, used, freed)
        self.changes += self.level not in (0, used)
        self.level = used
        return Verdict(kept, current, why - 1, tuple(names))

    def _apply(self, found: ReductionFilter, held: Held, now: float, limit: Limit, want: float) -> tuple[Bools, Held]:
        moment = self._moment(held, now, *limit.excess(held, want))
        mask, _ = found.keep(held.rows, self._state(found), moment)
        if found.rewrites:
            rows, weights = found.rewrite(held.rows, mask, moment)
            held = Held(held.seqs, rows, held.arrived, held.sizes, weights)
        return mask, held if mask.all() else held.pick(mask)

    def _spared(self, held: Held, alive: Ints, why: Ints, limit: Limit, *, newest_first: bool) -> tuple[Held, Ints]:
        """What is left when only as many of the rows that a level marked go as needed; the others are unmarked.

        A level that prefers new rows (`latest`, `conflate`) gives up the oldest of the marked ones. Any other gives up
        the newest of them: old rows are sent soon, and on a shared link a receiver that always gave up its oldest rows
        would fill its share of the buffer with rows that never leave, and get less than its share of the link.
        """
        marked = np.flatnonzero(why[alive] > 0)[:: 1 if newest_first else -1]
        count = _oldest(held.take(marked), *limit.excess(held))
        why[alive[marked[count:]]] = 0
        kept = why[alive] == 0
        return held.pick(kept), alive[kept]

    def _moment(self, held: Held, now: float, need_rows: float = 0.0, need_bytes: float = 0.0) -> Moment:
        return Moment(now, self._round, held.seqs, held.arrived, held.weights, held.sizes, need_rows, need_bytes)

    def _measure(self, held: Held, now: float) -> None:
        if self.automatic is None:
            return
        fractions = []
        for level in self.policy.levels:
            current = held
            for found in level.filters:
                _, current = self._apply(found, current, now, Limit(), 0.0)
            fractions.append(1.0 - len(current) / max(1, len(held)))
        self.automatic.measured(now, fractions)

    def move(self, moved: Ints) -> None:
        """Waiting rows were dropped from the store: slot i is now slot moved[i], and gaps that meet become one.

        A slot is the number of waiting rows before a gap, in the store's order.
        """
        if len(self._slots):
            self._merge_gaps(moved[self._slots], self._gaps)

    def note(self, gone: Held, why: Ints, names: tuple[str, ...], slots: Ints) -> None:
        """Take rows that go into the gaps at `slots`; `why` is the index of each row's reason in `names`."""
        if not len(gone):
            return
        for index, count in enumerate(np.bincount(why, minlength=len(names)).tolist()):
            if count:
                self.reduced[names[index]] += count
        table = DigestTable.of(gone.rows, gone.seqs, why, names, self.policy.digesters)
        self._merge_gaps(np.concatenate([self._slots, slots]), self._gaps.join(table))

    def _merge_gaps(self, slots: Ints, table: DigestTable) -> None:
        order = np.argsort(slots, kind="stable")
        found, starts = np.unique(slots[order], return_index=True)
        self._gaps = (table.pick(order).fold(starts) if len(starts) < len(table) else table.pick(order)).packed()
        self._slots = packed(found)

    @property
    def remembers(self) -> bool:
        """Whether a filter compares with what the receiver already has."""
        return bool(self._memory)

    def left(self, count: int) -> None:
        """That many rows went to the receiver."""
        self._left += count

    def remember(self, rows: pa.RecordBatch) -> None:
        """These rows went to the receiver; only called for a policy that remembers."""
        self._pending.append(rows)
        if sum(part.num_rows for part in self._pending) > _FOLD_ROWS:
            self._fold_states()

    def told(self, count: int, *, everything: bool) -> Digest | None:
        """One digest of the gaps up to slot `count`, or of all; slots are counted from the new front afterwards."""
        if not len(self._slots):
            return None
        size = len(self._slots) if everything else int(np.searchsorted(self._slots, count, side="right"))
        digest = self._gaps.pick(slice(0, size)).total()
        self._gaps = self._gaps.pick(slice(size, None)) if size < len(self._slots) else DigestTable.empty()
        self._slots = packed(self._slots[size:].astype(np.int64) - count)
        return digest

    def _state(self, found: ReductionFilter) -> Any:
        if self._pending:
            self._fold_states()
        return self._states.get(self._index.get(id(found), -1))

    def _fold_states(self) -> None:
        rows = pa.concat_batches(self._pending)
        self._pending = []
        for number, found in enumerate(self._memory):
            self._states[number] = found.delivered(rows, self._states.get(number))
