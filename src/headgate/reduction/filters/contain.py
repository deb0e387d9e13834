"""CONTAIN: a condition that a set-valued attribute has a value among its elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import pyarrow as pa

from headgate.reduction.filters.predicate import Predicate
from headgate.reduction.filters.set_predicate import hits
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, column_type


@dataclass(frozen=True, slots=True)
class Contain(Predicate):
    """The attribute's set contains the value."""

    value: pa.Scalar
    name: ClassVar[str] = "contain"
    main: ClassVar[str | None] = "value"
    about: ClassVar[str] = "the attribute's set contains the value"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """A list column and a value of its elements' type."""
        attribute = reader.attribute("list")
        kind = column_type(reader.schema, attribute).value_type
        value = reader.raw("value", required="a value to look for")
        return cls(attribute, reader.raw("drop", True), reader.scalar_of(value, "value", attribute, kind))

    def true(self, values: pa.Array) -> Bools:
        """Where the value is an element."""
        found: Bools = hits(values, pa.array([self.value.as_py()], values.type.value_type)) > 0
        return found
