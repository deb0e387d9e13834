"""EXTREMES: the smallest and the largest value per key and bin of event time: a thinner series keeps its peaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from headgate.reduction.errors import PolicyError
from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.filters.thin_time import event_time
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, codes, column, numbers


@dataclass(frozen=True, slots=True)
class Extremes(ReductionFilter):
    """Keeps, of each bin of `step_s` seconds of event time, the rows of the smallest and the largest value.

    Of equal values the first stays. It remembers nothing: a bin that is packed twice keeps the extremes of both parts,
    so that no peak is ever lost.
    """

    attribute: str
    step_s: float
    time: str
    key: tuple[str, ...]
    name: ClassVar[str] = "extremes"
    main: ClassVar[str | None] = "step"
    about: ClassVar[str] = "keep the smallest and the largest value of each bin of event time"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """A number column, the step, the column of event time and a key."""
        step = reader.duration("step")
        if step <= 0:
            raise PolicyError("a step of no time has no rows", where=reader.at("step"), hint="write for example `10 s`")
        return cls(reader.attribute("number"), step, event_time(reader, "time"), reader.key())

    def keep(self, rows: pa.RecordBatch, state: Any, moment: Moment) -> tuple[Bools, Any]:
        """Keep two rows at most of each key and bin; rows without a value or without event time stay."""
        del moment
        values = numbers(column(rows, self.attribute))
        bins = np.floor(numbers(column(rows, self.time)) / self.step_s)
        found, groups = codes([*(column(rows, name) for name in self.key), pa.array(bins)], len(values))
        mask: Bools = np.isnan(values) | np.isnan(bins)
        known = np.flatnonzero(~mask)
        for better, worst in ((np.minimum, np.inf), (np.maximum, -np.inf)):
            best = np.full(groups, worst)
            better.at(best, found[known], values[known])
            hits = known[values[known] == best[found[known]]][::-1]
            first = np.full(groups, -1)
            first[found[hits]] = hits  # the last of equal indices stays, which is the first row
            mask[first[first >= 0]] = True
        return mask, state
