"""Reduction of batch data: a policy's levels as a function from DataFrame to DataFrame.

What a queue is to a relay, a window of rows is here: filters that look at a whole queue (latest, conflate, priority,
aggregate, ...) look at a window, and filters with a memory carry it from window to window of a partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headgate.model import Column, Schema, parse_type
from headgate.reduction import Digest, Moment, Policy, merged, parse_policy
from headgate.reduction.digest import DigestTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PARTITION_BITS = 40


def reduce(
    frame: DataFrame,
    policy: Mapping[str, Any] | None,
    *,
    level: int | None = None,
    by: Sequence[str] = (),
    order: Sequence[str] = (),
    window_rows: int = 10_000,
) -> DataFrame:
    """The rows that levels 1 to `level` of a policy keep (all levels if None).

    Rows with equal `by` columns come to one partition, where they are looked at in the order of the `order` columns;
    with a policy whose filters have the key `by`, filters with a memory then give the same result however many
    partitions there are. Without `by` each partition is reduced as it is.
    """
    schema = schema_of(frame)
    parse_policy(policy, schema)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for kept, _ in _reduced(batches, policy, schema, level, window_rows):
            if kept.num_rows:
                yield kept

    return _prepared(frame, by, order).mapInArrow(rows, frame.schema)


def digest(
    frame: DataFrame,
    policy: Mapping[str, Any] | None,
    *,
    level: int | None = None,
    by: Sequence[str] = (),
    order: Sequence[str] = (),
    window_rows: int = 10_000,
) -> Digest | None:
    """One digest of everything that `reduce` with the same arguments drops; None if it drops nothing.

    Sequence numbers are numbers of rows in their partitions, in the order in which they were looked at.
    """
    schema = schema_of(frame)
    parse_policy(policy, schema)

    def digests(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total: Digest | None = None
        for _, found in _reduced(batches, policy, schema, level, window_rows):
            total = merged(total, found)
        if total is not None:
            yield pa.RecordBatch.from_pydict({"digest": [total.to_bytes()]})

    total: Digest | None = None
    for row in _prepared(frame, by, order).mapInArrow(digests, "digest binary").collect():
        total = merged(total, Digest.from_bytes(bytes(row["digest"])))
    return total


def schema_of(frame: DataFrame) -> Schema:
    """The frame's columns as a stream's schema."""
    return Schema(tuple(Column(field.name, parse_type(field.dataType.simpleString())) for field in frame.schema.fields))


def _prepared(frame: DataFrame, by: Sequence[str], order: Sequence[str]) -> DataFrame:
    if by:
        frame = frame.repartition(*by)
    return frame.sortWithinPartitions(*order) if order else frame


def _reduced(
    batches: Iterator[pa.RecordBatch],
    document: Mapping[str, Any] | None,
    schema: Schema,
    level: int | None,
    window: int,
) -> Iterator[tuple[pa.RecordBatch, Digest | None]]:
    """The rows kept of each window, and the digest of the others."""
    from pyspark import TaskContext

    task = TaskContext.get()
    first = ((task.partitionId() if task else 0) << _PARTITION_BITS) + 1
    policy = parse_policy(document, schema)
    states: dict[int, Any] = {}
    for rows in _windows(batches, schema, window):
        yield _apply(policy, level, rows, states, first)
        first += rows.num_rows


def _windows(batches: Iterator[pa.RecordBatch], schema: Schema, window: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of `window`, whatever batches Spark gives, with the schema's own types."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        arrays = [column.cast(field.type) for column, field in zip(batch.columns, schema.arrow, strict=True)]
        waiting.append(pa.RecordBatch.from_arrays(arrays, schema=schema.arrow))
        count += batch.num_rows
        while count >= window:
            joined = pa.concat_batches(waiting)
            yield joined.slice(0, window)
            waiting, count = [joined.slice(window)], count - window
    if count:
        yield pa.concat_batches(waiting)


def _apply(
    policy: Policy, level: int | None, rows: pa.RecordBatch, states: dict[int, Any], first: int
) -> tuple[pa.RecordBatch, Digest | None]:
    whole = Moment.of(rows, first=first)
    alive = np.arange(rows.num_rows)
    why = np.full(rows.num_rows, -1, dtype=np.int64)
    names: list[str] = []
    current, moment = rows, whole
    filters = [found for each in policy.levels[:level] for found in each.filters]
    for number, found in enumerate(filters):
        needed = replace(moment, need_rows=policy.headroom * current.num_rows)
        mask, states[number] = found.keep(current, states.get(number), needed)
        current, weights = found.rewrite(current, mask, needed)
        if found.name not in names:
            names.append(found.name)
        why[alive[~mask]] = names.index(found.name)
        alive, current = alive[mask], current.filter(pa.array(mask))
        moment = replace(moment, seqs=moment.seqs[mask], arrived=moment.arrived[mask], weights=weights[mask],
                         sizes=moment.sizes[mask])  # fmt: skip
    gone = np.flatnonzero(why >= 0)
    if not len(gone):
        return current, None
    dropped = rows.take(pa.array(gone))
    table = DigestTable.of(dropped, whole.seqs[gone], why[gone], tuple(names), policy.digesters)
    return current, table.total()
