"""GE: a condition that the attribute is at least a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from headgate.reduction.filters.predicate import Comparison, compare
from headgate.reduction.rows import Bools


@dataclass(frozen=True, slots=True)
class GreaterEqual(Comparison):
    """attribute >= value."""

    name: ClassVar[str] = "ge"
    about: ClassVar[str] = "attribute >= value"

    def true(self, values: pa.Array) -> Bools:
        """Where the attribute is at least the value."""
        return compare(values, "greater_equal", self.value)
