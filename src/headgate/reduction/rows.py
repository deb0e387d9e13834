"""Vectorised views of Arrow rows that filters, digesters and queues share: columns by path, group codes, row sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headgate.model import Schema

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Seqs = NDArray[np.uint64]


def column_type(schema: Schema, path: str) -> pa.DataType:
    """The Arrow type of a column or of a struct's field, as in ``position.lat``; unknown names raise `SchemaError`."""
    if path in schema.names:
        return schema.column(path).type
    head, *rest = path.split(".")
    kind = schema.column(head if rest else path).type
    for name in rest:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return schema.column(path).type  # raises with the nearest name
        kind = kind.field(name).type
    return kind


def column(rows: pa.RecordBatch, path: str) -> pa.Array:
    """The values of a column or of a struct's field; a struct that is NULL has NULL fields."""
    index = rows.schema.get_field_index(path)
    if index >= 0:
        return rows.column(index)
    head, *rest = path.split(".")
    return pc.struct_field(rows.column(head), rest)


def numbers(values: pa.Array) -> Floats:
    """Values as doubles, with NaN where a value is NULL; times become seconds since 1970."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        micros = values.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64())
        return numbers(micros) / 1e6
    if pa.types.is_date(kind):
        return numbers(values.cast(pa.int32())) * 86_400.0
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    if not pa.types.is_float64(kind):
        values = pc.cast(values, pa.float64(), safe=False)
    if values.null_count:
        values = pc.fill_null(values, float("nan"))
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)


def mask_of(values: pa.Array | pa.ChunkedArray, *, null: bool = False) -> Bools:
    """A boolean array as a NumPy mask, NULL read as `null`."""
    if values.null_count:
        values = pc.fill_null(values, null)
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.bool_)


def codes(columns: Sequence[pa.Array], length: int) -> tuple[Ints, int]:
    """Group numbers of rows that agree in every column (NULL and NaN agree with themselves), and how many groups.

    >>> codes([pa.array(["a", "b", "a"])], 3)[0].tolist()
    [0, 1, 0]
    """
    total = np.zeros(length, dtype=np.int64)
    groups = 1
    for values in columns:
        encoded = values.dictionary_encode(null_encoding="encode")
        part = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
        size = max(1, len(encoded.dictionary))
        if groups == 1:
            total, groups = part, size
        else:
            found, total = np.unique(total * size + part, return_inverse=True)
            total, groups = total.astype(np.int64), len(found)
    return total, groups


def order_of(groups_of: Ints, groups: int) -> Ints:
    """A stable order that brings the rows of each group together."""
    narrow = groups_of.astype(np.uint16) if groups <= 1 << 16 else groups_of
    return np.argsort(narrow, kind="stable").astype(np.int64)


def place_in_group(groups_of: Ints, groups: int) -> Ints:
    """How many rows of the same group come before each row.

    >>> place_in_group(np.array([5, 3, 5, 5, 3]), 6).tolist()
    [0, 0, 1, 2, 1]
    """
    count = len(groups_of)
    if groups == 1:
        return np.arange(count)
    order = order_of(groups_of, groups)
    together = groups_of[order]
    index = np.arange(count)
    first = np.concatenate([[True], together[1:] != together[:-1]])[:count]
    places = np.empty(count, dtype=np.int64)
    places[order] = index - np.maximum.accumulate(np.where(first, index, 0))
    return places


def row_bytes(rows: pa.RecordBatch) -> Floats:
    """The bytes that each row takes in Arrow's layout, without the envelope of a message.

    >>> row_bytes(pa.RecordBatch.from_pydict({"a": [1, 2], "b": ["", "xyz"]})).tolist()
    [12.0, 15.0]
    """
    total = np.zeros(rows.num_rows, dtype=np.float64)
    for values in rows.columns:
        total += _value_bytes(values)
    return total


def _value_bytes(values: pa.Array) -> Any:
    kind = values.type
    if pa.types.is_boolean(kind):
        return 0.125
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return kind.bit_width / 8
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return 4.0 + _filled(pc.binary_length(values))
    if pa.types.is_struct(kind):
        return sum((_value_bytes(values.field(index)) for index in range(kind.num_fields)), 0.0)
    if pa.types.is_list(kind):
        return 4.0 + _filled(pc.list_value_length(values)) * _mean_bytes(values.flatten())
    return values.nbytes / max(1, len(values))


def _mean_bytes(values: pa.Array) -> float:
    return float(np.mean(np.broadcast_to(_value_bytes(values), len(values)))) if len(values) else 0.0


def _filled(lengths: pa.Array) -> Floats:
    return np.asarray(pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False), dtype=np.float64)


def replaced(rows: pa.RecordBatch, places: Ints, values: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of which those at `places` have other values, in the columns that `values` has; the others stay.

    >>> rows = pa.RecordBatch.from_pydict({"a": [1, 2, 3], "b": ["x", "y", "z"]})
    >>> replaced(rows, np.array([1]), pa.RecordBatch.from_pydict({"a": [9]})).to_pydict()
    {'a': [1, 9, 3], 'b': ['x', 'y', 'z']}
    """
    # The new rows come behind the others; each place takes its own row, or the new one.
    source = np.arange(rows.num_rows)
    source[places] = rows.num_rows + np.arange(len(places))
    columns = [
        pa.concat_arrays([found, values.column(field.name)]).take(pa.array(source))
        if field.name in values.schema.names
        else found
        for field, found in zip(rows.schema, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def empty_rows(schema: pa.Schema) -> pa.RecordBatch:
    """No rows of that schema."""
    return pa.RecordBatch.from_arrays([pa.array([], type=field.type) for field in schema], schema=schema)


def packed(numbers: Ints) -> Ints:
    """Numbers from 0 on in the fewest bytes that hold the largest: for what is kept, not for arithmetic.

    >>> packed(np.array([1, 2, 300])).dtype
    dtype('uint16')
    """
    found: Ints = numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))
    return found
