"""What every reduction filter is: a frozen value that says which rows of a queue stay.

Filters see the whole content of a queue at once (PACK section 3), oldest first. The paper's filters remember nothing
between two packs; here the ones that compare with earlier rows (DELTA, UNIQ, thin by time) get the state that the
receiver is in: what left the queue last. That state belongs to one queue.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, Floats, Seqs, row_bytes


@dataclass(frozen=True, slots=True)
class Moment:
    """What a filter may know beside the rows: the time, which pack this is, and each row's place, arrival and size.

    `weights` says how many rows each one stands for. `need_rows` and `need_bytes` are what has to go.
    """

    now: float
    round: int
    seqs: Seqs
    arrived: Floats
    weights: Floats
    sizes: Floats
    need_rows: float = 0.0
    need_bytes: float = 0.0

    @classmethod
    def of(cls, rows: pa.RecordBatch, now: float = 0.0, first: int = 1, round_: int = 0) -> Moment:
        """A moment for rows that did not come through a queue, numbered from `first`."""
        count = rows.num_rows
        seqs = np.arange(first, first + count, dtype=np.uint64)
        return cls(now, round_, seqs, np.full(count, now), np.ones(count), row_bytes(rows))


class ReductionFilter(ABC):
    """Decides which rows to keep, vectorised. `main` is the parameter that a bare value in a document stands for."""

    name: ClassVar[str]
    main: ClassVar[str | None] = None
    about: ClassVar[str] = ""
    rewrites: ClassVar[bool] = False
    directed: ClassVar[bool] = False
    newest_first: ClassVar[bool] = False
    """Whether it prefers new rows to old ones: where only some of the rows that it marks have to go, the oldest do."""

    @property
    def as_needed(self) -> bool:
        """Whether it drops as many rows as have to go (`Moment.need_rows`), and not a part that it fixes itself."""
        return False

    @classmethod
    @abstractmethod
    def read(cls, reader: Reader) -> ReductionFilter:
        """The filter that a mapping of a policy document describes."""

    def reads(self) -> frozenset[str]:
        """The columns that the filter looks at; a struct's field counts as its column."""
        found: set[str] = set()
        for name in ("attribute", "time", "x", "y"):
            found.update([getattr(self, name)] if getattr(self, name, None) else [])
        for name in ("key", "columns"):
            found.update(getattr(self, name, ()))
        return frozenset(path if "." not in path else path.split(".")[0] for path in found)

    @abstractmethod
    def keep(self, rows: pa.RecordBatch, state: Any, moment: Moment) -> tuple[Bools, Any]:
        """The rows to keep, given the state before the first of them, and the state after the last of them.

        The state goes on to the next batch where batches follow each other. A queue looks at its rows again in the next
        pack and goes on with what `delivered` gives: a filter with a memory has both.
        """

    def delivered(self, rows: pa.RecordBatch, state: Any) -> Any:
        """The state after these rows have left the queue for good. Filters without memory return what they got."""
        del rows
        return state

    def rewrite(self, rows: pa.RecordBatch, mask: Bools, moment: Moment) -> tuple[pa.RecordBatch, Floats]:
        """The rows with what kept ones take over from dropped ones, and how many rows each now stands for."""
        del mask
        return rows, moment.weights
