"""The rows of a link's queue as its groups of receivers see them, and what a pack leaves of them.

A link names rows by class, so a row stays for a class as long as one of the class's groups keeps it. A group that gave
rows up because the whole queue was too long gets those that cross the link all the same. A group that gave them up for
a limit of its own, or that got other rows in their place (`aggregate`), does not: the block says so in a patch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching import ClassLists
from headgate.reduction.group import Group
from headgate.reduction.held_rows import Held
from headgate.reduction.rows import Bools, Ints, among
from headgate.reduction.sharing import Sharing
from headgate.relay.queued_blocks import Waiting
from headgate.wire.patch import NONE, Patch, concat_patches

Note = tuple[int, Ints, tuple[str, ...]]
"""A receiver, for each row the index of the reason why it does not get it or -1, and the reasons."""


class LinkRows:
    """One run of blocks: `groups` are those with rows in it, with their `refs` set; `views` is for `Sharing`."""

    def __init__(self, run: Sequence[Waiting], held: Held, by_class: Mapping[int, list[Group]]) -> None:
        self._held = held
        lists = ClassLists.concat(each.block.classes for each in run if each.block.classes is not None)
        self._rows_of = lists.rows_by_class()
        self._patches = concat_patches([each.block.patches for each in run])
        self.views: dict[int, Held] = {}
        self.groups = [group for class_id in self._rows_of for group in by_class.get(class_id, ())]
        for group in self.groups:
            group.refs = self._rows_of[group.class_id].astype(np.int64)
            if self._patches:
                self._put_on(group)

    def _put_on(self, group: Group) -> None:
        """Let a group see its rows as its patch says: those that one of its receivers gets, with their values."""
        patches = [self._patches.get(int(name)) for name in group.receivers]
        first = patches[0]
        if first is None or any(patch is None for patch in patches):
            return
        nobody = reduce(np.intersect1d, (patch.without for patch in patches if patch is not None))
        group.refs = group.refs[~among(self._held.seqs[group.refs], nobody)]
        if first.values is not None:
            seen = self._held.select(group.columns)
            rows = first.overlay(seen.seqs, seen.rows)
            self.views[id(group)] = Held(seen.seqs, rows, seen.arrived, seen.sizes, seen.weights)

    def left(self, sharing: Sharing) -> tuple[Bools, ClassLists, list[Note], dict[int, Patch]]:
        """Which rows stay, for which classes, what every receiver gave up, and the receivers' patches."""
        kept_by = {group.class_id: np.zeros(len(self._held), dtype=np.bool_) for group in self.groups}
        for group in self.groups:
            kept_by[group.class_id][group.refs] = True
        hits = {class_id: rows[kept[rows]] for class_id, kept in kept_by.items() for rows in (self._rows_of[class_id],)}
        lists = ClassLists.from_hits(hits, len(self._held))
        notes: list[Note] = []
        patches: dict[int, Patch] = {}
        for group in self.groups:
            notes += self._notes(group, sharing, kept_by[group.class_id])
            patches.update(self._patched(group, sharing, kept_by[group.class_id]))
        return lists.counts() > 0, lists.take(lists.rows_matched()), notes, patches

    def _notes(self, group: Group, sharing: Sharing, kept: Bools) -> Iterable[Note]:
        bound = np.zeros(len(self._held), dtype=np.bool_)
        bound[sharing.bound(group)] = True
        for positions, why, names in sharing.notes(group):
            gone = ~kept[positions] | bound[positions]
            full = np.full(len(self._held), -1, dtype=np.int64)
            full[positions[gone]] = why[gone]
            for name in group.receivers:
                yield int(name), self._had(int(name), full), names

    def _had(self, receiver: int, why: Ints) -> Ints:
        """Reasons for the rows that a receiver still had."""
        return without_patched(self._patches, receiver, self._held.seqs, why)

    def _patched(self, group: Group, sharing: Sharing, kept: Bools) -> dict[int, Patch]:
        """The patches of a group's receivers after the pack; receivers that shared one go on sharing it."""
        bound = np.sort(sharing.bound(group))  # a row is given up once
        places, values = sharing.changed(group)
        new: pa.RecordBatch | None = None
        if len(places):
            whole = self._held.take(places)
            new = whole.replaced(np.arange(len(places)), values.rows, values.weights).rows
        more = Patch(self._held.seqs[bound], self._held.seqs[places], new)
        made: dict[int, Patch] = {}
        stay = self._held.seqs[kept]
        for name in group.receivers:
            before = self._patches.get(int(name))
            if before is None and not more:
                continue
            if id(before) not in made:
                made[id(before)] = (before or Patch()).followed_by(more).only(stay)
        return {int(name): patch for name in group.receivers if (patch := made.get(id(self._patches.get(int(name)))))}


def without_patched(patches: Mapping[int, Patch], receiver: int, seqs: npt.NDArray[np.uint64], why: Ints) -> Ints:
    """Reasons for giving rows up, taken back (-1) where the receiver's patch says that it does not get the row."""
    patch = patches.get(receiver, Patch(NONE))
    return np.where(among(seqs, patch.without), -1, why) if len(patch.without) else why
