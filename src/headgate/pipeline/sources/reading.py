"""A stream's DataFrame: typed columns from any source, with what could not be read beside them.

Every source ends in the same shape: the stream's columns, then `_raw` (the text of a record that could not be read) and
`_error` (why), both null for a row that could. `pipeline.validate` turns them into dead letters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headgate.model import Stream, type_name
from headgate.model.schema import SchemaError
from headgate.pipeline.sources.jsontext import CORRUPT, ERROR, RAW, from_json, misfits
from headgate.pipeline.sources.options import check_socket, one_of

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

_FRACTIONAL = ("float", "double", "decimal")
_WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
_NONE: Mapping[str, Any] = {}
_REGISTERED = "headgate.sources"

TEXT_FILES = frozenset({"csv", "json", "xml"})
"""File formats that are read row by row as text: a row that is not in the schema is kept as it stood."""

NOT_BY_LINE = frozenset({"multiline", "encoding", "charset", "columnnameofcorruptrecord", "mode"})
"""Options with which JSON files are left to Spark's own reader, which ignores what follows an object in its line."""

GRID_FILES = frozenset({"netcdf", "zarr"})
"""Recorded fields, which are replayed step by step."""

TYPED_FILES = frozenset({"orc", "parquet", "avro"})
"""File formats that carry types: a file that cannot be read fails the batch."""


def register_sources(spark: SparkSession, anew: str | None = None) -> None:
    """Make Headgate's own formats known to a session, once, and one of them again for the query that is to read it.

    Spark keeps one map of environment variables for each registration, and every query that reads it writes into that
    map when it starts. Two that start at the same time can spoil it for good: then no task can be sent any more. So
    each query gets a registration of its own.
    """
    sources = own_sources()
    known = spark.conf.get(_REGISTERED, None) is not None
    for source in sources:
        if not known or source.name() == anew:
            spark.dataSource.register(source)
    spark.conf.set(_REGISTERED, " ".join(source.name() for source in sources))


def own_sources() -> tuple[type[DataSource], ...]:
    """The formats that Spark gets from Headgate: those of deployment files, and `headgate-idle`, which stages use."""
    from headgate.pipeline.sources.generator import GeneratorSource
    from headgate.pipeline.sources.grid_file_source import NetcdfSource, ZarrSource
    from headgate.pipeline.sources.idle import IdleSource
    from headgate.pipeline.sources.nats import NatsSource

    return (GeneratorSource, NatsSource, NetcdfSource, ZarrSource, IdleSource)


def check_source(stream: Stream) -> None:
    """Refuse a source that cannot work: unknown options or kinds, or a schema that it does not have. Starts nothing."""
    source = stream.source
    given = stream.source_schema
    if "gridding" in stream.options:
        from headgate.grid.gridding_document import station_schema

        given = station_schema(stream)
    if source.format == "generator":
        from headgate.pipeline.sources.generator_options import check_generator

        check_generator(source.options, given)
    if source.format in GRID_FILES:
        from headgate.pipeline.sources.grid_file_options import check_grid_file

        check_grid_file(source.format, source.options, given)
    if source.format == "nats":
        from headgate.pipeline.sources.nats_options import NatsSettings

        NatsSettings.of({"url": "nats://the-deployment", **source.options, "stream": stream.name})
    if source.format == "socket":
        check_socket(source.options)
    if source.collected:
        from headgate.pipeline.sources.collected_options import CollectedSettings

        CollectedSettings.of(source.format, source.options)
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
    source = stream.source
    register_sources(spark, "nats" if source.collected else source.format)
    options = {name: str(value) for name, value in source.options.items()}
    if source.format == "generator":
        return _typed(_load_generator(spark, stream, options, max_rows_per_trigger), stream)
    if source.format in GRID_FILES:
        return _typed(_load_paced(spark, stream, options, max_rows_per_trigger), stream)
    if source.format == "nats":
        return _load_nats(spark, stream, options, max_rows_per_trigger, nats)
    if source.collected:
        from headgate.pipeline.sources.collected_options import reading_options

        return _load_nats(spark, stream, reading_options(source.options), max_rows_per_trigger, nats)
    return _load_any(spark.readStream.format, stream, options, typed_by_stream=True)


