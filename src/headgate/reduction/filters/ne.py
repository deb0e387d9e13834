"""NE: a condition that the attribute is different from a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from headgate.reduction.filters.predicate import Comparison, compare
from headgate.reduction.rows import Bools


@dataclass(frozen=True, slots=True)
class NotEqual(Comparison):
    """attribute <> value."""

    name: ClassVar[str] = "ne"
    about: ClassVar[str] = "attribute <> value"

    def true(self, values: pa.Array) -> Bools:
        """Where the attribute is different from the value."""
        return compare(values, "not_equal", self.value)
