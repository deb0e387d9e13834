"""Column values as 64-bit keys that keep the order of the filter language, exactly.

Order is Spark's: NaN equals itself and is above infinity, -0.0 equals 0.0, strings compare by their UTF-8 bytes,
timestamps by microsecond. Nulls have no key. A range between keys, open or closed, is a closed range of keys, because
the next key is always the next integer. They are the keys of `headgate.filters.algebra`, strings apart: those have
labels here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.matching.compiled.coding import Flags, Keys
from headgate.matching.compiled.labels import Labels

_NAN_KEY = np.int64(0x7FF0000000000001)
_MAX_DECIMAL_DIGITS = 18


def can_index(kind: pa.DataType) -> bool:
    """Whether values of that type have keys; filters on other types are evaluated, not indexed."""
    return bool(
        pa.types.is_floating(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
        or is_text(kind)
        or (pa.types.is_decimal128(kind) and kind.precision <= _MAX_DECIMAL_DIGITS)
    )


def is_text(kind: pa.DataType) -> bool:
    """Whether keys of that type are labels of a dictionary of strings."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def float_keys(values: npt.NDArray[np.floating]) -> Keys:
    """Keys of floats.

    >>> keys = float_keys(np.array([-np.inf, -1.5, -0.0, 0.0, 2.0, np.inf, np.nan]))
    >>> bool(np.all(np.diff(keys) >= 0)), int(keys[2]), int(keys[3])
    (True, 0, 0)
    """
    numbers = np.asarray(values, np.float64)
    sizes = np.where(np.isnan(numbers), _NAN_KEY, np.abs(numbers).view(np.int64))
    return np.where(numbers < 0, -sizes, sizes)


def column_keys(column: pa.Array, kind: pa.DataType, labels: Labels | None) -> tuple[Keys, Flags]:
    """Keys of a column, and 1 where there is a value; a column of a different type is cast or refused by Arrow."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not column.type.equals(kind):
        column = column.cast(kind)
    rows = len(column)
    valid = np.ones(rows, np.uint8)
    if column.null_count:
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False).astype(np.uint8)
    if is_text(kind):
        return (labels or Labels.of([])).keys(column), valid
    if pa.types.is_decimal128(kind):
        words = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset : 2 * (column.offset + rows)]
        return words[::2].copy(), valid
    if pa.types.is_boolean(kind):
        return column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64), valid
    if pa.types.is_floating(kind):
        if column.null_count:
            column = column.fill_null(0.0)
        return float_keys(column.to_numpy(zero_copy_only=False)), valid
    storage = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    if not pa.types.is_integer(kind):
        column = column.view(storage)
    if column.null_count:
        column = column.fill_null(0)
    return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), valid
