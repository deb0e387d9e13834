"""Filters that are a condition on one attribute, with its direction said: drop what is true, or keep only that.

The paper gives a direction for WITHIN alone (drop what is inside); in its XML form every condition drops, in ours the
policy says `drop:` or `keep:`. A condition on NULL is not true, as in SQL. NaN is the largest number and equals itself,
as in Spark.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.compute as pc

from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, column, mask_of


@dataclass(frozen=True, slots=True)
class Predicate(ReductionFilter):
    """A condition on an attribute; `drop` says whether rows for which it is true go or are the only ones that stay."""

    attribute: str
    drop: bool
    directed: ClassVar[bool] = True

    @abstractmethod
    def true(self, values: pa.Array) -> Bools:
        """Where the condition is true."""

    def keep(self, rows: pa.RecordBatch, state: Any, moment: Moment) -> tuple[Bools, Any]:
        """Keep what is not dropped."""
        del moment
        found = self.true(column(rows, self.attribute))
        return (~found if self.drop else found), state


@dataclass(frozen=True, slots=True)
class Comparison(Predicate):
    """A comparison of the attribute with a constant."""

    value: pa.Scalar
    main: ClassVar[str | None] = "value"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Attribute and value."""
        attribute = reader.attribute("scalar")
        return cls(attribute, reader.raw("drop", True), reader.scalar("value", attribute))


def compare(values: pa.Array, operator: str, value: pa.Scalar) -> Bools:
    """Where `values operator value` is true, with NaN the largest number and equal to itself.

    >>> compare(pa.array([1.0, float("nan"), None]), "greater", pa.scalar(1)).tolist()
    [False, True, False]
    """
    found = mask_of(getattr(pc, operator)(values, value))
    if not pa.types.is_floating(values.type):
        return found
    nan = mask_of(pc.is_nan(values))
    if value.as_py() != value.as_py():
        return {
            "equal": nan,
            "not_equal": ~nan & mask_of(pc.is_valid(values)),
            "greater": nan & False,
            "greater_equal": nan,
            "less": ~nan & mask_of(pc.is_valid(values)),
            "less_equal": mask_of(pc.is_valid(values)),
        }[operator]
    return (found & ~nan) | nan if operator in ("greater", "greater_equal", "not_equal") else found & ~nan
