"""The GBD-tree: queries by the regions they ask for, with the load of every region kept up to date.

Corrected Algorithms 1 and 3 of the grid paper over compact arrays. A query is a set of parts, each a DZ expression
with a weight (how many finest cells of data it takes; less than its region when the index is coarser than the
query) and its owner's key. A site keeps three trees per stream: what comes in, what goes out to other sites, and what
its clients ask for (section 4.5.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headgate.grid import _treekernels as kernels
from headgate.grid.dzset import DzSet
from headgate.grid.space import DzSpace, Ints

# Room for nodes is made for so many parts at a time, since most parts share their node with others.
_CHUNK = 8192


@dataclass(frozen=True, slots=True)
class Served:
    """What a tree provides of each expression asked for, and what it does not, as flat parts with offsets."""

    have_offsets: Ints
    have_codes: Ints
    have_lengths: Ints
    miss_offsets: Ints
    miss_codes: Ints
    miss_lengths: Ints


@dataclass(frozen=True, slots=True)
class Candidates:
    """Overloaded regions, the one whose replica frees most first. Weight and size are in finest cells."""

    codes: Ints
    lengths: Ints
    weights: Ints
    counts: Ints
    freed: Ints

    def __len__(self) -> int:
        return len(self.codes)


class GbdTree:
    """Query parts by region.

    >>> space = DzSpace.round_robin({"x": 2, "y": 2})
    >>> tree = GbdTree(space)
    >>> slots = tree.insert(*DzSet.of(space, "00", "011").expressions())
    >>> served = tree.serve(*DzSet.of(space, "0").expressions())
    >>> [space.text(c, n) for c, n in zip(served.miss_codes, served.miss_lengths)]
    ['010']
    >>> tree.weight(*space.parse("0"))
    6
    """

    def __init__(self, space: DzSpace, room: int = 16) -> None:
        self.space = space
        self._nodes = np.full((16, kernels.NODE_WIDTH), -1, dtype=np.int64)
        self._queries = np.full((room, kernels.QUERY_WIDTH), -1, dtype=np.int64)
        self._state = np.array([1, -1, 0, -1, 1, 0], dtype=np.int64)
        self._nodes[0] = (0, 0, -1, -1, -1, -1, 0, 0, 0)

    def __len__(self) -> int:
        """Number of query parts."""
        return int(self._state[kernels.QUERIES])

    @property
    def nodes(self) -> int:
        """Number of tree nodes, the root included."""
        return int(self._state[kernels.NODES])

    @property
    def total(self) -> int:
        """Weight of all query parts."""
        return int(self._nodes[0, kernels.WEIGHT])

    @property
    def nbytes(self) -> int:
        """Bytes that the arrays take, unused room included."""
        return int(self._nodes.nbytes + self._queries.nbytes)

    def _reserve(self, parts: int) -> None:
        need = int(self._state[kernels.QUERY_TOP]) + parts
        if need > len(self._queries):
            grown = np.full((max(need, 2 * len(self._queries)), kernels.QUERY_WIDTH), -1, dtype=np.int64)
            grown[: len(self._queries)] = self._queries
            self._queries = grown
        need = int(self._state[kernels.NODE_TOP]) + 2 * parts
        if need > len(self._nodes):
            more = np.full((max(need, 2 * len(self._nodes)), kernels.NODE_WIDTH), -1, dtype=np.int64)
            more[: len(self._nodes)] = self._nodes
            self._nodes = more

    def insert(
        self,
        codes: npt.ArrayLike,
        lengths: npt.ArrayLike,
        weights: npt.ArrayLike | None = None,
        keys: npt.ArrayLike | None = None,
    ) -> Ints:
        """Store query parts and return their slots; a part without a weight takes its whole region."""
        flat, sizes = self._expressions(codes, lengths)
        taken = np.int64(1) << (self.space.digits - sizes) if weights is None else _ints(weights)
        owners = np.full(len(flat), -1, dtype=np.int64) if keys is None else _ints(keys)
        if not (len(taken) == len(owners) == len(flat)):
            raise ValueError("every part needs one weight and one key")
        if (taken < 0).any():
            raise ValueError("weights are at least 0")
        slots = np.empty(len(flat), dtype=np.int64)
        for start in range(0, len(flat), _CHUNK):
            part = slice(start, start + _CHUNK)
            self._reserve(len(flat[part]))
            arrays = (flat[part], sizes[part], taken[part], owners[part], slots[part])
            kernels.insert(self._nodes, self._queries, self._state, self.space.digits, *arrays)
        return slots

    def remove(self, slots: npt.ArrayLike) -> None:
        """Forget query parts; a slot that is not in use is refused after the others were removed."""
        flat = _ints(slots)
        if kernels.remove(self._nodes, self._queries, self._state, flat) != len(flat):
            raise KeyError("some of the slots hold no query part")

    def serve(self, codes: npt.ArrayLike, lengths: npt.ArrayLike) -> Served:
        """Split each expression into the parts inside stored regions and the parts outside (corrected Algorithm 1)."""
        flat, sizes = self._expressions(codes, lengths)
        have, miss = np.zeros(len(flat) + 1, dtype=np.int64), np.zeros(len(flat) + 1, dtype=np.int64)
        none = np.empty(0, dtype=np.int64)
        digits = self.space.digits
        kernels.serve(self._nodes, digits, flat, sizes, have, none, none, miss, none, none, False)
        (have_codes, have_lengths), (miss_codes, miss_lengths) = (
            (np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.int64)) for offsets in (have, miss)
        )
        found = Served(have, have_codes, have_lengths, miss, miss_codes, miss_lengths)
        kernels.serve(
            self._nodes,
            digits,
            flat,
            sizes,
            have,
            have_codes,
            have_lengths,
            miss,
            miss_codes,
            miss_lengths,
            True,
        )
        return found

    def weight(self, code: int, length: int) -> int:
        """Weight of all query parts inside a region; divided by its size this is the paper's load(r)."""
        at = kernels.topmost(self._nodes, self.space.digits, code, length)
        return int(self._nodes[at, kernels.WEIGHT]) if at >= 0 else 0

    def inside(self, code: int, length: int) -> Ints:
        """Slots of all query parts inside a region."""
        digits = self.space.digits
        count = kernels.slots_inside(self._nodes, self._queries, digits, code, length, np.empty(0, np.int64))
        slots = np.empty(count, dtype=np.int64)
        kernels.slots_inside(self._nodes, self._queries, digits, code, length, slots)
        return slots

    def above(self, code: int, length: int) -> Ints:
        """Slots of all query parts that contain a region and are larger than it."""
        digits = self.space.digits
        count = kernels.slots_above(self._nodes, self._queries, digits, code, length, np.empty(0, np.int64))
        slots = np.empty(count, dtype=np.int64)
        kernels.slots_above(self._nodes, self._queries, digits, code, length, slots)
        return slots

    def parts(self, slots: npt.ArrayLike) -> tuple[Ints, Ints, Ints, Ints]:
        """Codes, lengths, weights and keys of query parts."""
        rows = self._queries[_ints(slots)]
        nodes = self._nodes[rows[:, kernels.NODE]]
        return nodes[:, kernels.CODE], nodes[:, kernels.LENGTH], rows[:, kernels.SIZE], rows[:, kernels.KEY]

    def regions(self) -> DzSet:
        """The cells inside any stored region."""
        used = self._nodes[: self._state[kernels.NODE_TOP]]
        used = used[(used[:, kernels.OWN] > 0) & (used[:, kernels.LENGTH] >= 0)]
        return DzSet.from_expressions(self.space, used[:, kernels.CODE], used[:, kernels.LENGTH])

    def find(
        self, *, limit: int | None = None, within: DzSet | None = None, nested: bool = False, larger: bool = False
    ) -> Candidates:
        """Regions whose queries take more than the region itself, so that one copy elsewhere frees bandwidth.

        Corrected Algorithm 3: leaves count (many clients on one smallest region have to be replicated), and only
        load(r) > 1 qualifies. Regions are not cut finer than `limit` digits, lie inside `within` (what the site has),
        and with `nested` the overloaded regions inside overloaded ones are listed too. They are ranked by the
        bandwidth that a replica frees, weight less size, not by load(r), which ignores queries larger than r; with
        `larger` these count too, with the share of theirs that lies in r, as if they were cut there.
        """
        level = self.space.digits if limit is None else max(0, min(limit, self.space.digits))
        bounds = (DzSet.whole(self.space) if within is None else within).bounds
        out = np.empty((64, 4), dtype=np.int64)
        while (count := kernels.find(self._nodes, self.space.digits, level, bounds, nested, larger, out)) > len(out):
            out = np.empty((count, 4), dtype=np.int64)
        rows = out[:count]
        freed = rows[:, 2] - (np.int64(1) << (self.space.digits - rows[:, 1]))
        order = np.lexsort((rows[:, 1], rows[:, 0], -freed))
        rows = rows[order]
        return Candidates(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3], freed[order])

    def _expressions(self, codes: npt.ArrayLike, lengths: npt.ArrayLike) -> tuple[Ints, Ints]:
        flat, sizes = _ints(codes), _ints(lengths)
        if len(flat) != len(sizes):
            raise ValueError("every expression needs a code and a length")
        if len(flat) and (sizes.min() < 0 or sizes.max() > self.space.digits):
            raise ValueError(f"expressions have 0 to {self.space.digits} digits")
        if (flat & ((np.int64(1) << (self.space.digits - sizes)) - 1)).any() or (flat >> self.space.digits).any():
            raise ValueError("a code has digits past its length")
        return flat, sizes


def _ints(values: npt.ArrayLike) -> Ints:
    return np.ascontiguousarray(np.atleast_1d(np.asarray(values, dtype=np.int64)))
