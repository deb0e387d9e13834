"""Sums and extremes over ranges of a column, one range for each row, all at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def _ranges(kernel: np.ufunc, values: npt.NDArray[Any], first: Ints, last: Ints) -> npt.NDArray[Any]:
    """A kernel over [first, last) of each row; none of the ranges is empty. Each is computed by itself.

    Running sums would be quicker, but one huge or infinite value would spoil all that come after it.
    """
    if not len(first):
        return values[:0]
    edges = np.column_stack([first, last]).ravel()
    found: npt.NDArray[Any] = kernel.reduceat(np.append(values, values[:1]), edges)[::2]
    return found


def counted(valid: Flags, first: Ints, last: Ints) -> Ints:
    """How many values of each range there are."""
    before = np.append(0, np.cumsum(valid, dtype=np.int64))
    return np.asarray(before[last] - before[first], np.int64)


def aggregate(kind: str, column: pa.Array, first: Ints, last: Ints, made: pa.DataType) -> tuple[pa.Array, Flags]:
    """The aggregate of each range, and where it is null: of no values, or past what its type can hold."""
    valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)
    counts = counted(valid, first, last)
    if kind == "count":
        return pa.array(counts), np.zeros(len(counts), bool)
    values = _plain(column)
    nothing = counts == 0
    if kind == "avg" or (kind == "sum" and values.dtype.kind == "f"):
        with np.errstate(all="ignore"):
            found: npt.NDArray[Any] = _ranges(np.add, np.where(valid, values.astype(np.float64), 0.0), first, last)
            found = found / np.maximum(counts, 1) if kind == "avg" else found
        return pa.array(found), nothing
    if kind == "sum":
        whole = np.where(valid, values.astype(np.int64), 0)
        high, low = (_ranges(np.add, part, first, last) for part in (whole >> 32, whole & 0xFFFFFFFF))
        high = high + (low >> 32)
        past = (high < -(1 << 31)) | (high >= 1 << 31)
        high = np.where(past, 0, high)
        return pa.array((high << 32) | (low & 0xFFFFFFFF)), nothing | past
    return _typed(_extremes(kind, values, valid, first, last), made), nothing


def _extremes(kind: str, values: npt.NDArray[Any], valid: Flags, first: Ints, last: Ints) -> npt.NDArray[Any]:
    """The least or greatest value of each range; a NaN is greater than any number, as in filters."""
    if values.dtype.kind == "f":
        with np.errstate(all="ignore"):
            if kind == "min":
                return _ranges(np.fmin, np.where(valid, values, np.nan), first, last)
            return _ranges(np.maximum, np.where(valid, values, -np.inf), first, last)
    ends = np.iinfo(values.dtype)
    if kind == "min":
        return _ranges(np.minimum, np.where(valid, values, ends.max), first, last)
    return _ranges(np.maximum, np.where(valid, values, ends.min), first, last)


def _plain(column: pa.Array) -> npt.NDArray[Any]:
    """The values as numbers; whatever stands for a null."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    zero = pa.scalar(0, column.type)
    return np.asarray(column.fill_null(zero).to_numpy(zero_copy_only=False))


def _typed(values: npt.NDArray[Any], made: pa.DataType) -> pa.Array:
    found = pa.array(values)
    return found if found.type.equals(made) else found.cast(made)
