"""What matching returns: for each row of a batch the ids of the classes that it satisfies.

Rows that satisfy the same classes share one set, and a set names classes by small numbers. So what costs by the pair of
a row and a class elsewhere (counting, splitting over links, writing to the wire) costs by the distinct set here, and
what costs by the class id is done once a class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]

# Up to so many classes a row's set is the bits of one integer.
_BITS = 64


@dataclass(frozen=True, slots=True, eq=False)
class ClassLists:
    """Row i has the set `sets[i]`; set k is the classes `names[numbers[starts[k]:starts[k + 1]]]`, each of them once.

    Numbers ascend within a set. Without `sets` row i has the set i; without `names` the numbers are the ids. A class
    may have several numbers, as long as no set has two of them. Lists with neither are *plain*: `offsets` and `ids`
    are those of the plain form, where the ids of a row ascend.

    >>> lists = ClassLists.of([[7, 3], [], [3]])
    >>> lists.row(0).tolist(), lists.counts().tolist(), lists.rows_matched().tolist()
    ([3, 7], [2, 0, 1], [0, 2])
    >>> numbers, names = np.array([[0, 1], [9, 4]], np.uint32)
    >>> shared = ClassLists(np.array([0, 2]), numbers, names, np.zeros(3, int))
    >>> shared.rows, shared.row(2).tolist(), shared.ids.tolist()
    (3, [4, 9], [4, 9, 4, 9, 4, 9])
    """

    starts: Offsets
    numbers: Ids
    names: Ids | None = None
    sets: Offsets | None = None
    _plain: ClassLists | None = field(default=None, init=False, repr=False)
    _uses: Offsets | None = field(default=None, init=False, repr=False)

    @classmethod
    def empty(cls, rows: int) -> ClassLists:
        """Lists of that many rows that satisfy nothing."""
        return cls(np.zeros(rows + 1, np.int64), np.empty(0, np.uint32))

    @classmethod
    def of(cls, rows: Iterable[Iterable[int]]) -> ClassLists:
        """Lists written out by hand; for tests and small tables."""
        parts = [np.unique(np.fromiter(row, np.uint32)) for row in rows]
        return cls(_starts([len(part) for part in parts]), np.concatenate(parts) if parts else np.empty(0, np.uint32))

    @classmethod
    def from_pairs(cls, rows: npt.NDArray[np.integer], ids: Ids, row_count: int) -> ClassLists:
        """Lists from (row, id) pairs in any order, repeats removed."""
        keys = np.unique((rows.astype(np.uint64) << np.uint64(32)) | ids.astype(np.uint64))
        counts = np.bincount((keys >> np.uint64(32)).astype(np.int64), minlength=row_count)
        return cls(_starts(counts), (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32))

    @classmethod
    def from_hits(cls, hits: Mapping[int, npt.NDArray[np.integer]], row_count: int) -> ClassLists:
        """Lists from the rows that each class takes, none of them twice.

        >>> found = ClassLists.from_hits({7: np.array([0, 2]), 3: np.array([0, 1, 2])}, 4)
        >>> len(found.starts) - 1, [found.row(k).tolist() for k in range(4)]
        (3, [[3, 7], [3], [3, 7], []])
        """
        if not hits:
            return cls.empty(row_count)
        ids = np.sort(np.fromiter(hits, np.uint32, len(hits)))
        if len(ids) > _BITS:
            rows = np.concatenate(list(hits.values()))
            each = np.repeat(np.fromiter(hits, np.uint32, len(hits)), [len(mine) for mine in hits.values()])
            return cls.from_pairs(rows, each, row_count)
        taken = np.zeros(row_count, np.uint64)
        for bit, identity in enumerate(ids.tolist()):
            taken[hits[identity]] |= np.uint64(1 << bit)
        distinct, sets = np.unique(taken, return_inverse=True)
        places, bits = np.nonzero(distinct[:, None] >> np.arange(len(ids), dtype=np.uint64) & np.uint64(1))
        return cls(_starts(np.bincount(places, minlength=len(distinct))), ids[bits], None, sets)

    @classmethod
    def concat(cls, parts: Iterable[ClassLists]) -> ClassLists:
        """The lists of consecutive batches as the lists of one."""
        found = list(parts)
        if len(found) == 1:
            return found[0]
        if not found:
            return cls.empty(0)
        named = all(part.names is not None for part in found)
        if not named:
            found = [part if part.names is None else part.plain() for part in found]
        pairs = np.cumsum([0, *(len(part.numbers) for part in found[:-1])])
        starts = [part.starts[1:] + first for part, first in zip(found, pairs, strict=True)]
        numbers, names, sets = [part.numbers for part in found], None, None
        if named:
            known = [part.names for part in found if part.names is not None]
            before = np.cumsum([0, *(len(each) for each in known[:-1])]).astype(np.uint32)
            numbers = [each + first for each, first in zip(numbers, before, strict=True)]
            names = np.concatenate(known)
        if any(part.sets is not None for part in found):
            before = np.cumsum([0, *(len(part.starts) - 1 for part in found[:-1])])
            sets = np.concatenate([part.set_of_row() + first for part, first in zip(found, before, strict=True)])
        return cls(np.concatenate([np.zeros(1, np.int64), *starts]), np.concatenate(numbers), names, sets)

    @property
    def rows(self) -> int:
        """How many rows the lists are of, matched or not."""
        return len(self.starts) - 1 if self.sets is None else len(self.sets)

    @property
    def offsets(self) -> Offsets:
        """Where each row's ids begin in `ids`, and where the last ones end."""
        return self.plain().starts

    @property
    def ids(self) -> Ids:
        """The ids of all rows, one after the other; ascending within a row."""
        return self.plain().numbers

    def plain(self) -> ClassLists:
        """The same lists with ids written out for every row; made once."""
        if self.names is None and self.sets is None:
            return self
        if self._plain is None:
            counts = self.counts()
            offsets = _starts(counts)
            ids = self.numbers if self.sets is None else self.numbers[_spans(self.starts[self.sets], counts, offsets)]
            if self.names is not None:
                rows = np.repeat(np.arange(self.rows, dtype=np.uint64) << np.uint64(32), counts)
                ids = (np.sort(rows | self.names[ids]) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
            object.__setattr__(self, "_plain", ClassLists(offsets, ids))
        assert self._plain is not None
        return self._plain

    def set_of_row(self) -> Offsets:
        """The set of each row."""
        return np.arange(self.rows) if self.sets is None else self.sets

    def set_sizes(self) -> Offsets:
        """How many classes each set has."""
        return np.diff(self.starts)

    def row(self, index: int) -> Ids:
        """The ids of one row."""
        place = index if self.sets is None else self.sets[index]
        numbers = self.numbers[self.starts[place] : self.starts[place + 1]]
        return numbers if self.names is None else np.sort(self.names[numbers])

    def counts(self) -> Offsets:
        """How many classes each row satisfies."""
        sizes = self.set_sizes()
        return sizes if self.sets is None else sizes[self.sets]

    def row_of_id(self) -> Offsets:
        """The row of each entry of `ids`."""
        return np.repeat(np.arange(self.rows, dtype=np.int64), self.counts())

    def rows_matched(self) -> Offsets:
        """The rows that satisfy at least one class, ascending."""
        return np.flatnonzero(self.counts()).astype(np.int64, copy=False)

    def class_counts(self) -> tuple[Ids, Offsets]:
        """The ids that occur, ascending, and how many rows each has: a manifest's matched counts."""
        if self.sets is not None:
            times = np.bincount(self.sets, minlength=len(self.starts) - 1)
            if len(times) != len(self.sets) or not times.all():  # else every set has one row
                return _summed(self.each_id(), np.repeat(times, self.set_sizes()))
        if self.names is None:
            return _summed(self.numbers, None)
        return _summed(self.names, self.number_counts())

    def number_counts(self) -> Offsets:
        """How many sets each number is in, for lists with names; counted once."""
        if self._uses is None:
            assert self.names is not None
            object.__setattr__(self, "_uses", np.bincount(self.numbers, minlength=len(self.names)))
        assert self._uses is not None
        return self._uses

    def class_sums(self, weights: npt.NDArray[np.float64]) -> tuple[Ids, Offsets, npt.NDArray[np.float64]]:
        """The ids that occur, ascending, how many rows each has, and the sum of those rows' weights.

        >>> [each.tolist() for each in ClassLists.of([[3], [3, 7]]).class_sums(np.array([1.0, 0.5]))]
        [[3, 7], [2, 1], [1.5, 0.5]]
        """
        rows, sets, count = self.set_of_row(), self.set_sizes(), len(self.starts) - 1
        ids, inverse = np.unique(self.each_id(), return_inverse=True)
        times, sums = (
            np.bincount(inverse, np.repeat(np.bincount(rows, each, count), sets), len(ids)) for each in (None, weights)
        )
        kept = times > 0  # a set without rows has classes too
        return ids[kept], times[kept].astype(np.int64), sums[kept].astype(np.float64)

    def rows_by_class(self) -> dict[int, Offsets]:
        """The rows of every class that has some, ascending; classes that have the same sets share one array.

        >>> {each: rows.tolist() for each, rows in ClassLists.of([[3], [3, 7], [7]]).rows_by_class().items()}
        {3: [0, 1], 7: [1, 2]}
        """
        lists = self.trimmed()
        ids = lists.each_id()
        order = np.argsort(ids, kind="stable")
        present, starts = np.unique(ids[order], return_index=True)
        sets = np.repeat(np.arange(len(lists.starts) - 1), lists.set_sizes())[order]
        groups = np.split(sets, starts[1:]) if len(present) else []
        if lists.sets is None:
            return dict(zip(present.tolist(), groups, strict=True))
        by_set, times = np.argsort(lists.sets, kind="stable"), np.bincount(lists.sets)
        firsts, shared, found = _starts(times), dict[bytes, Offsets](), dict[int, Offsets]()
        for identity, mine in zip(present.tolist(), groups, strict=True):
            key = mine.tobytes()
            if key not in shared:
                shared[key] = np.sort(by_set[_spans(firsts[mine], times[mine], _starts(times[mine]))])
            found[identity] = shared[key]
        return found

    def each_id(self) -> Ids:
        """The id of each entry of `numbers`."""
        return self.numbers if self.names is None else self.names[self.numbers]

    def restrict(self, wanted: Ids) -> ClassLists:
        """The same rows with only the ids of a sorted set: what a link carries to the sites below it.

        >>> found = ClassLists.of([[1, 5], [5], [2]]).restrict(np.array([2, 5], np.uint32))
        >>> found.offsets.tolist(), found.ids.tolist()
        ([0, 1, 2, 3], [5, 5, 2])
        """
        if len(wanted) == 0:
            return ClassLists.empty(self.rows)
        keep = _among(self.numbers, wanted) if self.names is None else _among(self.names, wanted)[self.numbers]
        return self if keep.all() else self.only(keep)

    def only(self, keep: npt.NDArray[np.bool_]) -> ClassLists:
        """The same rows with only some entries of `numbers`."""
        kept = np.zeros(len(keep) + 1, np.int64)
        np.cumsum(keep, out=kept[1:])
        return ClassLists(kept[self.starts], self.numbers[keep], self.names, self.sets)

    def take(self, rows: npt.NDArray[np.integer]) -> ClassLists:
        """The lists of the given rows, in that order."""
        if self.sets is not None or self.names is not None:
            chosen = rows if self.sets is None else self.sets[rows]
            return ClassLists(self.starts, self.numbers, self.names, np.asarray(chosen, np.int64))
        counts = self.counts()[rows]
        offsets = _starts(counts)
        return ClassLists(offsets, self.numbers[_spans(self.starts[:-1][rows], counts, offsets)])

    def slice(self, start: int, stop: int) -> ClassLists:
        """The lists of consecutive rows."""
        if self.sets is not None:
            return ClassLists(self.starts, self.numbers, self.names, self.sets[start:stop])
        starts = self.starts[start : stop + 1]
        return ClassLists(starts - starts[0], self.numbers[starts[0] : starts[-1]], self.names)

    def trimmed(self) -> ClassLists:
        """The same lists without sets that no row has."""
        if self.sets is None:
            return self
        used = np.bincount(self.sets, minlength=len(self.starts) - 1) > 0
        if used.all():
            return self
        renumbered = np.cumsum(used) - 1
        mine = ClassLists(self.starts, self.numbers).take(np.flatnonzero(used))
        return ClassLists(mine.starts, mine.numbers, self.names, renumbered[self.sets])

    def numbered(self) -> ClassLists:
        """The same lists with names."""
        if self.names is not None:
            return self
        names, numbers = np.unique(self.numbers, return_inverse=True)
        return ClassLists(self.starts, numbers.astype(np.uint32), names, self.sets)

    def joined(self, other: ClassLists) -> ClassLists:
        """The lists of the same rows with the classes of both, which have none in common.

        >>> one, other = ClassLists.of([[7], [7], []]), ClassLists.of([[3], [3], [9]])
        >>> [one.joined(other).row(k).tolist() for k in range(3)]
        [[3, 7], [3, 7], [9]]
        """
        if not len(other.numbers):
            return self
        if not len(self.numbers):
            return other
        one, other = self.numbered(), other.numbered()
        assert one.names is not None
        assert other.names is not None
        width = len(other.starts) - 1
        pairs, sets = np.unique(one.set_of_row() * width + other.set_of_row(), return_inverse=True)
        low = ClassLists(one.starts, one.numbers).take(pairs // width)
        high = ClassLists(other.starts, other.numbers).take(pairs % width)
        starts = low.starts + high.starts
        numbers = np.empty(starts[-1], np.uint32)
        numbers[_spans(starts[:-1], low.counts(), low.starts)] = low.numbers
        firsts = starts[:-1] + low.counts()
        numbers[_spans(firsts, high.counts(), high.starts)] = high.numbers + np.uint32(len(one.names))
        return ClassLists(starts, numbers, np.concatenate([one.names, other.names]), sets)

    def same(self, other: ClassLists) -> bool:
        """Whether both name the same ids for the same rows."""
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.ids, other.ids)


def _starts(counts: npt.ArrayLike) -> Offsets:
    """Where lists of these lengths begin, one after the other, and where the last one ends."""
    lengths = np.asarray(counts, np.int64)
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def _spans(firsts: Offsets, counts: Offsets, offsets: Offsets) -> Offsets:
    """The places of `counts[i]` entries from `firsts[i]` on, for every i."""
    return np.arange(offsets[-1], dtype=np.int64) + np.repeat(firsts - offsets[:-1], counts)


def _among(ids: Ids, wanted: Ids) -> npt.NDArray[np.bool_]:
    """Which ids are in a sorted set that is not empty."""
    found: npt.NDArray[np.bool_] = wanted[np.minimum(np.searchsorted(wanted, ids), len(wanted) - 1)] == ids
    return found


def _summed(ids: Ids, counts: Offsets | None) -> tuple[Ids, Offsets]:
    """Each id that counts, once and ascending, and how much it counts; None counts every entry as 1."""
    if len(ids) and int(ids.max()) < 16 * len(ids) + 4096:  # counting beats sorting
        table = np.bincount(ids, counts)  # sums of counts are whole numbers far below 2**53
        present = np.flatnonzero(table)
        return present.astype(np.uint32), table[present].astype(np.int64, copy=False)
    found, inverse = np.unique(ids, return_inverse=True)
    sums = np.bincount(inverse, counts, minlength=len(found)).astype(np.int64, copy=False)
    return found[sums > 0], sums[sums > 0]
