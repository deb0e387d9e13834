"""A column of values while a filter is evaluated.

Numbers, truth values, dates, timestamps and intervals are NumPy arrays with a null mask beside them; strings and nested
values stay Arrow arrays, which carry their own nulls. A constant is an array of one value or an Arrow scalar, so
that broadcasting does the rest. Decimals are their unscaled integers: int64 up to 18 digits, Python integers beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.filters.types import (
    BINARY,
    BOOL,
    DATE,
    DAY,
    DAY_TIME,
    NULL,
    STRING,
    TIMESTAMP,
    YEAR_MONTH,
    is_decimal,
    is_nested,
)

Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[Any]

NARROW_DIGITS = 18
_AS_INTEGER = {TIMESTAMP: pa.int64(), DAY_TIME: pa.int64(), DATE: pa.int32()}


@dataclass(frozen=True, slots=True)
class Vector:
    """Values of one type. `null` marks missing values of a NumPy vector, None when there is none.

    What stands at a null position of a NumPy vector is unspecified.
    """

    type: pa.DataType
    values: Any
    null: Mask | None = None

    @property
    def missing(self) -> Mask | None:
        """The null mask of either representation, None when nothing is missing."""
        if not in_arrow(self.type):
            return self.null
        if isinstance(self.values, pa.Scalar):
            return None if self.values.is_valid else np.array([True])
        return None if self.values.null_count == 0 else bits(self.values.is_null())


def in_arrow(kind: pa.DataType) -> bool:
    """Whether vectors of the type are Arrow arrays."""
    return kind in (STRING, BINARY) or is_nested(kind)


def dtype_of(kind: pa.DataType) -> np.dtype[Any]:
    """The NumPy type of vectors that are not Arrow arrays."""
    if kind in (BOOL, NULL):
        return np.dtype(bool)
    if is_decimal(kind):
        return np.dtype(np.int64 if kind.precision <= NARROW_DIGITS else object)
    if kind in (DATE, TIMESTAMP, DAY, DAY_TIME, YEAR_MONTH):
        return np.dtype(np.int64)
    found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return found


def bits(array: pa.Array) -> Mask:
    """A boolean Arrow array without nulls as NumPy."""
    found: Mask = array.to_numpy(zero_copy_only=False)
    return found


def union(*masks: Mask | None) -> Mask | None:
    """Where any of the masks is set, None when all are None."""
    found: Mask | None = None
    for mask in masks:
        if mask is not None:
            found = mask if found is None else found | mask
    return found


def missing_value(kind: pa.DataType) -> Vector:
    """The constant NULL of a type."""
    if in_arrow(kind):
        return Vector(kind, pa.scalar(None, kind))
    return Vector(kind, np.zeros(1, dtype_of(kind)), np.array([True]))


def constant(value: Any, kind: pa.DataType) -> Vector:
    """A constant in the form that literals have."""
    if value is None:
        return missing_value(kind)
    if in_arrow(kind):
        return Vector(kind, pa.scalar(value, kind))
    return Vector(kind, np.array([value], dtype_of(kind)))


def from_arrow(array: pa.Array, kind: pa.DataType) -> Vector:
    """An Arrow array as a vector of the declared type; dictionaries and other encodings are converted."""
    if not array.type.equals(kind):
        array = array.cast(kind)
    if in_arrow(kind):
        return Vector(kind, array)
    if kind == NULL:
        return Vector(kind, np.zeros(len(array), bool), np.ones(len(array), bool))
    null = bits(array.is_null()) if array.null_count else None
    if is_decimal(kind):
        return Vector(kind, _unscaled(array, null), null)
    if kind in _AS_INTEGER:
        array = array.view(_AS_INTEGER[kind])
    if null is not None:
        array = array.fill_null(False if kind == BOOL else 0)
    values = array.to_numpy(zero_copy_only=False)
    return Vector(kind, values.astype(np.int64) if kind == DATE else values, null)


def _unscaled(array: pa.Array, null: Mask | None) -> Numbers:
    if array.buffers()[1] is None:
        return np.zeros(len(array), dtype_of(array.type))
    words = np.frombuffer(array.buffers()[1], np.int64).reshape(-1, 2)[array.offset : array.offset + len(array)]
    if array.type.precision <= NARROW_DIGITS:
        found = words[:, 0]
    else:
        found = words[:, 1].astype(object) * (1 << 64) + words[:, 0].view(np.uint64).astype(object)
    return found if null is None else np.where(null, 0, found)


def from_python(value: Any, kind: pa.DataType) -> Vector:
    """A value of a subscriber's context as a constant; one that does not fit its declared type is NULL."""
    try:
        array = pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return missing_value(kind)
    if in_arrow(kind):
        return Vector(kind, array[0])
    return from_arrow(array, kind)


def truth(result: Any) -> Vector:
    """A boolean vector from an Arrow kernel's answer."""
    if isinstance(result, pa.Scalar):
        return constant(result.as_py(), BOOL)
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    return from_arrow(result, BOOL)


def is_true(vector: Vector, rows: int) -> Mask:
    """One boolean per row: True where the value is TRUE, False where it is FALSE or NULL."""
    found = vector.values if vector.null is None else vector.values & ~vector.null
    return np.ascontiguousarray(np.broadcast_to(found, rows))
