"""PRIORITY: keeps the most important part of the queue, by an ordered list of conditions or by a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.filters.where import condition
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, Floats, column, numbers

if TYPE_CHECKING:
    from headgate.filters import Filter


@dataclass(frozen=True, slots=True)
class Priority(ReductionFilter):
    """Keeps a fraction of the rows: important ones before others, newer ones before older ones of equal importance."""

    order: tuple[Filter, ...]
    attribute: str | None
    fraction: float
    name: ClassVar[str] = "priority"
    main: ClassVar[str | None] = "order"
    about: ClassVar[str] = "keep the most important part of the queue"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """`order`, conditions from most to least important, or `attribute`, a number where more is more important."""
        fraction = reader.number("keep", 0.5, low=0.0, high=1.0, above=True)
        if reader.has("order"):
            reader.has("attribute")
            text = reader.raw("order")
            texts = [text] if isinstance(text, str) else reader.items("order")
            return cls(tuple(condition(reader, item, "order") for item in texts), None, fraction)
        return cls((), reader.attribute("number"), fraction)

    def reads(self) -> frozenset[str]:
        """The number, or the columns of the conditions."""
        if self.attribute is not None:
            return frozenset((self.attribute.split(".")[0],))
        return frozenset().union(*(found.columns for found in self.order))

    def _importance(self, rows: pa.RecordBatch) -> Floats:
        if self.attribute is not None:
            return np.nan_to_num(numbers(column(rows, self.attribute)), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
        importance = np.zeros(rows.num_rows)
        for rank, found in enumerate(reversed(self.order), start=1):
            importance[found.evaluate(rows)] = rank
        return importance

    def keep(self, rows: pa.RecordBatch, state: Any, moment: Moment) -> tuple[Bools, Any]:
        """Keep the best of the queue."""
        del moment
        count = rows.num_rows
        order = np.lexsort((np.arange(count), self._importance(rows)))
        mask = np.zeros(count, dtype=np.bool_)
        mask[order[count - int(np.ceil(self.fraction * count)) :]] = True
        return mask, state
