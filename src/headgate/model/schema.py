"""The shape of a stream's rows: named, typed columns with units, in Spark's type names and Arrow's types."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from headgate.errors import HeadgateError, nearest

_SCALARS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_ALIASES = {
    "bool": "boolean",
    "integer": "int",
    "long": "bigint",
    "byte": "tinyint",
    "short": "smallint",
    "real": "float",
}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_MAX_DEPTH = 16


class SchemaError(HeadgateError):
    """A type or a column that a schema cannot have or does not have."""


def parse_type(text: str) -> pa.DataType:
    """The Arrow type of a Spark type name, nested types included.

    >>> parse_type("array<double>")
    ListType(list<element: double>)
    """
    return _parse_type(text.strip(), 0)


def _parse_type(text: str, depth: int) -> pa.DataType:
    if depth > _MAX_DEPTH:
        raise SchemaError(f"a type is nested more than {_MAX_DEPTH} deep")
    lowered = text.lower()
    name = _ALIASES.get(lowered, lowered)
    if name in _SCALARS:
        return _SCALARS[name]
    if decimal := _DECIMAL.fullmatch(name):
        precision, scale = int(decimal[1]), int(decimal[2])
        if not (1 <= precision <= 38 and scale <= precision):
            raise SchemaError(f"{text!r} is out of range", hint="decimal(p,s) has p from 1 to 38 and s at most p")
        return pa.decimal128(precision, scale)
    head, bracket, rest = name.partition("<")
    if bracket and rest.endswith(">") and head in ("array", "map", "struct"):
        inner = _split(text[len(head) + 1 : -1])
        if head == "array" and len(inner) == 1:
            return pa.list_(pa.field("element", _parse_type(inner[0], depth + 1)))
        if head == "map" and len(inner) == 2:
            return pa.map_(_parse_type(inner[0], depth + 1), _parse_type(inner[1], depth + 1))
        if head == "struct" and inner:
            return pa.struct([_parse_field(part, depth + 1) for part in inner])
    close = nearest(name, [*_SCALARS, *_ALIASES])
    expected = f"did you mean {close!r}?" if close else "expected one of " + ", ".join([*_SCALARS, "decimal(p,s)"])
    raise SchemaError(f"unknown type {text!r}", hint=f"{expected}; nested: array<T>, map<K,V>, struct<name:T,...>")


def _parse_field(text: str, depth: int) -> pa.Field:
    name, colon, kind = text.partition(":")
    if not colon or not name.strip():
        raise SchemaError(f"{text!r} is not a struct field", hint="write struct<name:type,...>")
    return pa.field(name.strip(), _parse_type(kind.strip(), depth))


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    parts.append(text[start:].strip())
    return parts


def type_name(kind: pa.DataType) -> str:
    """The Spark name of an Arrow type, the inverse of `parse_type`.

    >>> type_name(parse_type("map<string, array<int>>"))
    'map<string,array<int>>'
    """
    for name, scalar in _SCALARS.items():
        if kind.equals(scalar):
            return name
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ",".join(f"{field.name}:{type_name(field.type)}" for field in kind) + ">"
    raise ValueError(f"no schema can have the type {kind}")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, Arrow type and the unit its values are in, if they have one."""

    name: str
    type: pa.DataType
    unit: str | None = None


@dataclass(frozen=True)
class Schema:
    """The columns of a stream, in order.

    >>> Schema.of({"station": "string", "t": "double"}).names
    ('station', 't')
    """

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, columns: dict[str, str]) -> Schema:
        """A schema from names and Spark type names."""
        return cls(tuple(Column(name, parse_type(kind)) for name, kind in columns.items()))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of a batch of rows."""
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    @property
    def ddl(self) -> str:
        """The schema as Spark DDL."""
        return ", ".join(f"`{column.name}` {type_name(column.type)}" for column in self.columns)

    def column(self, name: str) -> Column:
        """The column of that name; an unknown one is refused with the nearest valid name."""
        for column in self.columns:
            if column.name == name:
                return column
        close = nearest(name, self.names)
        hint = f"did you mean {close!r}?" if close else "columns are " + ", ".join(self.names)
        raise SchemaError(f"unknown column {name!r}", hint=hint)

    def select(self, names: Iterable[str] | None) -> Schema:
        """The schema of a projection, in the order asked for; None keeps every column."""
        return self if names is None else Schema(tuple(self.column(name) for name in names))
