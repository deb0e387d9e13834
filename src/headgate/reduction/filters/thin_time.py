"""THIN-TIME: one row per key and bin of event time (the first), so that a finer series becomes a coarser one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from headgate.reduction.errors import PolicyError
from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.filters.keyed import LastPerKey, group, remember
from headgate.reduction.reader import Reader, is_time
from headgate.reduction.rows import Bools, codes, column, column_type, numbers, place_in_group


def event_time(reader: Reader, name: str = "attribute") -> str:
    """The column of event time: the one named, else the only timestamp of the stream."""
    if reader.has(name):
        return reader.column(name, kind="time")
    if reader.default_attribute and is_time(column_type(reader.schema, reader.default_attribute)):
        return reader.default_attribute
    times = [found.name for found in reader.schema.columns if pa.types.is_timestamp(found.type)]
    if not times:
        raise PolicyError(
            f"there is no column of event time among {', '.join(reader.schema.names)}",
            where=reader.where,
            hint="a policy works on the columns that the subscription selects: select a timestamp too",
        )
    if len(times) > 1:
        raise PolicyError(
            "it is not clear which column is the event time",
            where=reader.where,
            hint=f"give `{name}`: " + " or ".join(times),
        )
    return times[0]


@dataclass(frozen=True, slots=True)
class ThinTime(ReductionFilter):
    """Keeps the first row of each bin of `step_s` seconds of event time; arrival plays no part."""

    attribute: str
    step_s: float
    key: tuple[str, ...]
    name: ClassVar[str] = "thin_time"
    main: ClassVar[str | None] = "step"
    about: ClassVar[str] = "keep the first row of each bin of event time"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Event time, step and key."""
        step = reader.duration("step")
        if step <= 0:
            raise PolicyError(
                "a step of no time thins nothing", where=reader.at("step"), hint="write for example `10 s`"
            )
        return cls(event_time(reader), step, reader.key())

    def _bins(self, rows: pa.RecordBatch) -> pa.Array:
        bins = np.floor(numbers(column(rows, self.attribute)) / self.step_s)
        known = np.isfinite(bins)
        return pa.array(np.where(known, bins, 0).astype(np.int64), mask=~known)

    def keep(self, rows: pa.RecordBatch, state: LastPerKey | None, moment: Moment) -> tuple[Bools, LastPerKey]:
        """Keep the first row of each key and bin; rows without event time stay."""
        del moment
        bins = self._bins(rows)
        grouped = group(rows, self.key, bins, state)
        pairs, groups = codes([pa.array(grouped.codes), grouped.values], len(grouped.values))
        fresh = (place_in_group(pairs, groups) == 0)[grouped.remembered :]
        fresh |= ~np.asarray(bins.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
        return fresh, remember(rows, self.key, bins, state)

    def delivered(self, rows: pa.RecordBatch, state: Any) -> LastPerKey:
        """The last bin of each key that the receiver has."""
        return remember(rows, self.key, self._bins(rows), state)
