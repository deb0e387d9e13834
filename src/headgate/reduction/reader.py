"""Typed access to one mapping of a policy document: every value is checked where it stands and every key is used.

A filter or digester describes itself by what it reads; a key that nobody read is refused with the nearest known one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.model import Schema, parse_duration, type_name
from headgate.reduction.errors import PolicyError, unknown
from headgate.reduction.rows import column_type


def is_number(kind: pa.DataType) -> bool:
    """Integers, floating point and decimals."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_time(kind: pa.DataType) -> bool:
    """Timestamps and dates."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


@dataclass(slots=True)
class Reader:
    """One mapping with the path it stands at, the stream's schema, and the policy's default attribute and key."""

    document: Mapping[str, Any]
    schema: Schema
    where: str
    default_attribute: str | None = None
    default_key: tuple[str, ...] = ()
    used: set[str] = field(default_factory=set)

    def at(self, name: str) -> str:
        """The path of one of the keys."""
        return f"{self.where}.{name}" if self.where else name

    def has(self, name: str) -> bool:
        """Whether the key is given."""
        self.used.add(name)
        return name in self.document

    def raw(self, name: str, default: Any = None, *, required: str = "") -> Any:
        """A value as written; a missing one is refused where `required` says what it is."""
        if not self.has(name):
            if required and default is None:
                raise PolicyError(f"{name!r} is missing", where=self.where or None, hint=f"give {required}")
            return default
        return self.document[name]

    def number(
        self,
        name: str,
        default: float | None = None,
        *,
        low: float = float("-inf"),
        high: float = float("inf"),
        above: bool = False,
    ) -> float:
        """A number from `low` (excluded if `above`) to `high`."""
        value = self.raw(name, default, required="" if default is not None else "a number")
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise PolicyError(f"{value!r} is not a number", where=self.at(name))
        if value < low or value > high or (above and value == low):
            raise PolicyError(
                f"{value!r} is out of range",
                where=self.at(name),
                hint=f"expected {'more than' if above else 'at least'} {low:g} and at most {high:g}",
            )
        return float(value)

    def integer(self, name: str, default: int | None = None, *, low: int = 1, high: int = 1 << 40) -> int:
        """A whole number from `low` to `high`."""
        value = self.number(name, default, low=low, high=high)
        if value != int(value):
            raise PolicyError(f"{value!r} is not a whole number", where=self.at(name))
        return int(value)

    def duration(self, name: str, default: str | None = None) -> float:
        """Seconds of a duration with a unit."""
        value = self.raw(name, default, required="" if default is not None else "a duration such as `10 s`")
        try:
            return parse_duration(value)
        except HeadgateError as error:
            raise PolicyError(error.message, where=self.at(name), hint=error.hint) from error

    def choice(self, name: str, known: Sequence[str], default: str | None = None) -> str:
        """One of a few words."""
        value = str(self.raw(name, default, required="" if default else "one of " + ", ".join(known)))
        if value not in known:
            raise unknown(name, value, known, self.at(name))
        return value

    def column(self, name: str, *, default: str | None = None, kind: str = "any") -> str:
        """A column that the key names, of a kind: any, scalar, number, time, or list."""
        path = self.raw(name, default, required="a column: " + ", ".join(self.schema.names))
        return self.checked_column(path, name, kind)

    def attribute(self, kind: str = "any") -> str:
        """The column that the filter works on: its own `attribute`, else the policy's."""
        return self.column("attribute", default=self.default_attribute, kind=kind)

    def checked_column(self, path: Any, name: str, kind: str) -> str:
        """A column path that exists and has the kind asked for."""
        try:
            found = column_type(self.schema, str(path))
        except HeadgateError as error:
            raise PolicyError(error.message, where=self.at(name), hint=error.hint) from error
        nested = pa.types.is_nested(found)
        good = {
            "any": True,
            "scalar": not nested,
            "number": is_number(found),
            "time": is_time(found),
            "text": pa.types.is_string(found),
            "list": pa.types.is_list(found),
        }[kind]
        if not good:
            raise PolicyError(
                f"column {path!r} is {type_name(found)}", where=self.at(name), hint=f"expected a {kind} column"
            )
        return str(path)

    def key(self) -> tuple[str, ...]:
        """The columns that separate the groups a filter works in: `key`, one name or a list, else the policy's."""
        value = self.raw("key", self.default_key)
        names = (value,) if isinstance(value, str) else tuple(value or ())
        return tuple(self.checked_column(name, "key", "scalar") for name in names)

    def scalar(self, name: str, path: str) -> pa.Scalar:
        """A constant that can be compared with the column `path`; numbers compare as numbers."""
        return self.scalar_of(self.raw(name, required=f"a value to compare {path!r} with"), name, path)

    def scalar_of(self, value: Any, name: str, path: str, kind: pa.DataType | None = None) -> pa.Scalar:
        """A given constant as one that can be compared with the column."""
        kind = kind if kind is not None else column_type(self.schema, path)
        if is_number(kind):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise PolicyError(
                    f"{value!r} is not a number", where=self.at(name), hint=f"{path!r} is {type_name(kind)}"
                )
            return pa.scalar(value, pa.int64() if isinstance(value, int) and abs(value) < 1 << 62 else pa.float64())
        try:
            return pa.scalar(value, pa.string()).cast(kind) if isinstance(value, str) else pa.scalar(value, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            raise PolicyError(
                f"{value!r} cannot be compared with {path!r}",
                where=self.at(name),
                hint=f"{path!r} is {type_name(kind)}",
            ) from error

    def items(self, name: str) -> list[Any]:
        """A list of values."""
        value = self.raw(name, required="a list")
        if not isinstance(value, list | tuple) or not value:
            raise PolicyError(f"{value!r} is not a list of values", where=self.at(name), hint="write [a, b, c]")
        return list(value)

    def done(self) -> None:
        """Refuse keys that nothing has read."""
        for name in self.document:
            if name not in self.used:
                raise unknown("key", str(name), sorted(self.used), self.at(str(name)))
