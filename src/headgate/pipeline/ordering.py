"""In which order a micro-batch's rows and the context updates that came with it are done (section 4.3).

Rows and updates share one order. Where a stream's admission names a column with the time of arrival (`arrived`), a row
stands after the updates that are not later than it; otherwise it stands after all updates that its batch is pinned to.
Whatever the order of execution, rows keep their places, so that output order is that of the sequence numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headgate.matching import ClassLists, ContextState, MatchingError
from headgate.matching.admission import ORDERS
from headgate.model import Admission

# Methods that may do a batch in another order than the one that rows and updates came in.
_BATCHED: Final = ("batch", "hybrid")


def micros(rows: pa.RecordBatch, column: str) -> pa.Array:
    """A column of times as microseconds since the epoch."""
    return rows.column(column).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())


@dataclass(frozen=True, slots=True)
class Ordering:
    """The updates in (before, upto] and the rows of a batch, in one of the three orders of execution."""

    order: str
    arrived: str | None
    before: int
    upto: int

    @classmethod
    def of(cls, admission: Admission, before: int, upto: int) -> Ordering:
        """The order of a stream's admission entry: as they came, unless the method batches and says otherwise."""
        order = str(admission.options.get("order", "updates first")) if admission.method in _BATCHED else "arrival"
        if order not in ORDERS:
            raise MatchingError(f"no order of execution {order!r}", hint="orders are " + ", ".join(ORDERS))
        arrived = admission.options.get("arrived")
        return cls(order, None if arrived is None else str(arrived), before, upto)

    def match(self, state: ContextState, rows: pa.RecordBatch) -> ClassLists:
        """The classes of each row, in this order of execution."""
        if self.order == "updates first":
            return state.match(rows, self.upto)
        if self.order == "messages first":
            return state.match(rows, max(self.before, state.base))
        return self.exact(state, rows)

    def exact(self, state: ContextState, rows: pa.RecordBatch) -> ClassLists:
        """The classes of each row when everything is done as it came: what traditional execution gives."""
        before = max(self.before, state.base)
        if self.arrived is None or before >= self.upto or not rows.num_rows:
            return state.match(rows, self.upto)
        times = micros(rows, self.arrived)
        known = times.fill_null(np.iinfo(np.int64).max).to_numpy(zero_copy_only=False)
        return state.match_each(rows, state.arrivals(known // 1000, before, self.upto))

    def reorders(self, state: ContextState, rows: pa.RecordBatch) -> bool:
        """Whether rows may get other classes than in the order in which everything came."""
        if rows.num_rows == 0 or max(self.before, state.base) >= self.upto:
            return False
        return self.order == "messages first" or (self.order == "updates first" and self.arrived is not None)
