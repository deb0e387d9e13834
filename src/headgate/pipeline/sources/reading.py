"""A stream's DataFrame: typed columns from any source, with what could not be read beside them.

Every source ends in the same shape: the stream's columns, then `_raw` (the text of a record that could not be read) and
`_error` (why), both null for a row that could. `pipeline.validate` turns them into dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headgate.model import Stream, type_name
from headgate.model.schema import SchemaError
from headgate.pipeline.sources.options import SourceError, one_of

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

RAW = "_raw"
ERROR = "_error"
_CORRUPT = "_corrupt_record"
_NONE: Mapping[str, Any] = {}
_REGISTERED = "headgate.sources"

TEXT_FILES = frozenset({"csv", "json", "xml"})
"""File formats that are read row by row as text: a row that is not in the schema is kept as it stood."""

TYPED_FILES = frozenset({"orc", "parquet", "avro"})
"""File formats that carry types: a file that cannot be read fails the batch."""


def register_sources(spark: SparkSession) -> None:
    """Make the formats `generator` and `nats` known to a session, once."""
    if spark.conf.get(_REGISTERED, None) is not None:
        return
    from headgate.pipeline.sources.generator import GeneratorSource
    from headgate.pipeline.sources.nats import NatsSource

    for source in (GeneratorSource, NatsSource):
        spark.dataSource.register(source)
    spark.conf.set(_REGISTERED, "generator nats")


def check_source(stream: Stream) -> None:
    """Refuse a source that cannot work: unknown options or kinds, or a schema that it does not have. Starts nothing."""
    source = stream.source
    if source.format == "generator":
        from headgate.pipeline.sources.generator import check_generator

        check_generator(source.options, stream.schema)
    if source.format == "nats":
        from headgate.pipeline.sources.nats import Settings

        Settings.of({"url": "nats://the-deployment", **source.options, "stream": stream.name})
    for name in (*stream.key, *([stream.event_time] if stream.event_time else [])):
        stream.schema.column(name)


def read(
    spark: SparkSession,
    stream: Stream,
    *,
    max_rows_per_trigger: int | None = None,
    nats: Mapping[str, Any] = _NONE,
) -> DataFrame:
    """The stream's rows as a streaming DataFrame: its columns in order, then `_raw` and `_error`.

    `max_rows_per_trigger` bounds a micro-batch of Headgate's own sources where their options do not (messages, for
    `nats`); other formats have options of their own for it, such as `maxFilesPerTrigger`, which pass through. `nats`
    is the deployment's own server: `url`, `namespace` and how to log in, for sources that do not name one.
    """
    check_source(stream)
    register_sources(spark)
    source = stream.source
    options = {name: str(value) for name, value in source.options.items()}
    if source.format == "generator":
        return _typed(_load_generator(spark, stream, options, max_rows_per_trigger), stream)
    if source.format == "nats":
        return _load_nats(spark, stream, options, max_rows_per_trigger, nats)
    payload = one_of(options, "payload", ("typed", "json")) if "payload" in options else "typed"
    options.pop("payload", None)
    reader = spark.readStream.format(source.format)
    if source.format in TEXT_FILES and payload == "typed":
        schema = f"{stream.schema.ddl}, `{_CORRUPT}` string"
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, **options}
        return _text_file(reader.schema(schema).options(**options).load(), stream)
    if source.format in TYPED_FILES and payload == "typed":
        reader = reader.schema(stream.schema.ddl)
    frame = reader.options(**options).load()
    return from_json(frame, stream) if payload == "json" else _typed(frame, stream)


def _load_generator(
    spark: SparkSession, stream: Stream, options: dict[str, str], max_rows_per_trigger: int | None
) -> DataFrame:
    if max_rows_per_trigger is not None:
        options.setdefault("max_rows_per_trigger", str(max_rows_per_trigger))
    if "limit" in options and "rate" not in options:
        options.setdefault("pace", "none")
    options.setdefault("rate", str(stream.rate_rows_per_s))
    return spark.readStream.format("generator").schema(stream.schema.ddl).options(**options).load()


def _load_nats(
    spark: SparkSession,
    stream: Stream,
    options: dict[str, str],
    max_rows_per_trigger: int | None,
    server: Mapping[str, Any],
) -> DataFrame:
    if max_rows_per_trigger is not None:
        options.setdefault("max_messages_per_trigger", str(max_rows_per_trigger))
    if "url" not in options:
        options = {**{name: str(value) for name, value in server.items()}, **options}
    reader = spark.readStream.format("nats").options(**options, stream=stream.name)
    if options.get("payload", "arrow") == "arrow":
        return _typed(reader.schema(f"{stream.schema.ddl}, `{RAW}` string, `{ERROR}` string").load(), stream)
    return from_json(reader.schema(f"value string, `{ERROR}` string").load(), stream)


def from_json(frame: DataFrame, stream: Stream) -> DataFrame:
    """Columns from JSON objects in the column `value`, one object a row; an `_error` of the source is kept."""
    from pyspark.sql import functions as f

    if "value" not in frame.columns:
        raise SourceError(
            f"the source {stream.source.format!r} has no column 'value' to read JSON from",
            hint="`payload: json` is for sources of messages; leave it out to read columns " + ", ".join(frame.columns),
        )
    value = f.col("value").cast("string")
    parsed = f.from_json(
        value,
        f"{stream.schema.ddl}, `{_CORRUPT}` string",
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
    )
    given = f.col(ERROR) if ERROR in frame.columns else f.lit(None).cast("string")
    rows = frame.select(value.alias(RAW), given.alias(ERROR), parsed.alias("_row"))
    corrupt = f.col("_row").isNull() | f.col(f"_row.{_CORRUPT}").isNotNull()
    error = f.coalesce(ERROR, f.when(corrupt, f.lit("not a JSON object of the stream's schema")))
    return rows.select(
        *[f.col(f"_row.`{name}`").alias(name) for name in stream.schema.names],
        f.when(error.isNotNull(), f.col(RAW)).alias(RAW),
        error.alias(ERROR),
    )


def _text_file(frame: DataFrame, stream: Stream) -> DataFrame:
    from pyspark.sql import functions as f

    error = f.when(f.col(_CORRUPT).isNotNull(), f.lit(f"not a {stream.source.format} record of the stream's schema"))
    return frame.select(
        *[f.col(f"`{name}`") for name in stream.schema.names], f.col(_CORRUPT).alias(RAW), error.alias(ERROR)
    )


def _typed(frame: DataFrame, stream: Stream) -> DataFrame:
    """The stream's columns of a typed source. A value that its declared type cannot hold makes the row an error."""
    from pyspark.sql import functions as f

    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    columns: list[SparkColumn] = []
    errors: list[SparkColumn] = [f.col(ERROR)] if ERROR in types else []
    for column in stream.schema.columns:
        if column.name not in types:
            raise SchemaError(
                f"stream {stream.name!r} declares the column {column.name!r}, which its source "
                f"{stream.source.format!r} does not have",
                hint="the source has " + ", ".join(types),
            )
        found, declared = f.col(f"`{column.name}`"), type_name(column.type)
        if types[column.name] == declared:
            columns.append(found)
            continue
        cast = found.try_cast(declared)
        columns.append(cast.alias(column.name))
        lost = found.isNotNull() & cast.isNull()
        errors.append(f.when(lost, f.lit(f"column {column.name!r} is not a {declared}")))
    nothing = f.lit(None).cast("string")
    error = f.coalesce(*errors) if errors else nothing
    raw = f.col(RAW) if RAW in types else nothing
    return frame.select(*columns, raw.alias(RAW), error.alias(ERROR))
