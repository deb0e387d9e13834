"""Rows that wait: an Arrow batch with each row's sequence number, arrival, size and weight beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.reduction.rows import Bools, Floats, Ints, Seqs, empty_rows, replaced, row_bytes


@dataclass(frozen=True, slots=True)
class Held:
    """Rows in order of sequence. `weights` says how many rows each one stands for (more than one after AGGREGATE)."""

    seqs: Seqs
    rows: pa.RecordBatch
    arrived: Floats
    sizes: Floats
    weights: Floats

    def __len__(self) -> int:
        return len(self.seqs)

    @classmethod
    def of(cls, seqs: Seqs, rows: pa.RecordBatch, now: float) -> Held:
        """Rows that arrive now."""
        count = rows.num_rows
        return cls(np.asarray(seqs, dtype=np.uint64), rows, np.full(count, now), row_bytes(rows), np.ones(count))

    @classmethod
    def empty(cls, schema: pa.Schema) -> Held:
        """No rows."""
        none = np.zeros(0)
        return cls(np.zeros(0, dtype=np.uint64), empty_rows(schema), none, none, none)

    @property
    def bytes(self) -> float:
        """The bytes of all rows."""
        return float(self.sizes.sum())

    def cut(self, start: int, stop: int) -> Held:
        """Rows from start to stop, without copying."""
        part: Any = slice(start, stop)
        return Held(
            self.seqs[part],
            self.rows.slice(start, stop - start),
            self.arrived[part],
            self.sizes[part],
            self.weights[part],
        )

    def pick(self, mask: Bools) -> Held:
        """The rows of a mask."""
        return Held(
            self.seqs[mask], self.rows.filter(pa.array(mask)), self.arrived[mask], self.sizes[mask], self.weights[mask]
        )

    def replaced(self, places: Ints, values: pa.RecordBatch, weights: Floats) -> Held:
        """The same rows with other values, and weights, at some places."""
        heavy = self.weights.copy()
        heavy[places] = weights
        return Held(
            self.seqs,
            self.rows if not len(places) else replaced(self.rows, places, values),
            self.arrived,
            self.sizes,
            heavy,
        )

    def select(self, columns: frozenset[str]) -> Held:
        """The same rows with some of the columns."""
        rows = self.rows.select([name for name in self.rows.schema.names if name in columns])
        return Held(self.seqs, rows, self.arrived, self.sizes, self.weights)

    def take(self, index: Ints) -> Held:
        """The rows at some positions."""
        if len(index) == len(self.seqs) and (not len(index) or np.array_equal(index, np.arange(len(index)))):
            return self
        return Held(
            self.seqs[index],
            self.rows.take(pa.array(index)),
            self.arrived[index],
            self.sizes[index],
            self.weights[index],
        )


def joined(parts: list[Held]) -> Held:
    """Rows one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Held(
        np.concatenate([part.seqs for part in parts]),
        pa.concat_batches([part.rows for part in parts]),
        np.concatenate([part.arrived for part in parts]),
        np.concatenate([part.sizes for part in parts]),
        np.concatenate([part.weights for part in parts]),
    )
