"""A uniform sample of all rows that a stream ever had, in constant memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


class Reservoir:
    """Vitter's algorithm R over whole batches: row number g replaces a random slot with probability capacity / g.

    Randomness comes from the generator that is given, so a seeded run keeps the same rows.

    >>> sample = Reservoir(2, np.random.default_rng(1))
    >>> sample.update(pa.record_batch({"n": [1, 2, 3]}))
    >>> sample.seen, sample.rows.num_rows
    (3, 2)
    """

    def __init__(self, capacity: int, rng: np.random.Generator) -> None:
        if capacity < 1:
            raise ValueError("a reservoir holds at least one row")
        self.capacity = capacity
        self.seen = 0
        self._rng = rng
        self._rows: pa.RecordBatch | None = None

    @property
    def rows(self) -> pa.RecordBatch:
        """The sampled rows, in no particular order."""
        return pa.RecordBatch.from_arrays([], names=[]) if self._rows is None else self._rows

    @property
    def is_whole(self) -> bool:
        """Whether the sample is every row seen so far."""
        return self.seen <= self.capacity

    def update(self, batch: pa.RecordBatch) -> None:
        """Offer the rows of a batch."""
        rows = batch.num_rows
        if rows == 0:
            return
        numbers = self.seen + np.arange(rows)
        slots = np.where(numbers < self.capacity, numbers, (self._rng.random(rows) * (numbers + 1)).astype(np.int64))
        self.seen += rows
        taken = np.flatnonzero(slots < self.capacity)
        if taken.size == 0:
            return
        # The last row that drew a slot keeps it.
        _, first = np.unique(slots[taken][::-1], return_index=True)
        taken = taken[::-1][first]
        held = 0 if self._rows is None else self._rows.num_rows
        order = np.arange(max(held, int(slots[taken].max()) + 1))
        order[slots[taken]] = held + np.arange(taken.size)
        fresh = batch.take(pa.array(taken))
        parts = [fresh] if self._rows is None else [self._rows, fresh]
        joined = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        self._rows = joined.take(pa.array(order))
