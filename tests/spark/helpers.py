"""The format `headgate` as Spark calls it, without a Spark session: the methods of readers and writers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from tests.live import Live

from headgate.model import Schema
from headgate.model.schema import parse_type
from headgate.spark.source import HeadgateSource

Offset = dict[str, Any]


def options_of(live: Live, **given: Any) -> dict[str, str]:
    """Options that reach a deployment of a test."""
    reached = {"nats": live.address.url, "namespace": live.address.logs.namespace}
    return {**reached, **{name: str(value) for name, value in given.items()}}


def struct(ddl: str) -> StructType:
    """A Spark schema from `name type, ...`, without a session."""
    columns = {}
    for each in ddl.replace("`", "").split(", "):
        name, _, kind = each.partition(" ")
        columns[name] = kind
    found: StructType = from_arrow_schema(pa.schema(list(Schema.of(columns).arrow)))
    assert all(parse_type(kind) is not None for kind in columns.values())
    return found


def open_stream(options: dict[str, str]) -> Any:
    """A streaming reader of all columns."""
    source = HeadgateSource(options)
    return source.streamReader(struct(source.schema()))


def next_batch(reader: Any, start: Offset) -> tuple[Offset, pa.Table]:
    """The next micro-batch, as Spark plans and reads it."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    return end, between(reader, start, end)


def between(reader: Any, start: Offset, end: Offset) -> pa.Table:
    """The rows of a micro-batch, by tasks that read its partitions."""
    return table(reader, reader.partitions(start, end))


def table(reader: Any, partitions: Sequence[Any]) -> pa.Table:
    """The rows of partitions."""
    return pa.Table.from_batches([batch for each in partitions for batch in reader.read(each)], schema=reader.target)
