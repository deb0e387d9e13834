"""Patches: how the rows of one receiver differ from those of its delivery class.

A block names rows by class. Where a receiver has limits of its own, or a policy that rewrites rows, it may get fewer
rows than others of its class, or other values. The block then carries a patch for that receiver: the sequence numbers
of rows that are not for it (they were given up for it, and are declared), and rows that it gets with other values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.reduction.rows import replaced
from headgate.wire.integers import decode_sorted, encode_sorted
from headgate.wire.rows import decode_rows, encode_rows

Seqs = npt.NDArray[np.uint64]
NONE: Seqs = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Patch:
    """Sorted sequence numbers of rows that a receiver does not get, and of rows that it gets with other `values`.

    `values` has a row for each number in `changed`, with the receiver's columns; it is None where nothing changed.
    """

    without: Seqs = field(default_factory=lambda: NONE)
    changed: Seqs = field(default_factory=lambda: NONE)
    values: pa.RecordBatch | None = None

    def __bool__(self) -> bool:
        return bool(len(self.without) or len(self.changed))

    def between(self, after: int, upto: int) -> Patch:
        """The part that concerns the rows (after, upto]."""
        low, high = np.searchsorted(self.without, np.array([after, upto], np.uint64), side="right")
        start, stop = np.searchsorted(self.changed, np.array([after, upto], np.uint64), side="right")
        if (low, high, start, stop) == (0, len(self.without), 0, len(self.changed)):
            return self
        values = None if self.values is None or start == stop else self.values.slice(start, stop - start)
        return Patch(self.without[low:high], self.changed[start:stop], values)

    def only(self, seqs: Seqs) -> Patch:
        """The part that concerns some rows."""
        return Patch(self.without[np.isin(self.without, seqs)], *_picked(self, np.isin(self.changed, seqs)))

    def followed_by(self, later: Patch) -> Patch:
        """What holds when a later decision comes to this one: more rows go, and new values replace old ones."""
        without = np.union1d(self.without, later.without) if len(self.without) else later.without
        stale = np.isin(self.changed, np.concatenate([without, later.changed]))
        return joined([Patch(NONE, *_picked(self, ~stale)), Patch(without, later.changed, later.values)], ordered=False)

    def apply(self, seqs: Seqs, rows: pa.RecordBatch) -> tuple[Seqs, pa.RecordBatch]:
        """The receiver's rows among those of its class, with the values that it gets."""
        mine = ~np.isin(seqs, self.without)
        if not mine.all():
            seqs, rows = seqs[mine], rows.filter(pa.array(mine))
        return seqs, self.overlay(seqs, rows)

    def overlay(self, seqs: Seqs, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with the changed values put in; columns that the patch does not have stay as they are."""
        here = np.isin(self.changed, seqs)
        if self.values is None or not here.any():
            return rows
        return replaced(rows, np.searchsorted(seqs, self.changed[here]), self.values.filter(pa.array(here)))


Patches = Mapping[int, Patch]
"""By subscription id, for those whose rows differ from their class's."""


def _picked(patch: Patch, mask: npt.NDArray[np.bool_]) -> tuple[Seqs, pa.RecordBatch | None]:
    if patch.values is None or not mask.any():
        return NONE, None
    return patch.changed[mask], patch.values.filter(pa.array(mask))


def joined(patches: Sequence[Patch], *, ordered: bool = True) -> Patch:
    """One patch of several that concern different rows, in the order of these rows or, if not `ordered`, in any."""
    if len(patches) == 1:
        return patches[0]
    without = np.concatenate([patch.without for patch in patches])
    valued = [patch for patch in patches if patch.values is not None]
    if not valued:
        return Patch(without if ordered else np.sort(without))
    changed = np.concatenate([patch.changed for patch in valued])
    values: pa.RecordBatch = pa.concat_batches([patch.values for patch in valued])
    if not ordered:
        order = np.argsort(changed, kind="stable")
        without, changed, values = np.sort(without), changed[order], values.take(pa.array(order))
    return Patch(without, changed, values)


def restricted(patches: Patches, after: int, upto: int) -> dict[int, Patch]:
    """The patches of the rows (after, upto], without empty ones. A patch that several receivers share stays shared."""
    cut = {id(patch): patch.between(after, upto) for patch in patches.values()}
    return {receiver: cut[id(patch)] for receiver, patch in patches.items() if cut[id(patch)]}


def concat_patches(parts: Sequence[Patches]) -> dict[int, Patch]:
    """The patches of adjacent blocks as those of one."""
    given: dict[int, list[Patch]] = {}
    for patches in parts:
        for receiver, patch in patches.items():
            given.setdefault(receiver, []).append(patch)
    made: dict[tuple[int, ...], Patch] = {}
    return {receiver: made.setdefault(tuple(map(id, found)), joined(found)) for receiver, found in given.items()}


def encode_patches(patches: Patches, base: int) -> tuple[list[Any], list[bytes]]:
    """What a block's header says about its patches, and their sections; receivers with the same patch share it."""
    shared: dict[int, tuple[Patch, list[int]]] = {}
    for receiver, patch in patches.items():
        shared.setdefault(id(patch), (patch, []))[1].append(receiver)
    header: list[Any] = []
    sections: list[bytes] = []
    for patch, receivers in shared.values():
        names = [] if patch.values is None else patch.values.schema.names
        header.append([receivers, len(patch.without), len(patch.changed), names])
        sections += [encode_sorted(patch.without - np.uint64(base)), encode_sorted(patch.changed - np.uint64(base))]
        if patch.values is not None:
            sections.append(encode_rows(patch.values))
    return header, sections


def decode_patches(
    header: Sequence[Any], sections: Sequence[bytes | memoryview], base: int, schema: pa.Schema
) -> dict[int, Patch]:
    """The inverse of `encode_patches`; `schema` has the columns of the output."""
    found: dict[int, Patch] = {}
    rest = iter(sections)
    for receivers, without, changed, names in header:
        dropped = decode_sorted(next(rest), without) + np.uint64(base)
        places = decode_sorted(next(rest), changed) + np.uint64(base)
        columns = pa.schema([schema.field(name) for name in names])
        patch = Patch(dropped, places, decode_rows(next(rest), columns, changed) if names else None)
        found.update(dict.fromkeys(receivers, patch))
    return found
