"""One pack of rows that several groups of receivers share: who gives up what, so that the whole is under its limit.

Groups that hold more than their weighted max-min share of the room are packed by their own policies, down to the share.
Where policies keep different rows and so free too little between them, rows that the fewest want go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headgate.reduction.backlog import Limit, Verdict
from headgate.reduction.filters.random import draws
from headgate.reduction.group import Group
from headgate.reduction.held_rows import Held
from headgate.reduction.rows import Bools, Floats, Ints, among
from headgate.reduction.shares import by_priority

Note = tuple[Ints, Ints, tuple[str, ...]]
"""Positions of rows that one group gives up, the index of each one's reason, and the reasons."""

_NOTHING: Ints = np.zeros(0, dtype=np.int64)
_FULL = 0.9
_ROUNDS = 3
_TIGHTER = 0.8
_MEMORY = 0.8
_MOST_BOOST = 16.0


def correct_shares(groups: Sequence[Group]) -> None:
    """Move each group's share of the buffer towards what makes its share of the link fair."""
    came = np.array([group.came for group in groups])
    left = np.array([group.left for group in groups])
    weight = np.array([group.weight for group in groups])
    priority = np.array([group.priority for group in groups], dtype=np.int64)
    fair = by_priority(came, weight, priority, float(left.sum()))
    for group, due, got in zip(groups, fair, left, strict=True):
        if due > 0:
            step = np.sqrt(due / max(got, 0.05 * due))
            group.boost = float(np.clip(group.boost * step, 1 / _MOST_BOOST, _MOST_BOOST))
        group.came *= _MEMORY
        group.left *= _MEMORY


