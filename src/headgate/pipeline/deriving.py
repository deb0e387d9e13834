"""Derived columns in Spark: rows are partitioned by key, put into the order of their times, and get their columns.

In a running stream that is part of the match pass: one Python pass over a partition derives, matches and stages, and
what is remembered is staged with the parts (`pipeline.derived_memory`). Recorded rows get their columns in a pass of
their own, in the order of their times, and nothing needs to outlive it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.deriving import Derivation, History, derivation_of, derive
from headgate.deriving.derive import new_rows, times_of
from headgate.model import Stream, type_name
from headgate.pipeline.derived_memory import DerivedMemory, KeptMemory
from headgate.pipeline.staged import StagedRow
from headgate.pipeline.validate import DEAD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER: Final = "_order"
"""The column that says in which order rows came, before they were partitioned by key."""
_BATCH_ROWS: Final = 20_000


@dataclass(frozen=True, slots=True)
class MemoryHeads:
    """What derived columns remember when a micro-batch begins: by partition the place of its newest message.

    Partitions to `renew` write the whole of it anew, so that old messages can go.
    """

    places: tuple[int, ...]
    renew: frozenset[int] = frozenset()


def by_key(frame: DataFrame, derivation: Derivation, partitions: int) -> DataFrame:
    """Validated rows, all of one key in one partition, with the order in which they came.

    A streaming plan may not number rows, so there it is the number of the partition that they were read in: a shuffle
    leaves rows of one partition in their order, and only mixes the partitions.
    """
    from pyspark.sql import functions as f

    keys = [f.col(f"`{name}`") for name in derivation.by]
    order = f.spark_partition_id().cast("bigint") if frame.isStreaming else f.monotonically_increasing_id()
    return frame.withColumn(ORDER, order).repartition(partitions, *keys)


def with_columns(frame: DataFrame, stream: Stream) -> DataFrame:
    """Recorded, validated rows of a stream with their derived columns, if it has any."""
    from pyspark.sql import functions as f

    derivation = derivation_of(stream)
    if derivation is None:
        return frame
    partitions = frame.sparkSession.sparkContext.defaultParallelism
    ordered = by_key(frame, derivation, partitions).sortWithinPartitions(
        *([f.col(f"`{derivation.event_time}`")] if derivation.event_time else ()), ORDER
    )
    names = [*stream.schema.names, *(name for name in frame.columns if name not in stream.schema.names)]
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    types |= {name: type_name(kind) for name, kind in derivation.types.items()}
    ddl = ", ".join(f"`{name}` {types[name]}" for name in names)
    return ordered.mapInArrow(RecordedColumns(derivation.of_partition(partitions), tuple(names)), ddl)


@dataclass(frozen=True)
class RecordedColumns:
    """The function that Spark runs on each partition of recorded rows."""

    derivation: Derivation
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows with their columns; what is remembered goes from batch to batch."""
        history = History.empty(self.derivation)
        for batch in batches:
            if batch.num_rows:
                alive = pc.is_null(batch.column(DEAD))
                good, dead = batch.filter(alive), batch.filter(pc.invert(alive))
                found = derive(self.derivation, history, good)
                history = found.history
                for part, columns in ((good, found.columns), (dead, _nothing(self.derivation, dead.num_rows))):
                    if part.num_rows:
                        yield _joined(part, columns).select(list(self.names))


def derived_rows(
    memory: DerivedMemory, derivation: Derivation, heads: MemoryHeads, partition: int, batches: Iterator[pa.RecordBatch]
) -> tuple[list[pa.RecordBatch], list[StagedRow]]:
    """The rows of a partition in the order of their times, with derived columns, and what is told of the memory.

    What is remembered after them is staged. Dead letters come first; they have no derived columns.
    """
    derivation = derivation.of_partition(len(heads.places))
    given = [batch for batch in batches if batch.num_rows]
    renew = partition in heads.renew and heads.places[partition] > 0
    if not given and not renew:
        return [], []
    kept = memory.load(derivation, partition, heads.places[partition])
    if not given:
        rows = new_rows(derivation, _no_rows(derivation), kept.history.clock)
        after = memory.stage(derivation, partition, kept, rows, kept.history, renew=True)
        return [], [_told(partition, after, 0)]
    table = pa.Table.from_batches(given).combine_chunks().to_batches()[0]
    alive = pc.is_null(table.column(DEAD))
    good, dead = table.filter(alive), table.filter(pc.invert(alive))
    order = good.column(ORDER).to_numpy(zero_copy_only=False)
    good = good.take(pa.array(np.argsort(order, kind="stable")))
    good = good.take(pa.array(np.argsort(times_of(derivation, good, kept.history.clock), kind="stable")))
    rows = new_rows(derivation, good, kept.history.clock)
    found = derive(derivation, kept.history, good, rows)
    told = []
    if good.num_rows or renew:
        after = memory.stage(derivation, partition, kept, rows, found.history, renew=renew)
        told = [_told(partition, after, found.unknown)]
    parts = [(dead, _nothing(derivation, dead.num_rows)), (good, found.columns)]
    whole = [_joined(part, columns) for part, columns in parts if part.num_rows]
    return [part.slice(at, _BATCH_ROWS) for part in whole for at in range(0, part.num_rows, _BATCH_ROWS)], told


def _told(partition: int, kept: KeptMemory, unknown: int) -> StagedRow:
    return StagedRow(
        kind="memory",
        partition=partition,
        log_sequence=kept.place,
        whole=kept.whole,
        held_keys=kept.history.keys.num_rows,
        held_rows=kept.history.rows,
        forgotten_keys=kept.history.forgotten,
        unknown_rows=unknown,
    )


def _joined(batch: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    batch = batch.drop_columns([ORDER])
    return pa.RecordBatch.from_arrays([*batch.columns, *columns.values()], names=[*batch.schema.names, *columns])


def _nothing(derivation: Derivation, size: int) -> dict[str, pa.Array]:
    return {name: pa.nulls(size, kind) for name, kind in derivation.types.items()}


def _no_rows(derivation: Derivation) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=derivation.given.arrow)
