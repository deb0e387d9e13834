"""Type rules of the filter language: Spark SQL's in ANSI mode, without its implicit casts from and to strings.

Types are Arrow's. Intervals have no place in a schema, so they borrow three Arrow types that no schema can have:
`DAY` (whole days), `DAY_TIME` (microseconds) and `YEAR_MONTH` (months).
"""

from __future__ import annotations

import pyarrow as pa

from headgate.model import type_name

NULL = pa.null()
BOOL = pa.bool_()
INT = pa.int32()
BIGINT = pa.int64()
FLOAT = pa.float32()
DOUBLE = pa.float64()
STRING = pa.string()
BINARY = pa.binary()
DATE = pa.date32()
TIMESTAMP = pa.timestamp("us", tz="UTC")
DAY = pa.duration("s")
DAY_TIME = pa.duration("us")
YEAR_MONTH = pa.month_day_nano_interval()

INTEGERS: tuple[pa.DataType, ...] = (pa.int8(), pa.int16(), INT, BIGINT)
_INTEGER_DIGITS = {pa.int8(): 3, pa.int16(): 5, INT: 10, BIGINT: 20}
_INTERVAL_NAMES = {DAY: "interval day", DAY_TIME: "interval day to second", YEAR_MONTH: "interval year to month"}
MAX_PRECISION = 38
_MIN_ADJUSTED_SCALE = 6


def name_of(kind: pa.DataType) -> str:
    """The type as a user writes it.

    >>> name_of(DAY_TIME), name_of(pa.list_(DOUBLE))
    ('interval day to second', 'array<double>')
    """
    if kind == NULL:
        return "null"
    return _INTERVAL_NAMES.get(kind) or type_name(kind)


def is_integer(kind: pa.DataType) -> bool:
    """Whether values are whole numbers of 8 to 64 bits."""
    return kind in INTEGERS


def is_decimal(kind: pa.DataType) -> bool:
    """Whether values are decimals."""
    return bool(pa.types.is_decimal128(kind))


def is_float(kind: pa.DataType) -> bool:
    """Whether values are binary floating point."""
    return kind in (FLOAT, DOUBLE)


def is_number(kind: pa.DataType) -> bool:
    """Whether arithmetic is defined on the type."""
    return is_integer(kind) or is_float(kind) or is_decimal(kind)


def is_list(kind: pa.DataType) -> bool:
    """Whether values are arrays."""
    return bool(pa.types.is_list(kind))


def is_map(kind: pa.DataType) -> bool:
    """Whether values are maps."""
    return bool(pa.types.is_map(kind))


def is_struct(kind: pa.DataType) -> bool:
    """Whether values have named fields."""
    return bool(pa.types.is_struct(kind))


def is_nested(kind: pa.DataType) -> bool:
    """Whether values are arrays, maps or structs."""
    return bool(pa.types.is_nested(kind))


def decimal_form(kind: pa.DataType) -> tuple[int, int]:
    """Precision and scale of the decimal that holds every value of a decimal or integer type."""
    return (kind.precision, kind.scale) if is_decimal(kind) else (_INTEGER_DIGITS[kind], 0)


def bounded_decimal(precision: int, scale: int) -> pa.DataType:
    """A decimal type cut down to 38 digits, whole digits kept first."""
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    return pa.decimal128(MAX_PRECISION, max(0, MAX_PRECISION - (precision - scale)))


def adjusted_decimal(precision: int, scale: int) -> pa.DataType:
    """The result type of decimal arithmetic past 38 digits: gives up scale down to six digits."""
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    return pa.decimal128(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, _MIN_ADJUSTED_SCALE)))


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The narrowest type both convert to without a string cast, None if there is none.

    >>> name_of(wider(INT, pa.decimal128(2, 1))), name_of(wider(FLOAT, INT)), wider(STRING, INT)
    ('decimal(11,1)', 'double', None)
    """
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    if is_number(one) and is_number(other):
        return _wider_number(one, other)
    pair = {one, other}
    if pair == {DATE, TIMESTAMP}:
        return TIMESTAMP
    if pair == {DAY, DAY_TIME}:
        return DAY_TIME
    return None


def _wider_number(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if is_float(one) or is_float(other):
        return DOUBLE
    if is_integer(one) and is_integer(other):
        return max(one, other, key=INTEGERS.index)
    (p1, s1), (p2, s2) = decimal_form(one), decimal_form(other)
    scale = max(s1, s2)
    return bounded_decimal(max(p1 - s1, p2 - s2) + scale, scale)


def decimal_result(op: str, one: tuple[int, int], other: tuple[int, int]) -> pa.DataType:
    """The type of an arithmetic operation on two decimals, by Spark's rules."""
    (p1, s1), (p2, s2) = one, other
    if op in "+-":
        scale = max(s1, s2)
        return adjusted_decimal(max(p1 - s1, p2 - s2) + scale + 1, scale)
    if op == "*":
        return adjusted_decimal(p1 + p2 + 1, s1 + s2)
    if op == "/":
        scale = max(6, s1 + p2 + 1)
        return adjusted_decimal(p1 - s1 + s2 + scale, scale)
    scale = max(s1, s2)
    return adjusted_decimal(min(p1 - s1, p2 - s2) + scale, scale)
