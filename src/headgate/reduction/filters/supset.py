"""SUPSET: a condition that a set-valued attribute has every element of a given set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from headgate.reduction.filters.set_predicate import SetPredicate, hits
from headgate.reduction.rows import Bools


@dataclass(frozen=True, slots=True)
class Supset(SetPredicate):
    """The attribute's set holds all the given values."""

    name: ClassVar[str] = "supset"
    about: ClassVar[str] = "the attribute's set is a superset of the values"

    def true(self, values: pa.Array) -> Bools:
        """Where no given value is missing."""
        found = np.ones(len(values), dtype=np.bool_)
        for index in range(len(self.values)):
            found &= hits(values, self.values.slice(index, 1)) > 0
        return found
