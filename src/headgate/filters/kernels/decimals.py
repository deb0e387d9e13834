"""Decimal arithmetic on unscaled integers, rounding half away from zero, overflow as NULL.

Up to 18 digits everything is int64; beyond, arrays of Python integers are exact at any size and still loop in C.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headgate.filters.types import is_decimal
from headgate.filters.vector import NARROW_DIGITS, Mask, Numbers, Vector, dtype_of, union


def wide(values: Numbers) -> Numbers:
    """The values as Python integers."""
    return np.asarray(values).astype(object)


def divide_half_up(numerator: Numbers, denominator: Any) -> Numbers:
    """The quotient of integers rounded half away from zero; the denominator is positive or the caller took its sign."""
    magnitude: Numbers = np.abs(numerator)
    quotient = (2 * magnitude + denominator) // (2 * denominator)
    found: Numbers = np.where(np.less(numerator, 0), -quotient, quotient)
    return found


def fitted(values: Numbers, scale: int, kind: pa.DataType, null: Mask | None) -> Vector:
    """Exact values at a scale brought to a decimal type: rounded to its scale, NULL where they need more digits."""
    values = np.asarray(values)
    bound = 10**kind.precision - 1
    shift = kind.scale - scale
    if shift < 0:
        if not values.dtype.hasobject and -shift >= NARROW_DIGITS:
            values = wide(values)
        values = divide_half_up(values, 10**-shift)
        beyond = np.abs(values) > bound
    elif values.dtype.hasobject or dtype_of(kind).hasobject:
        values = wide(values) * 10**shift
        beyond = np.abs(values) > bound
    else:
        beyond = np.abs(values) > bound // 10**shift
        values = np.where(beyond, 0, values) * 10**shift
    beyond = np.asarray(beyond, bool)
    if beyond.any():
        null = union(null, beyond)
        values = np.where(beyond, 0, values)
    return Vector(kind, np.asarray(values).astype(dtype_of(kind)), null)


def to_decimal(value: Vector, kind: pa.DataType) -> Vector:
    """An integer or decimal vector as a decimal type."""
    scale = value.type.scale if is_decimal(value.type) else 0
    values = value.values
    if not is_decimal(value.type):
        narrow = value.type.bit_width < 64 and kind.precision <= NARROW_DIGITS
        values = values.astype(np.int64) if narrow else wide(values)
    return fitted(values, scale, kind, value.null)


def to_double(value: Vector) -> Numbers:
    """Decimals as the nearest doubles."""
    scale = value.type.scale
    if not value.values.dtype.hasobject and scale <= 22:
        exact = np.abs(value.values) <= 2**53
        if np.all(exact):
            return np.asarray(value.values / 10.0**scale)
    return np.asarray(wide(value.values) / 10**scale).astype(np.float64)


def arithmetic(op: str, left: Vector, right: Vector, kind: pa.DataType) -> Vector:
    """`left op right` of two decimals in the result type that Spark gives it."""
    null = union(left.null, right.null)
    s1, s2 = left.type.scale, right.type.scale
    one, other = left.values, right.values
    if op == "*":
        if left.type.precision + right.type.precision > NARROW_DIGITS:
            one, other = wide(one), wide(other)
        return fitted(one * other, s1 + s2, kind, null)
    if op == "/":
        return _divide(wide(one), wide(other), kind.scale + s2 - s1, kind, null)
    scale = max(s1, s2)
    if max(left.type.precision - s1, right.type.precision - s2) + scale + 1 > NARROW_DIGITS:
        one, other = wide(one), wide(other)
    one, other = one * 10 ** (scale - s1), other * 10 ** (scale - s2)
    if op == "%":
        zero = np.equal(other, 0).astype(bool)
        magnitude = np.abs(one) % np.where(zero, 1, np.abs(other))
        rest = np.where(np.less(one, 0), -magnitude, magnitude)
        return fitted(rest, scale, kind, union(null, zero))
    return fitted(one + other if op == "+" else one - other, scale, kind, null)


def _divide(one: Numbers, other: Numbers, shift: int, kind: pa.DataType, null: Mask | None) -> Vector:
    zero = np.equal(other, 0).astype(bool)
    one = np.where(np.less(other, 0), -one, one)
    divisor = np.where(zero, 1, np.abs(other))
    if shift >= 0:
        one = one * 10**shift
    else:
        divisor = divisor * 10**-shift
    return fitted(divide_half_up(one, divisor), kind.scale, kind, union(null, zero))


def rounded(value: Vector, scale: int, kind: pa.DataType) -> Vector:
    """`round(value, scale)`: half away from zero, for negative scales too."""
    values, have = value.values, value.type.scale
    if scale >= have:
        return fitted(values, have, kind, value.null)
    coarse = divide_half_up(wide(values), 10 ** (have - scale))
    return fitted(coarse * 10**-scale if scale < 0 else coarse, max(scale, 0), kind, value.null)


def whole(value: Vector, kind: pa.DataType, *, up: bool) -> Vector:
    """`floor` or `ceil` of decimals."""
    factor = 10**value.type.scale
    values = wide(value.values) if factor > 10**NARROW_DIGITS else value.values
    return fitted(-(-values // factor) if up else values // factor, 0, kind, value.null)
