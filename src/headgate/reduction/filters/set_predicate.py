"""Conditions on a set-valued attribute (a list column): what CONTAIN, SUBSET and SUPSET share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.reduction.filters.in_set import value_set
from headgate.reduction.filters.predicate import Predicate
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Ints, column_type, mask_of


@dataclass(frozen=True, slots=True)
class SetPredicate(Predicate):
    """A comparison of the attribute's set with a given one."""

    values: pa.Array
    main: ClassVar[str | None] = "values"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """A list column and values of its elements' type."""
        attribute = reader.attribute("list")
        kind = column_type(reader.schema, attribute).value_type
        return cls(attribute, reader.raw("drop", True), value_set(reader, attribute, kind=kind))


def hits(values: pa.Array, members: pa.Array) -> Ints:
    """Per row, how many of its elements are members of the set."""
    rows = np.asarray(pc.list_parent_indices(values).to_numpy(zero_copy_only=False), dtype=np.int64)
    inside = mask_of(pc.is_in(pc.list_flatten(values), value_set=members))
    return np.bincount(rows[inside], minlength=len(values)).astype(np.int64)


def lengths(values: pa.Array) -> tuple[Ints, Ints]:
    """Per row, the number of elements and whether the set is known (not NULL), as 0 or 1."""
    count = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    known = pc.is_valid(values).to_numpy(zero_copy_only=False)
    return np.asarray(count, dtype=np.int64), np.asarray(known, dtype=np.int64)
