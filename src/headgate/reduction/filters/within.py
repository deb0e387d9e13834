"""WITHIN: a condition that the attribute lies in a closed range. Figure 2 of the paper drops a normal pulse with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import pyarrow as pa

from headgate.reduction.errors import PolicyError
from headgate.reduction.filters.predicate import Predicate, compare
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools


@dataclass(frozen=True, slots=True)
class Within(Predicate):
    """low <= attribute <= high."""

    low: pa.Scalar
    high: pa.Scalar
    name: ClassVar[str] = "within"
    main: ClassVar[str | None] = "range"
    about: ClassVar[str] = "low <= attribute <= high"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Attribute, and either low and high or a range of two values."""
        attribute = reader.attribute("scalar")
        if reader.has("range"):
            ends = reader.items("range")
            if len(ends) != 2:
                raise PolicyError(
                    f"a range has two ends, not {len(ends)}", where=reader.at("range"), hint="[low, high]"
                )
            low, high = (reader.scalar_of(end, "range", attribute) for end in ends)
        else:
            low, high = reader.scalar("low", attribute), reader.scalar("high", attribute)
        if low.as_py() > high.as_py():
            raise PolicyError(f"the range from {low} to {high} is empty", where=reader.where, hint="swap low and high")
        return cls(attribute, reader.raw("drop", True), low, high)

    def true(self, values: pa.Array) -> Bools:
        """Where the attribute is inside the range."""
        return compare(values, "greater_equal", self.low) & compare(values, "less_equal", self.high)
