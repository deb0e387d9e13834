"""The distribution of one attribute over all rows of a stream, in constant memory and without randomness.

Edges are quantiles of the first values; every later value is counted in its bin. Where a stream drifts (time always
does), a bin that holds too much is split at quantiles of what is arriving; the rows counted before are spread over the
parts, and the range over which they were spread is remembered. So the error of every answer is known: the rows of the
bins that a cut goes through, and the rows that were spread over a range around it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.filters.algebra import intervals
from headgate.filters.algebra.domain import Domain
from headgate.filters.algebra.keys import order_keys
from headgate.filters.types import is_decimal
from headgate.filters.vector import NARROW_DIGITS, Vector

_FIRST = 4_096  # values that are kept as they are before edges are chosen
_BINS = 256
_MOST_BINS = 1_024
_CROWDED = 8.0  # times the mean count from which a bin is split
_PARTS = 16

Keys = npt.NDArray[np.int64]


class ValueHistogram:
    """Counts of one attribute's values; `mass` and `error` answer for any domain.

    >>> ages = ValueHistogram(pa.int32())
    >>> ages.update(Vector(pa.int32(), np.arange(100, dtype=np.int32)))
    >>> decade = Domain.of(pa.int32(), (20, 30))
    >>> ages.mass(decade), ages.error(decade)
    (0.1, 0.0)
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.rows = self.nulls = 0
        self._coarse = 10 ** max(0, kind.precision - NARROW_DIGITS) if is_decimal(kind) else 1
        self._first: Keys = np.zeros(0, np.int64)
        self._edges: Keys | None = None
        self._counts = np.zeros(0)
        self._spread: list[tuple[int, int, float]] = []

    def update(self, vector: Vector) -> None:
        """Count the values of a vector."""
        self.rows += len(vector.values)
        keys = order_keys(vector)
        if vector.null is not None:
            keys = keys[~vector.null]
            self.nulls += int(vector.null.sum())
        if keys.dtype.hasobject:
            keys = (keys // self._coarse).astype(np.int64)
        if self._edges is None:
            self._first = np.sort(np.concatenate([self._first, keys]))
            if len(self._first) > _FIRST:
                self._choose_edges()
        elif keys.size:
            self._count(keys)

    def _choose_edges(self) -> None:
        places = np.linspace(0, len(self._first) - 1, _BINS + 1).astype(np.int64)
        self._edges = np.unique(self._first[places])
        self._counts = np.bincount(
            np.searchsorted(self._edges, self._first, "right"), minlength=len(self._edges) + 1
        ).astype(np.float64)
        self._first = self._first[:0]

    def _count(self, keys: Keys) -> None:
        assert self._edges is not None
        bins = np.searchsorted(self._edges, keys, "right")
        fresh = np.bincount(bins, minlength=len(self._counts)).astype(np.float64)
        crowded = np.flatnonzero(
            (self._counts + fresh > _CROWDED * (self._counts.sum() + len(keys)) / len(self._counts)) & (fresh > _PARTS)
        )
        old = self._counts
        self._counts = old + fresh
        for index in crowded[::-1]:
            self._split(int(index), np.sort(keys[bins == index]), float(old[index]))
        if len(self._edges) > _MOST_BINS:
            self._thin()

    def _split(self, index: int, keys: Keys, before: float) -> None:
        """Split a bin at quantiles of the keys that just arrived in it."""
        assert self._edges is not None
        inner = np.unique(keys[np.linspace(0, len(keys) - 1, _PARTS + 1).astype(np.int64)])
        low = int(self._edges[index - 1]) if index > 0 else None
        inner = inner[inner > low] if low is not None else inner
        if inner.size < 2:
            return
        high = int(self._edges[index]) if index < len(self._edges) else int(inner[-1]) + 1
        counts = np.bincount(np.searchsorted(inner, keys, "right"), minlength=len(inner) + 1).astype(np.float64)
        if before:
            self._spread.append((int(inner[0]) - 1 if low is None else low, high, before))
        counts += before * counts / counts.sum()
        self._edges = np.concatenate([self._edges[:index], inner, self._edges[index:]])
        self._counts = np.concatenate([self._counts[:index], counts, self._counts[index + 1 :]])

    def _thin(self) -> None:
        """Keep the edges nearest to equal shares."""
        assert self._edges is not None
        below = np.cumsum(self._counts[:-1])
        kept = np.unique(np.searchsorted(below, np.linspace(0, below[-1], _BINS + 1)).clip(0, len(below) - 1))
        ends = np.concatenate([below[kept], [self._counts.sum()]])
        self._edges, self._counts = self._edges[kept], np.diff(np.concatenate([[0.0], ends]))

    def mass(self, domain: Domain) -> float:
        """The fraction of the rows whose value lies in the domain."""
        if self.rows == 0:
            return 1.0
        found = float(self.nulls if domain.null else 0)
        for low, high in intervals.ranges(domain.cuts):
            found += self._below(high)[0] - self._below(low)[0]
        return min(1.0, max(0.0, found / self.rows))

    def error(self, domain: Domain) -> float:
        """The bound on the error of the mass, as a fraction of the rows."""
        return min(1.0, sum(self._below(cut)[1] for cut in domain.cuts) / self.rows) if self.rows else 1.0

    def _below(self, cut: Any) -> tuple[float, float]:
        """How many values lie before a cut, and by how many that may be wrong."""
        if cut is None:
            return float(self.rows - self.nulls), 0.0
        key = int(cut) // self._coarse
        if self._edges is None:
            return float(np.searchsorted(self._first, key, "left")), 0.0
        index = int(np.searchsorted(self._edges, key, "right"))
        before = float(self._counts[:index].sum())
        spread = sum(count for low, high, count in self._spread if low < key < high)
        if index > 0 and self._edges[index - 1] == key and self._coarse == 1:
            return before, spread
        inside = float(self._counts[index])
        share = 0.5
        if 0 < index < len(self._edges):
            low, high = int(self._edges[index - 1]), int(self._edges[index])
            share = (key - low) / (high - low)
        return before + share * inside, inside + spread
