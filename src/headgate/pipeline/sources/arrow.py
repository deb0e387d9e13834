"""Arrow batches in the exact form that Spark takes from a Python source."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def spark_arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark compares a source's first batch with, field by field."""
    return to_arrow_schema(schema, timezone="UTC")


def conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """The target's columns of a batch, in its order and its exact types."""
    columns = [batch.column(field.name) for field in target]
    return pa.RecordBatch.from_arrays(
        [
            column if column.type.equals(field.type) else column.cast(field.type)
            for column, field in zip(columns, target, strict=True)
        ],
        schema=target,
    )


def split_range(start: int, stop: int, parts: int, least: int) -> list[tuple[int, int]]:
    """Cut [start, stop) into at most `parts` contiguous ranges, each of at least `least` where there are several.

    >>> split_range(0, 10, 3, 2)
    [(0, 3), (3, 6), (6, 10)]
    >>> split_range(5, 5, 3, 2), split_range(0, 3, 3, 2)
    ([], [(0, 3)])
    """
    size = stop - start
    if size <= 0:
        return []
    parts = max(1, min(parts, size // least))
    edges = [start + size * part // parts for part in range(parts + 1)]
    return list(pairwise(edges))
