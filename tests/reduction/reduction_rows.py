"""Rows for the tests of this package, from plain lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headgate.model import Schema


def batch(schema: Schema, columns: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
    arrays = []
    for field in schema.arrow:
        values = [float("nan") if value == "NaN" else value for value in columns[field.name]]
        if pa.types.is_timestamp(field.type):
            micros = [None if value is None else int(value * 1_000_000) for value in values]
            arrays.append(pa.array(micros, pa.int64()).cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
