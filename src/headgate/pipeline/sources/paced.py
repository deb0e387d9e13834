"""A Spark reader of numbered rows with exact offsets, paced by the clock or by a row limit.

An offset is the number of rows given so far and the time of row 0, so a batch that is replayed, with any number of
partitions, holds the same rows. Nothing is kept between batches. The generators and recorded grids are such rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headgate.pipeline.sources.arrow import conform, spark_arrow_schema, split_range

_BATCH_ROWS = 10_000
_PARTITION_ROWS = 5_000


class Paced(Protocol):
    """Rows by number, and how fast they happen."""

    @property
    def rate(self) -> float:
        """Rows a second."""
        ...

    @property
    def paced(self) -> bool:
        """Whether rows happen by the clock; otherwise all are there at once."""
        ...

    @property
    def origin_us(self) -> int | None:
        """The time of row 0, None for the start of the stream."""
        ...

    @property
    def max_rows(self) -> int | None:
        """Rows of one micro-batch."""
        ...

    @property
    def partitions(self) -> int:
        """Tasks of a large micro-batch."""
        ...

    @property
    def catch_up_s(self) -> float:
        """How much of a pause is made up for at a restart."""
        ...

    def rows(self, start: int, stop: int, origin_us: int) -> pa.RecordBatch:
        """Rows [start, stop)."""
        ...

    def available(self, origin_us: int, now_us: int) -> int:
        """How many rows have happened by a time."""
        ...


@dataclass
class RowRange(InputPartition):
    """Rows [start, stop) of a stream whose row 0 happened at the origin."""

    start: int
    stop: int
    origin_us: int


class PacedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"row": rows so far, "origin_us": time of row 0}`."""

    def __init__(self, settings: Paced, schema: StructType) -> None:
        self.settings = settings
        self.target = spark_arrow_schema(schema)
        self.closed_us: int | None = None
        self.resumed: tuple[int, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        """No rows yet; the stream starts now unless an origin was given."""
        origin = self.settings.origin_us
        return {"row": 0, "origin_us": int(time.time() * 1e6) if origin is None else origin}

    def getDefaultReadLimit(self) -> ReadLimit:
        """At most `max_rows_per_trigger`."""
        return ReadAllAvailable() if self.settings.max_rows is None else ReadMaxRows(self.settings.max_rows)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Rows that have happened, up to the limit of this micro-batch."""
        now_us = int(time.time() * 1e6) if self.closed_us is None else self.closed_us
        if self.resumed is None:
            self.resumed = (start["origin_us"], self._resume(start, now_us))
        before_us, origin_us = self.resumed
        origin_us = origin_us if start["origin_us"] == before_us else start["origin_us"]
        row = self.settings.available(origin_us, now_us)
        if isinstance(limit, ReadMaxRows):
            row = min(row, start["row"] + limit.max_rows)
        return {"row": row, "origin_us": origin_us} if row > start["row"] else start

    def _resume(self, start: dict[str, int], now_us: int) -> int:
        """The origin for a query that starts: what stood still for long goes on almost where it was, in time too.

        Rows are numbered on without a hole; only their times move. The origin travels in the offsets, so a replay
        gives the same times. Within a running query it never moves, however far behind the reader is.
        """
        if not self.settings.paced or self.settings.origin_us is not None:
            return start["origin_us"]
        read_until_us = start["origin_us"] + int(start["row"] * 1e6 / self.settings.rate)
        missed_us = now_us - read_until_us - int(self.settings.catch_up_s * 1e6)
        return start["origin_us"] + max(0, missed_us)

    def prepareForTriggerAvailableNow(self) -> None:
        """What happens from now on belongs to a later query."""
        self.closed_us = int(time.time() * 1e6)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[RowRange]:
        """Contiguous ranges in row order. The end's origin counts: the first start is made anew at a restart."""
        ranges = split_range(start["row"], end["row"], self.settings.partitions, _PARTITION_ROWS)
        return [RowRange(first, last, end["origin_us"]) for first, last in ranges]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a range as Arrow batches."""
        for first in range(partition.start, partition.stop, _BATCH_ROWS):
            last = min(first + _BATCH_ROWS, partition.stop)
            yield conform(self.settings.rows(first, last, partition.origin_us), self.target)
