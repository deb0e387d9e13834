"""IN-SET: a condition that the attribute is one of some values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import pyarrow as pa
import pyarrow.compute as pc

from headgate.reduction.filters.predicate import Predicate
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, column_type, mask_of


def value_set(reader: Reader, attribute: str, name: str = "values", kind: pa.DataType | None = None) -> pa.Array:
    """The values of a set as an Arrow array of the column's type (or of `kind`)."""
    kind = kind if kind is not None else column_type(reader.schema, attribute)
    scalars = [reader.scalar_of(value, name, attribute, kind) for value in reader.items(name)]
    return pa.array([scalar.as_py() for scalar in scalars], pa.float64() if pa.types.is_decimal(kind) else kind)


@dataclass(frozen=True, slots=True)
class InSet(Predicate):
    """The attribute is in the set."""

    values: pa.Array
    name: ClassVar[str] = "in_set"
    main: ClassVar[str | None] = "values"
    about: ClassVar[str] = "attribute is in the set"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Attribute and values."""
        attribute = reader.attribute("scalar")
        return cls(attribute, reader.raw("drop", True), value_set(reader, attribute))

    def true(self, values: pa.Array) -> Bools:
        """Where the attribute is one of the values."""
        return mask_of(pc.is_in(values, value_set=self.values.cast(values.type)))
