"""The Spark source `generator`: a seeded stream with exact offsets, paced by the clock or by a row limit.

An offset is the number of rows given so far and the time of row 0, so a batch that is replayed, with any number of
partitions, holds the same rows. Nothing is kept between batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headgate.pipeline.sources.arrow import conform, spark_arrow_schema, split_range
from headgate.pipeline.sources.generator_options import Settings
from headgate.pipeline.sources.generators import ORIGIN_US, generator_of
from headgate.pipeline.sources.options import SourceError

_BATCH_ROWS = 10_000
_PARTITION_ROWS = 5_000


@dataclass
class RowRange(InputPartition):
    """Rows [start, stop) of a stream whose row 0 happened at the origin."""

    start: int
    stop: int
    origin_us: int


class GeneratorSource(DataSource):
    """Registered as `generator`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "generator"

    def schema(self) -> str:
        """The kind's own schema."""
        return str(generator_of(self.options["kind"]).schema.ddl)

    def reader(self, schema: StructType) -> GeneratorTable:
        """A batch reader of the columns asked for."""
        return GeneratorTable(Settings.of(dict(self.options)), schema)

    def streamReader(self, schema: StructType) -> GeneratorReader:
        """A reader of the columns asked for."""
        return GeneratorReader(Settings.of(dict(self.options)), schema)


class GeneratorTable(DataSourceReader):
    """The first `limit` rows as a batch, for recorded runs and oracles."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
        if settings.limit is None:
            raise SourceError("a generator that is read as a batch needs an end", hint="give the option `limit`")
        self.reader = GeneratorReader(settings, schema)

    def partitions(self) -> list[RowRange]:
        """Contiguous ranges in row order."""
        settings = self.reader.settings
        origin_us = ORIGIN_US if settings.origin_us is None else settings.origin_us
        start = {"row": 0, "origin_us": origin_us}
        return self.reader.partitions(start, {**start, "row": settings.limit or 0})

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a range as Arrow batches."""
        return self.reader.read(partition)


class GeneratorReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"row": rows so far, "origin_us": time of row 0}`."""

    def __init__(self, settings: Settings, schema: StructType) -> None:
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
