"""Order keys: every scalar type mapped onto integers or strings so that order and successor are exact.

Whole numbers, dates and timestamps are themselves. Doubles are their bits, folded so that integer order is Spark's
order (-0.0 is 0.0, NaN comes after infinity); floats are their doubles. Decimals are their unscaled integers. Strings
are themselves: code point order is UTF-8 byte order, and the successor of a string is the string followed by U+0000.
With keys, `x > 3` is a closed bound, two bounds are compared as integers, and covering is complete.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.filters.types import BOOL, DATE, DOUBLE, FLOAT, STRING, TIMESTAMP, is_decimal, is_integer
from headgate.filters.vector import Numbers, Vector

_INFINITY = 0x7FF0_0000_0000_0000
NAN_KEY = _INFINITY + 1
_MASK = 0x7FFF_FFFF_FFFF_FFFF
_LAST = chr(0x10FFFF)
_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class Space:
    """The keys of a type: the least one, and the one after the greatest (None where there is no greatest)."""

    kind: pa.DataType
    least: Any
    end: int | None


def space_of(kind: pa.DataType) -> Space | None:
    """The key space of a type, None for types without one.

    >>> space_of(pa.int8())
    Space(kind=DataType(int8), least=-128, end=128)
    """
    if kind in (DOUBLE, FLOAT):
        return Space(kind, -_INFINITY, NAN_KEY + 1)
    if kind == STRING:
        return Space(kind, "", None)
    if kind == BOOL:
        return Space(kind, 0, 2)
    if is_decimal(kind):
        bound = 10**kind.precision
        return Space(kind, 1 - bound, bound)
    bits = 32 if kind == DATE else 64 if kind == TIMESTAMP else kind.bit_width if is_integer(kind) else None
    return None if bits is None else Space(kind, -(1 << (bits - 1)), 1 << (bits - 1))


def key_of(value: Any, kind: pa.DataType) -> Any:
    """The key of a value in the form that literals have.

    >>> key_of(-0.0, DOUBLE), key_of("a", STRING), key_of(float("nan"), DOUBLE) > key_of(float("inf"), DOUBLE)
    (0, 'a', True)
    """
    if kind == STRING:
        return str(value)
    if kind not in (DOUBLE, FLOAT):
        return int(value)
    number = float(value)
    if math.isnan(number):
        return NAN_KEY
    bits = struct.unpack("<q", struct.pack("<d", number))[0]
    return bits if bits >= 0 else -(bits & _MASK)


def value_of(key: Any, kind: pa.DataType) -> Any:
    """The value that a key stands for, the inverse of `key_of`."""
    if kind == BOOL:
        return bool(key)
    if kind not in (DOUBLE, FLOAT):
        return key
    if key >= NAN_KEY:
        return math.nan
    magnitude = struct.unpack("<d", struct.pack("<q", abs(key)))[0]
    return -magnitude if key < 0 else magnitude


def successor(key: Any) -> Any:
    r"""The next key.

    >>> successor(4), successor("a")
    (5, 'a\x00')
    """
    return key + "\0" if isinstance(key, str) else key + 1


def prefix_end(prefix: str) -> str | None:
    """The first string after all those that begin with the prefix, None if there is none.

    >>> prefix_end("ab")
    'ac'
    """
    trimmed = prefix.rstrip(_LAST)
    if not trimmed:
        return None
    point = ord(trimmed[-1]) + 1
    return trimmed[:-1] + chr(0xE000 if point == 0xD800 else point)


def order_keys(vector: Vector) -> Numbers:
    """The keys of a whole vector of numbers, dates or timestamps, as int64 (object beyond 18 decimal digits).

    >>> order_keys(Vector(DOUBLE, np.array([-1.0, -0.0, 0.0, 1.0]))).tolist()[1:3]
    [0, 0]
    """
    values: Numbers = vector.values
    if vector.type not in (DOUBLE, FLOAT):
        return values if values.dtype.hasobject else values.astype(np.int64)
    doubles = np.ascontiguousarray(values, np.float64)
    bits = doubles.view(np.int64)
    folded = np.where(bits >= 0, bits, -(bits & _MASK))
    found: Numbers = np.where(np.isnan(doubles), NAN_KEY, folded)
    return found


def first_at_least(source: Space, target: pa.DataType, bound: Any) -> Any:
    """The least key of `source` whose value, converted to the wider type `target`, has a key of at least `bound`.

    Conversions only widen, so they keep order and the answer is one cut; the space's end when there is none.
    """
    kind, least, end = source.kind, source.least, source.end
    if kind == target or (kind, target) == (FLOAT, DOUBLE):
        return bound if end is None else max(least, min(bound, end))
    assert end is not None
    exact = _closed_form(kind, target, bound)
    if exact is not None:
        return max(least, min(exact, end))
    low, high = least, end
    while low < high:
        middle = (low + high) // 2
        if _converted(middle, kind, target) >= bound:
            high = middle
        else:
            low = middle + 1
    return low


def _closed_form(kind: pa.DataType, target: pa.DataType, bound: int) -> Any:
    if kind == DATE:
        return -(-bound // 86_400_000_000)
    if is_decimal(target):
        have = kind.scale if is_decimal(kind) else 0
        shift = target.scale - have
        return -(-bound // 10**shift) if shift >= 0 else None
    if is_integer(target):
        return bound
    value = value_of(bound, target)
    if is_integer(kind) and math.isfinite(value) and abs(value) < _EXACT:
        return math.ceil(value)
    return None


def _converted(key: int, kind: pa.DataType, target: pa.DataType) -> Any:
    if is_decimal(target):  # fewer digits behind the point: rounds half away from zero
        step = 10 ** (kind.scale - target.scale)
        rounded = (2 * abs(key) + step) // (2 * step)
        return -rounded if key < 0 else rounded
    return key_of(key / 10**kind.scale if is_decimal(kind) else float(key), target)
