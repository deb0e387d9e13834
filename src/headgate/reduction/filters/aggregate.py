"""AGGREGATE: one row per key and window of event time, carrying the mean, minimum or maximum of the window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from headgate.reduction.errors import PolicyError
from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.filters.thin_time import event_time
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, Floats, Ints, codes, column, numbers, place_in_group

_HOW = ("mean", "min", "max")


@dataclass(frozen=True, slots=True)
class Aggregate(ReductionFilter):
    """The last row of each window stays and takes over the window's aggregate; the others are reduced and digested.

    A row that already stands for several (an earlier pack) counts as that many in a mean. Values of an integer column
    are rounded. It rewrites rows, so it works where one receiver owns them (its own queue, its client, a data frame);
    on a shared link it is passed over.
    """

    columns: tuple[str, ...]
    how: str
    time: str
    window_s: float
    key: tuple[str, ...]
    name: ClassVar[str] = "aggregate"
    about: ClassVar[str] = "replace each window of event time by one row with its mean, min or max"
    rewrites: ClassVar[bool] = True

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Columns `of`, `how`, event time, window and key."""
        value = reader.raw("of", reader.default_attribute, required="the columns to aggregate")
        names = (value,) if isinstance(value, str) else tuple(value)
        columns = tuple(reader.checked_column(name, "of", "number") for name in names)
        for name in columns:
            if name not in reader.schema.names:
                raise PolicyError(f"{name!r} is inside a struct", where=reader.at("of"), hint="aggregate whole columns")
        reader.has("attribute")
        window = reader.duration("window")
        if window <= 0:
            raise PolicyError("a window of no time holds nothing", where=reader.at("window"), hint="for example `10 s`")
        return cls(columns, reader.choice("how", _HOW, "mean"), event_time(reader, "time"), window, reader.key())

    def _windows(self, rows: pa.RecordBatch) -> tuple[Ints, int]:
        bins = np.floor(numbers(column(rows, self.time)) / self.window_s)
        lone = ~np.isfinite(bins)
        bins[lone] = -(2.0**62) + np.flatnonzero(lone) * 1024.0
        return codes([*(column(rows, name) for name in self.key), pa.array(bins)], rows.num_rows)

    def keep(self, rows: pa.RecordBatch, state: Any, moment: Moment) -> tuple[Bools, Any]:
        """Keep the last row of each window; rows without event time stay alone."""
        del moment
        found, groups = self._windows(rows)
        mask: Bools = (place_in_group(found[::-1], groups) == 0)[::-1]
        return mask, state

    def rewrite(self, rows: pa.RecordBatch, mask: Bools, moment: Moment) -> tuple[pa.RecordBatch, Floats]:
        """Put each window's aggregate into its last row."""
        found, groups = self._windows(rows)
        weights = np.where(mask, np.bincount(found, moment.weights, groups)[found], moment.weights)
        for name in self.columns:
            index = rows.schema.get_field_index(name)
            values = numbers(rows.column(index))
            known = ~np.isnan(values)
            if self.how == "mean":
                heavy = np.bincount(found[known], moment.weights[known], groups)
                with np.errstate(invalid="ignore", divide="ignore"):
                    result = np.bincount(found[known], (values * moment.weights)[known], groups) / heavy
            else:
                result = np.full(groups, np.nan)
                (np.fmin if self.how == "min" else np.fmax).at(result, found[known], values[known])
            new = np.where(mask, result[found], values)
            kind = rows.schema.field(index).type
            if pa.types.is_integer(kind):
                new = np.rint(new)
            typed = pa.array(new, mask=np.isnan(new)).cast(kind, safe=False)
            rows = rows.set_column(index, rows.schema.field(index), typed)
        return rows, weights
