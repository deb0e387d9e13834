"""EQ: a condition that the attribute is equal to a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from headgate.reduction.filters.predicate import Comparison, compare
from headgate.reduction.rows import Bools


@dataclass(frozen=True, slots=True)
class Equal(Comparison):
    """attribute = value."""

    name: ClassVar[str] = "eq"
    about: ClassVar[str] = "attribute = value"

    def true(self, values: pa.Array) -> Bools:
        """Where the attribute is equal to the value."""
        return compare(values, "equal", self.value)
