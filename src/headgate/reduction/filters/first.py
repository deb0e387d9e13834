"""FIRST: of the rows whose attribute is in a set, only the first stays.

The paper says that it retains only the first value in a set, among filters that keep or drop whole events: so rows
outside of the set pass, and the queue keeps one row (per key) of those inside. Without a set all rows are inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.filters.in_set import value_set
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, Ints, codes, column, mask_of


@dataclass(frozen=True, slots=True)
class First(ReductionFilter):
    """One row of a set per key: the first."""

    attribute: str | None
    values: pa.Array | None
    key: tuple[str, ...]
    name: ClassVar[str] = "first"
    main: ClassVar[str | None] = "values"
    about: ClassVar[str] = "of the rows whose attribute is in the set, keep the first"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """A set of values of an attribute, both optional, and a key."""
        if not reader.has("values"):
            reader.has("attribute")
            return cls(None, None, reader.key())
        attribute = reader.attribute("scalar")
        return cls(attribute, value_set(reader, attribute), reader.key())

    def keep(self, rows: pa.RecordBatch, state: Any, moment: Moment) -> tuple[Bools, Any]:
        """Keep what is outside of the set and one row per key inside."""
        del moment
        inside = np.ones(rows.num_rows, dtype=np.bool_)
        if self.attribute is not None and self.values is not None:
            values = column(rows, self.attribute)
            inside = mask_of(pc.is_in(values, value_set=self.values.cast(values.type)))
        found, groups = codes([column(rows, name) for name in self.key], rows.num_rows)
        indices = np.flatnonzero(inside)
        mask = ~inside
        mask[self.chosen(found[indices], groups, indices)] = True
        return mask, state

    def chosen(self, groups_of: Ints, groups: int, indices: Ints) -> Ints:
        """The first index of each group."""
        first = np.full(groups, -1, dtype=np.int64)
        first[groups_of[::-1]] = indices[::-1]  # the last of equal indices stays
        return first[first >= 0]
