"""What matching returns: for each row of a batch the ids of the classes that it satisfies, as two flat arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ClassLists:
    """Row i satisfies the classes `ids[offsets[i]:offsets[i + 1]]`, sorted and without repeats.

    The two arrays are an Arrow list column without its envelope, so they go to the wire and into kernels as they are.

    >>> lists = ClassLists.of([[7, 3], [], [3]])
    >>> lists.row(0).tolist(), lists.counts().tolist(), lists.rows_matched().tolist()
    ([3, 7], [2, 0, 1], [0, 2])
    """

    offsets: Offsets
    ids: Ids

    @classmethod
    def empty(cls, rows: int) -> ClassLists:
        """Lists of that many rows that satisfy nothing."""
        return cls(np.zeros(rows + 1, np.int64), np.empty(0, np.uint32))

    @classmethod
    def of(cls, rows: Iterable[Iterable[int]]) -> ClassLists:
        """Lists written out by hand; for tests and small tables."""
        parts = [np.unique(np.fromiter(row, np.uint32)) for row in rows]
        offsets = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=offsets[1:])
        return cls(offsets, np.concatenate(parts) if parts else np.empty(0, np.uint32))

    @classmethod
    def from_pairs(cls, rows: npt.NDArray[np.integer], ids: Ids, row_count: int) -> ClassLists:
        """Lists from (row, id) pairs in any order, repeats removed."""
        keys = np.unique((rows.astype(np.uint64) << np.uint64(32)) | ids.astype(np.uint64))
        offsets = np.zeros(row_count + 1, np.int64)
        np.cumsum(np.bincount((keys >> np.uint64(32)).astype(np.int64), minlength=row_count), out=offsets[1:])
        return cls(offsets, (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32))

    @classmethod
    def concat(cls, parts: Iterable[ClassLists]) -> ClassLists:
        """The lists of consecutive batches as the lists of one."""
        found = list(parts)
        if not found:
            return cls.empty(0)
        starts = np.cumsum([0, *(len(part.ids) for part in found[:-1])])
        offsets = [part.offsets[1:] + start for part, start in zip(found, starts, strict=True)]
        first = np.zeros(1, np.int64)
        return cls(np.concatenate([first, *offsets]), np.concatenate([part.ids for part in found]))

    @property
    def rows(self) -> int:
        """How many rows the lists are of, matched or not."""
        return len(self.offsets) - 1

    def row(self, index: int) -> Ids:
        """The ids of one row."""
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def counts(self) -> Offsets:
        """How many classes each row satisfies."""
        return np.diff(self.offsets)

    def row_of_id(self) -> Offsets:
        """The row of each entry of `ids`."""
        return np.repeat(np.arange(self.rows, dtype=np.int64), self.counts())

    def rows_matched(self) -> Offsets:
        """The rows that satisfy at least one class, ascending."""
        return np.flatnonzero(self.counts()).astype(np.int64, copy=False)

    def class_counts(self) -> tuple[Ids, Offsets]:
        """The ids that occur, ascending, and how many rows each has: a manifest's matched counts."""
        if len(self.ids) and int(self.ids.max()) < 16 * len(self.ids) + 4096:  # counting beats sorting
            found = np.bincount(self.ids)
            present = np.flatnonzero(found)
            return present.astype(np.uint32), found[present].astype(np.int64, copy=False)
        ids, counts = np.unique(self.ids, return_counts=True)
        return ids, counts.astype(np.int64, copy=False)

    def restrict(self, wanted: Ids) -> ClassLists:
        """The same rows with only the ids of a sorted set: what a link carries to the sites below it.

        >>> ClassLists.of([[1, 5], [5], [2]]).restrict(np.array([2, 5], np.uint32))
        ClassLists(offsets=array([0, 1, 2, 3]), ids=array([5, 5, 2], dtype=uint32))
        """
        if len(wanted) == 0:
            return ClassLists.empty(self.rows)
        places = np.minimum(np.searchsorted(wanted, self.ids), len(wanted) - 1)
        keep = wanted[places] == self.ids
        kept = np.zeros(len(keep) + 1, np.int64)
        np.cumsum(keep, out=kept[1:])
        return ClassLists(kept[self.offsets], self.ids[keep])

    def take(self, rows: npt.NDArray[np.integer]) -> ClassLists:
        """The lists of the given rows, in that order."""
        counts = self.counts()[rows]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        shift = np.repeat(self.offsets[:-1][rows] - offsets[:-1], counts)
        return ClassLists(offsets, self.ids[np.arange(offsets[-1], dtype=np.int64) + shift])

    def same(self, other: ClassLists) -> bool:
        """Whether both name the same ids for the same rows."""
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.ids, other.ids)
