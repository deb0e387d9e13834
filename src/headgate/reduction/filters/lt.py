"""LT: a condition that the attribute is less than a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from headgate.reduction.filters.predicate import Comparison, compare
from headgate.reduction.rows import Bools


@dataclass(frozen=True, slots=True)
class Less(Comparison):
    """attribute < value."""

    name: ClassVar[str] = "lt"
    about: ClassVar[str] = "attribute < value"

    def true(self, values: pa.Array) -> Bools:
        """Where the attribute is less than the value."""
        return compare(values, "less", self.value)
