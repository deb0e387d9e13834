"""The Spark source `generator`: a seeded stream with exact offsets, paced by the clock or by a row limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from headgate.pipeline.sources.generator_options import GeneratorSettings
from headgate.pipeline.sources.generators import ORIGIN_US, generator_of
from headgate.pipeline.sources.options import SourceError
from headgate.pipeline.sources.paced import PacedReader, RowRange


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
        return GeneratorTable(GeneratorSettings.of(dict(self.options)), schema)

    def streamReader(self, schema: StructType) -> PacedReader:
        """A reader of the columns asked for."""
        return PacedReader(GeneratorSettings.of(dict(self.options)), schema)


class GeneratorTable(DataSourceReader):
    """The first `limit` rows as a batch, for recorded runs and oracles."""

    def __init__(self, settings: GeneratorSettings, schema: StructType) -> None:
        if settings.limit is None:
            raise SourceError("a generator that is read as a batch needs an end", hint="give the option `limit`")
        self.settings = settings
        self.reader = PacedReader(settings, schema)

    def partitions(self) -> list[RowRange]:
        """Contiguous ranges in row order."""
        settings = self.settings
        origin_us = ORIGIN_US if settings.origin_us is None else settings.origin_us
        start = {"row": 0, "origin_us": origin_us}
        return self.reader.partitions(start, {**start, "row": settings.limit or 0})

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a range as Arrow batches."""
        return self.reader.read(partition)
