"""MAX-AGE: drops rows that are older than a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, column, numbers


@dataclass(frozen=True, slots=True)
class MaxAge(ReductionFilter):
    """Drops rows older than `age_s`, measured from the event time in `attribute`, or from arrival without one."""

    attribute: str | None
    age_s: float
    name: ClassVar[str] = "max_age"
    main: ClassVar[str | None] = "age"
    about: ClassVar[str] = "drop rows older than `age`, by event time or else by arrival in the queue"
    newest_first: ClassVar[bool] = True

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Age, and the column that holds the event time."""
        attribute = reader.column("attribute", kind="time") if reader.has("attribute") else None
        return cls(attribute, reader.duration("age"))

    def keep(self, rows: pa.RecordBatch, state: Any, moment: Moment) -> tuple[Bools, Any]:
        """Keep what is young enough; a row without event time counts from its arrival."""
        since = moment.arrived
        if self.attribute is not None:
            times = numbers(column(rows, self.attribute))
            since = np.where(np.isnan(times), since, times)
        mask: Bools = moment.now - since <= self.age_s
        return mask, state