class Sharing:
    """Waiting rows, the groups whose `refs` name the rows that each keeps, and the limit of the whole."""

    def __init__(
        self,
        held: Held,
        groups: Sequence[Group],
        limit: Limit,
        round_: int,
        views: Mapping[int, Held] | None = None,
    ) -> None:
        """`views` has, by `id` of the group, the rows of groups that see other values than the rest."""
        self._held = held
        self._own = dict(views or {})
        self._bound: dict[int, list[Ints]] = {}
        self._changed: dict[int, Ints] = {}
        self._groups = groups
        self._limit = limit
        self._round = round_
        self._notes: dict[int, list[Note]] = {}
        self._seen: dict[frozenset[str], Held] = {}

    def hold_to(self, group: Group, limit: Limit, now: float) -> None:
        """Let a group give up what is over a limit of its own, whatever the others keep."""
        if limit.excess(self._held_by(group)) != (0.0, 0.0):
            before = group.refs
            self._pack(group, limit, now, exact=False)
            self._bind(group, before)

    def drop(self, group: Group, gone: Bools, reason: str) -> None:
        """Let a group give up some of its rows (a mask over its `refs`), whatever the others keep."""
        if gone.any():
            self._note(group, group.refs[gone], np.zeros(int(gone.sum()), dtype=np.int64), (reason,))
            before, group.refs = group.refs, group.refs[~gone]
            self._bind(group, before)

    def _bind(self, group: Group, before: Ints) -> None:
        self._bound.setdefault(id(group), []).append(before[~among(before, group.refs)])

    def bound(self, group: Group) -> Ints:
        """The rows that a group gave up for good: it does not get them even where others of its class do."""
        if id(group) in self._changed and self.notes(group):  # its own rows stand for those that it gave up
            return np.concatenate([positions for positions, _, _ in self.notes(group)])
        return np.concatenate(self._bound.get(id(group), [_NOTHING]))

    def changed(self, group: Group) -> tuple[Ints, Held]:
        """The rows that a group keeps with other values than the rest, and these values."""
        changed = self._changed.get(id(group), _NOTHING)
        positions = changed[among(changed, group.refs)]
        return positions, self.rows_for(group).take(positions)

    def run(self, now: float) -> None:
        """Shorten the groups' `refs` until the rows that anybody keeps fit.

        Who has the link alone shares with nobody: its policy and controller decide, as in a queue of its own.
        """
        if len(self._groups) == 1 and not self.fits():
            self._pack(self._groups[0], self._limit, now, exact=False)
        by_bytes = self._limit.bytes is not None and self._held.bytes > self._limit.bytes
        units = self._held.sizes if by_bytes else np.ones(len(self._held))
        room = ((self._limit.bytes if by_bytes else self._limit.rows) or 0.0) * _FULL
        for _ in range(_ROUNDS):
            if self.fits():
                return
            self._share_out(units, room, now)
            room *= _TIGHTER
        if not self.fits():
            self._drop_unwanted()

    def thin(self, part: float, now: float) -> None:
        """Let every group keep about `part` of its rows, large and small alike.

        Rows go as the group's policy says, down to the part exactly. Where it says at random, each row is drawn by
        itself: that keeps the part in the mean however few rows there are, and groups throw away the same rows.
        """
        for group in self._groups:
            held = self._held_by(group)
            seed = group.policy.random_seed
            names: tuple[str, ...] = ("random",)
            if seed is not None:
                kept = draws(held.seqs, seed, self._round) < part
                why = np.where(kept, -1, 0)
            else:
                limit = Limit(part * len(held), part * held.bytes)
                verdict = group.backlog.pack(held, now, limit, self._round, exact=True)
                kept, why, names = verdict.kept, verdict.why, verdict.names
                self._rewrite(group, held, verdict)
            self._note(group, group.refs[~kept], why[~kept], names)
            group.refs = group.refs[kept]

    def rows_for(self, group: Group) -> Held:
        """All rows with the columns that a group's policy looks at; made once for equal sets of columns."""
        own = self._own.get(id(group))
        if own is not None:
            return own
        found = self._seen.get(group.columns)
        if found is None:
            found = self._seen[group.columns] = self._held.select(group.columns)
        return found

    def _held_by(self, group: Group) -> Held:
        return self.rows_for(group).take(group.refs)

    def notes(self, group: Group) -> list[Note]:
        """What a group gave up."""
        return self._notes.get(id(group), [])

    def keepers(self) -> Ints:
        """How many groups keep each row."""
        counts = np.zeros(len(self._held), dtype=np.int64)
        for group in self._groups:
            counts[group.refs] += 1
        return counts

    def fits(self) -> bool:
        """Whether the rows that anybody keeps are within the limit."""
        kept = self.keepers() > 0
        rows, size = self._limit.rows, self._limit.bytes
        return (rows is None or int(kept.sum()) <= rows) and (
            size is None or float(self._held.sizes[kept].sum()) <= size
        )

    def _note(self, group: Group, positions: Ints, why: Ints, names: tuple[str, ...]) -> None:
        if len(positions):
            self._notes.setdefault(id(group), []).append((positions, why, names))

    def _share_out(self, units: Floats, room: float, now: float) -> None:
        """Pack the groups that hold more than their share."""
        cost = units / np.maximum(1, self.keepers())
        demand = np.array([float(cost[group.refs].sum()) for group in self._groups])
        weight = np.array([group.weight * group.boost for group in self._groups])
        priority = np.array([group.priority for group in self._groups], dtype=np.int64)
        share = by_priority(demand, weight, priority, room)
        for group, asked, given in zip(self._groups, demand, share, strict=True):
            if given < asked - 1e-9:
                part = given / asked
                size = float(self._held.sizes[group.refs].sum())
                self._pack(group, Limit(part * len(group.refs), part * size), now, exact=True)

    def _pack(self, group: Group, limit: Limit, now: float, *, exact: bool) -> None:
        """Let a group's policy give up what is over a limit."""
        held = self._held_by(group)
        verdict = group.backlog.pack(held, now, limit, self._round, exact=exact)
        self._rewrite(group, held, verdict)
        gone = ~verdict.kept
        self._note(group, group.refs[gone], verdict.why[gone], verdict.names)
        group.refs = group.refs[verdict.kept]

    def _rewrite(self, group: Group, held: Held, verdict: Verdict) -> None:
        """Keep the values of rows that now stand for more rows than before."""
        heavier = verdict.held.weights > held.weights[verdict.kept]
        if heavier.any():
            places = group.refs[verdict.kept][heavier]
            new = verdict.held.pick(heavier)
            self._own[id(group)] = self.rows_for(group).replaced(places, new.rows, new.weights)
            self._changed[id(group)] = np.union1d(self._changed.get(id(group), _NOTHING), places)

    def _drop_unwanted(self) -> None:
        """Drop rows by the weight of the groups that keep them, the oldest first among equals."""
        wanted = np.zeros(len(self._held))
        for group in self._groups:
            wanted[group.refs] += group.weight * len(group.receivers)
        positions = np.flatnonzero(wanted > 0)
        order = positions[np.argsort(wanted[positions], kind="stable")]
        rows = 0.0 if self._limit.rows is None else len(positions) - _FULL * self._limit.rows
        count = max(0, int(np.ceil(rows)))
        if self._limit.bytes is not None:
            sizes = np.cumsum(self._held.sizes[order])
            count = max(count, int(np.searchsorted(sizes, sizes[-1] - _FULL * self._limit.bytes)) + 1)
        gone = np.zeros(len(self._held), dtype=np.bool_)
        gone[order[:count]] = True
        for group in self._groups:
            hit = gone[group.refs]
            self._note(group, group.refs[hit], np.zeros(int(hit.sum()), dtype=np.int64), ("unwanted",))
            group.refs = group.refs[~hit]