def read_recorded(spark: SparkSession, stream: Stream) -> DataFrame:
    """Recorded rows of a stream as a DataFrame of the same shape, read at once by any batch format of Spark.

    The stream's source says the format and its options, with the `path` among them. Files that carry types are read in
    their own, and their values are cast as those of any other typed source.
    """
    options = {name: str(value) for name, value in stream.source.options.items()}
    return _load_any(spark.read.format, stream, options, typed_by_stream=False)


def _load_any(
    reader_of: Callable[[str], Any], stream: Stream, options: dict[str, str], *, typed_by_stream: bool
) -> DataFrame:
    """The rows of a format that Spark has, by a reader of streams or of recorded data."""
    source = stream.source
    payload = one_of(options, "payload", ("typed", "json"))
    options.pop("payload", None)
    reader = reader_of(source.format)
    if payload == "json":
        return from_json(reader.options(**options).load(), stream)
    if source.format == "json" and not NOT_BY_LINE & {name.lower() for name in options}:
        lines = reader_of("text").options(**options).load()
        return from_json(lines.where("trim(value) != ''"), stream)
    if source.format in TEXT_FILES:
        schema = f"{stream.schema.ddl}, `{CORRUPT}` string"
        # By default Spark takes a CSV file's columns by place, whatever its header says.
        defaults = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "enforceSchema": "false"}
        return _text_file(reader.schema(schema).options(**{**defaults, **options}).load(), stream)
    if source.format in TYPED_FILES and typed_by_stream:
        reader = reader.schema(stream.schema.ddl)
    return _typed(reader.options(**options).load(), stream)


def _load_generator(
    spark: SparkSession, stream: Stream, options: dict[str, str], max_rows_per_trigger: int | None
) -> DataFrame:
    if max_rows_per_trigger is not None:
        options.setdefault("max_rows_per_trigger", str(max_rows_per_trigger))
    if "limit" in options and "rate" not in options:
        options.setdefault("pace", "none")
    options.setdefault("rate", str(stream.rate_rows_per_s or 1.0))
    return spark.readStream.format("generator").schema(stream.schema.ddl).options(**options).load()


def _load_paced(
    spark: SparkSession, stream: Stream, options: dict[str, str], max_rows_per_trigger: int | None
) -> DataFrame:
    if max_rows_per_trigger is not None:
        options.setdefault("max_rows_per_trigger", str(max_rows_per_trigger))
    if "every" not in options:
        options.setdefault("rate", str(stream.rate_rows_per_s or 1.0))
    return spark.readStream.format(stream.source.format).options(**options).load()


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


def _text_file(frame: DataFrame, stream: Stream) -> DataFrame:
    from pyspark.sql import functions as f

    reason = f.lit(f"not a {stream.source.format} record of the stream's schema")
    if stream.source.format == "csv":
        options = {name: str(value) for name, value in stream.source.options.items() if name.lower() != "path"}
        texts = f.from_csv(CORRUPT, ", ".join(f"`{name}` string" for name in stream.schema.names), options)
        reason = f.coalesce(misfits(stream.schema.columns, lambda name: f.col(f"`{name}`"), texts.getField), reason)
    error = f.when(f.col(CORRUPT).isNotNull(), reason)
    return frame.select(
        *[f.col(f"`{name}`") for name in stream.schema.names], f.col(CORRUPT).alias(RAW), error.alias(ERROR)
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
        if types[column.name].startswith(_FRACTIONAL) and declared in _WHOLE:
            lost |= cast.cast(types[column.name]) != found
        errors.append(f.when(lost, f.lit(f"column {column.name!r} is not a {declared}")))
    nothing = f.lit(None).cast("string")
    error = f.coalesce(*errors) if errors else nothing
    raw = f.col(RAW) if RAW in types else nothing
    return frame.select(*columns, raw.alias(RAW), error.alias(ERROR))
