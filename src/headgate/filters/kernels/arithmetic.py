"""Arithmetic on numbers, dates, timestamps and intervals: overflow and division by zero give NULL."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headgate.filters.kernels import decimals
from headgate.filters.types import (
    BIGINT,
    DATE,
    DAY,
    TIMESTAMP,
    YEAR_MONTH,
    is_decimal,
    is_float,
    is_integer,
)
from headgate.filters.vector import Mask, Numbers, Vector, dtype_of, missing_value, union

MICROSECONDS_PER_DAY = 86_400_000_000
_MIN = np.iinfo(np.int64).min
_DAY = np.array([MICROSECONDS_PER_DAY])


def cast(value: Vector, kind: pa.DataType) -> Vector:
    """A widening conversion that `build` inserted."""
    source = value.type
    if pa.types.is_null(source):
        return missing_value(kind)
    if is_decimal(kind):
        return decimals.to_decimal(value, kind)
    if is_decimal(source):
        return Vector(kind, decimals.to_double(value), value.null)
    if source == DATE and kind == TIMESTAMP:
        return checked(kind, *multiply(value.values, _DAY), value.null)
    return Vector(kind, value.values.astype(dtype_of(kind)), value.null)


def arithmetic(op: str, left: Vector, right: Vector, kind: pa.DataType) -> Vector:
    """`left op right` with operands as `build` converted them."""
    if is_decimal(kind):
        return decimals.arithmetic(op, left, right, kind)
    if is_float(kind):
        return _floats(op, left, right, kind)
    null = union(left.null, right.null)
    if is_integer(kind):
        return checked(kind, *_INTEGER[op](left.values.astype(np.int64), right.values.astype(np.int64)), null)
    return _temporal(op, left, right, kind, null)


def checked(kind: pa.DataType, values: Numbers, bad: Mask | bool, null: Mask | None) -> Vector:
    """Integer results in their type; NULL where they overflowed or do not fit."""
    if is_integer(kind) and kind != BIGINT:
        bound = np.iinfo(dtype_of(kind))
        bad = bad | (values < bound.min) | (values > bound.max)
    bad = np.asarray(bad, bool)
    if bad.any():
        null = union(null, bad)
    return Vector(kind, np.asarray(values).astype(dtype_of(kind)), null)


def add(one: Numbers, other: Numbers) -> tuple[Numbers, Mask]:
    """The sum of int64 and where it overflows."""
    found = one + other
    return found, ((one ^ found) & (other ^ found)) < 0


def subtract(one: Numbers, other: Numbers) -> tuple[Numbers, Mask]:
    """The difference of int64 and where it overflows."""
    found = one - other
    return found, ((one ^ other) & (one ^ found)) < 0


def multiply(one: Numbers, other: Numbers) -> tuple[Numbers, Mask]:
    """The product of int64 and where it overflows."""
    found = one * other
    safe = np.where(one == 0, 1, one)
    bad = (one != 0) & (((one == -1) & (other == _MIN)) | ((one != -1) & (found // safe != other)))
    return found, bad


def _quotient(one: Numbers, other: Numbers) -> tuple[Numbers, Mask]:
    zero = other == 0
    safe = np.where(zero, 1, other)
    overflow = (one == _MIN) & (safe == -1)
    safe = np.where(overflow, 1, safe)
    floor = one // safe
    inexact = (floor * safe != one) & ((one < 0) != (safe < 0))
    return floor + inexact, zero | overflow


def _remainder(one: Numbers, other: Numbers) -> tuple[Numbers, Mask]:
    zero = other == 0
    safe = np.where(zero | (other == -1), 1, other)
    return np.fmod(one, safe), zero


_INTEGER = {"+": add, "-": subtract, "*": multiply, "div": _quotient, "%": _remainder}


def _floats(op: str, left: Vector, right: Vector, kind: pa.DataType) -> Vector:
    null = union(left.null, right.null)
    one, other = left.values, right.values
    if op in "/%":
        zero = other == 0
        found = one / np.where(zero, 1, other) if op == "/" else np.fmod(one, np.where(zero, 1, other))
        null = union(null, zero) if np.any(zero) else null
    else:
        found = one + other if op == "+" else one - other if op == "-" else one * other
    return Vector(kind, np.asarray(found).astype(dtype_of(kind), copy=False), null)


def _temporal(op: str, left: Vector, right: Vector, kind: pa.DataType, null: Mask | None) -> Vector:
    step = add if op == "+" else subtract
    one, other = left.values.astype(np.int64), right.values.astype(np.int64)
    if right.type == YEAR_MONTH and left.type != YEAR_MONTH:
        return _months(left, other if op == "+" else -other, kind, null)
    if left.type == DATE and kind == DAY:
        return checked(kind, *multiply(one - other, _DAY), null)
    if kind == DATE:
        days = other // MICROSECONDS_PER_DAY if right.type == DAY else other
        found, bad = step(one, days)
        return checked(kind, found, bad | (np.abs(found) > 2**31 - 1), null)
    return checked(kind, *step(one, other), null)


def _months(left: Vector, months: Numbers, kind: pa.DataType, null: Mask | None) -> Vector:
    """Add months; a day that the month does not have becomes its last."""
    date = left.type == DATE
    days = left.values if date else left.values // MICROSECONDS_PER_DAY
    rest = 0 if date else left.values - days * MICROSECONDS_PER_DAY
    day = np.asarray(days).astype("datetime64[D]")
    month = day.astype("datetime64[M]")
    target = month + months.astype("timedelta64[M]")
    first = target.astype("datetime64[D]").astype(np.int64)
    length = (target + np.timedelta64(1, "M")).astype("datetime64[D]").astype(np.int64) - first
    found = first + np.minimum((day - month.astype("datetime64[D]")).astype(np.int64), length - 1)
    if date:
        return Vector(kind, found, null)
    shifted, bad = multiply(found, _DAY)
    total, worse = add(shifted, np.asarray(rest, np.int64))
    return checked(kind, total, bad | worse, null)


def negate(value: Vector) -> Vector:
    """`-value`; the smallest integer has no opposite."""
    values = value.values
    if values.dtype.kind != "i" or is_decimal(value.type):
        return Vector(value.type, np.asarray(-values), value.null)
    lowest = values == np.iinfo(values.dtype).min
    return checked(value.type, -values, lowest, value.null)


def absolute(value: Vector) -> Vector:
    """`abs(value)`."""
    values = value.values
    if values.dtype.kind != "i" or is_decimal(value.type):
        return Vector(value.type, np.asarray(np.abs(values)), value.null)
    lowest = values == np.iinfo(values.dtype).min
    return checked(value.type, np.abs(values), lowest, value.null)
