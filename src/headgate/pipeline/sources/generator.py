"""The Spark source `generator`: a seeded stream with exact offsets, paced by the clock or by a row limit.

An offset is the number of rows given so far and the time of row 0, so a batch that is replayed, with any number of
partitions, holds the same rows. Nothing is kept between batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headgate.model import Schema, parse_duration, type_name
from headgate.model.schema import SchemaError
from headgate.pipeline.sources.arrow import conform, spark_arrow_schema, split_range
from headgate.pipeline.sources.generators import ORIGIN_US, generate, generator_of
from headgate.pipeline.sources.options import SourceError, check_names, count, instant_us, one_of, rate, whole

OPTIONS: Mapping[str, str] = {
    "kind": "weather, fleet, pulse or ticks",
    "seed": "a whole number; the same seed gives the same rows (0)",
    "rate": "rows a second (the stream's expected rate)",
    "limit": "rows in total; the stream ends there (no limit)",
    "pace": "`clock`, or `none`: every row up to the limit is there at once (`none` where only a limit is given)",
    "origin": "the time of row 0 (when the stream starts; the start of 2026 where the pace is `none`)",
    "catch_up": "how much of a pause is made up for at a restart, where no origin is given (60 s)",
    "max_rows_per_trigger": "rows in one micro-batch (no limit)",
    "partitions": "tasks that a large micro-batch is made by (2)",
}
"""Options of every kind; each kind has its own besides, such as `vehicles`."""

_BATCH_ROWS = 10_000
_PARTITION_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a generator source, checked."""

    kind: str
    seed: int
    rate: float
    limit: int | None
    paced: bool
    origin_us: int | None
    max_rows: int | None
    partitions: int
    catch_up_s: float
    own: Mapping[str, int]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Settings:
        """Check the options as they stand in a deployment file."""
        options = {name.lower(): str(value) for name, value in options.items()}
        generator = generator_of(options.get("kind", "none"))
        check_names("generator", options, {**OPTIONS, **dict.fromkeys(generator.options, "")})
        limit = count(options, "limit")
        words = ("none", "clock") if limit is not None and "rate" not in options else ("clock", "none")
        pace = one_of(options, "pace", words)
        origin = instant_us(options["origin"], "origin") if "origin" in options else None
        return cls(
            kind=generator.kind,
            seed=whole(options, "seed", 0),
            rate=rate(options, 100.0),
            limit=limit,
            paced=pace == "clock",
            origin_us=ORIGIN_US if origin is None and pace == "none" else origin,
            max_rows=count(options, "max_rows_per_trigger"),
            partitions=count(options, "partitions", 2) or 2,
            catch_up_s=parse_duration(options.get("catch_up", "60 s")),
            own={name: count(options, name, default) or default for name, default in generator.options.items()},
        )

    def rows(self, start: int, stop: int, origin_us: int) -> pa.RecordBatch:
        """Rows [start, stop) of this stream."""
        return generate(self.kind, self.seed, start, stop, rate=self.rate, origin_us=origin_us, **self.own)

    def available(self, origin_us: int, now_us: int) -> int:
        """How many rows have happened by a time, the first at the origin. Rows that share a time come together."""
        if not self.paced and self.limit is not None:
            return self.limit
        group = generator_of(self.kind).group(self.own)
        if now_us < origin_us:
            return 0
        whole = (int((now_us - origin_us) * self.rate / 1e6) // group + 1) * group
        return whole if self.limit is None else min(whole, self.limit)


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


def check_generator(options: Mapping[str, str], schema: Schema) -> Settings:
    """The settings of a generator source, or what is wrong with its options or the stream's schema."""
    settings = Settings.of(options)
    own = generator_of(settings.kind).schema
    for column in schema.columns:
        made = own.column(column.name)
        if not made.type.equals(column.type):
            raise SchemaError(
                f"column {column.name!r} is declared as {type_name(column.type)}, but the generator "
                f"{settings.kind!r} makes {type_name(made.type)}",
                hint="declare it so",
            )
    return settings
