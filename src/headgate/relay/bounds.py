"""How much of a link's queue belongs to each group of receivers that has limits of its own.

A policy's `max_rows` and `max_bytes` hold in every queue where the receiver's rows wait, also where others share the
queue. The counts are kept as blocks come and go, so that an offer costs one pass over the block's class ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from headgate.reduction.backlog import Limit
from headgate.reduction.group import Group
from headgate.reduction.rows import Floats, Ints, among, row_bytes
from headgate.wire.block import Block

# A message on its way must not cost everything that comes behind it: this part of a limit is always left for the rest.
LEFT_BEHIND: Final = 0.5


class Bounds:
    """Counts of waiting rows and bytes, one for each group with a limit; bytes are those of the values in the queue."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups = [group for group in groups if group.policy.max_rows or group.policy.max_bytes]
        ids = np.array([group.class_id for group in self.groups], dtype=np.uint32)
        self._classes, self._class_of = np.unique(ids, return_inverse=True)
        self._max_rows = np.array([group.policy.max_rows or np.inf for group in self.groups], dtype=np.float64)
        self._max_bytes = np.array([group.policy.max_bytes or np.inf for group in self.groups], dtype=np.float64)
        self._weighs = bool(np.isfinite(self._max_bytes).any())
        self.clear()

    def __bool__(self) -> bool:
        return bool(self.groups)

    def clear(self) -> None:
        """Nothing waits."""
        self._rows: Ints = np.zeros(len(self.groups), dtype=np.int64)
        self._bytes: Floats = np.zeros(len(self.groups))

    def add(self, block: Block) -> None:
        """A block came into the queue."""
        rows, size = self._count(block)
        self._rows += rows
        self._bytes += size

    def take(self, block: Block) -> None:
        """A block left the queue."""
        rows, size = self._count(block)
        self._rows -= rows
        self._bytes -= size

    @property
    def over(self) -> bool:
        """Whether a group has more waiting than its policy allows."""
        if not self.groups:
            return False
        return bool(np.any(self._rows > self._max_rows) or np.any(self._bytes > self._max_bytes + 1e-6))

    @property
    def least_rows(self) -> float:
        """The lowest limit on rows of a group that is over its own; infinite when none is."""
        return float(np.min(self._max_rows[self._rows > self._max_rows], initial=np.inf))

    def room(self, ahead: Sequence[Block]) -> dict[int, Limit]:
        """By `id` of the group, what it may have waiting behind some blocks that go before."""
        counts = [self._count(block) for block in ahead]
        rows, size = sum(count for count, _ in counts), sum(weight for _, weight in counts)
        left_rows = np.maximum(self._max_rows - rows, LEFT_BEHIND * self._max_rows)
        left_bytes = np.maximum(self._max_bytes - size, LEFT_BEHIND * self._max_bytes)
        return {
            id(group): Limit(*(float(left) if np.isfinite(left) else None for left in pair))
            for group, pair in zip(self.groups, zip(left_rows, left_bytes, strict=True), strict=True)
        }

    def _count(self, block: Block) -> tuple[Ints, Floats]:
        """Rows and bytes of each group in a block."""
        size: Floats = np.zeros(len(self.groups))
        if not self.groups or not len(block.seqs) or block.classes is None:
            return np.zeros(len(self.groups), dtype=np.int64), size
        sizes = row_bytes(block.rows) if self._weighs else None
        ids, counts, sums = block.classes.class_sums(np.zeros(len(block.seqs)) if sizes is None else sizes)
        at = np.minimum(np.searchsorted(self._classes, ids), len(self._classes) - 1)
        mine = self._classes[at] == ids
        rows: Ints = np.bincount(at[mine], counts[mine], len(self._classes))[self._class_of].astype(np.int64)
        if sizes is not None:
            size = np.bincount(at[mine], sums[mine], len(self._classes))[self._class_of].astype(np.float64)
        if block.patches:
            for index, group in enumerate(self.groups):
                patch = block.patches.get(int(group.receivers[0]))
                if patch is not None:
                    rows[index] -= len(patch.without)
                    if sizes is not None:
                        size[index] -= float(sizes[among(block.seqs, patch.without)].sum())
        return rows, size
