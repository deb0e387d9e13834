"""SUBSET: a condition that every element of a set-valued attribute is in a given set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from headgate.reduction.filters.set_predicate import SetPredicate, hits, lengths
from headgate.reduction.rows import Bools


@dataclass(frozen=True, slots=True)
class Subset(SetPredicate):
    """The attribute's set is inside the given one, or equal to it; the empty set is inside every set."""

    name: ClassVar[str] = "subset"
    about: ClassVar[str] = "the attribute's set is a subset of the values"

    def true(self, values: pa.Array) -> Bools:
        """Where all elements are members."""
        count, known = lengths(values)
        inside: Bools = (hits(values, self.values) == count) & (known == 1)
        return inside
