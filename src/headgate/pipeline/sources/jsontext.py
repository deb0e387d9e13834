"""JSON objects in text into typed columns, as Spark expressions.

Spark reads the first JSON value of a text and passes over what follows it, so two objects in one message would be one
row and one silent loss. Here such a text is an error like any other that is not one object of the stream's schema. So
is what Spark would change without a word: bytes that are not UTF-8, an object in a column of text, a number that
becomes infinite. The reason of an error names the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.model import Column, Stream, type_name
from headgate.pipeline.sources.options import SourceError, one_of

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

RAW = "_raw"
ERROR = "_error"
CORRUPT = "_corrupt_record"

JSON_OPTIONS = frozenset(
    {
        "allowbackslashescapinganycharacter",
        "allowcomments",
        "allownonnumericnumbers",
        "allownumericleadingzeros",
        "allowsinglequotes",
        "allowunquotedcontrolchars",
        "allowunquotedfieldnames",
        "dateformat",
        "enabledatetimeparsingfallback",
        "locale",
        "timestampformat",
        "timezone",
    }
)
"""Options of Spark's JSON reader that a source of JSON may give."""

# Put after a text inside of an array, they are counted only if the text was one whole value.
_MARKS = ",{},{},{}]"
_COUNT = 4
# A column that no object has: the parser only skips what it meets.
_NOTHING = "array<struct<`\u00a0`:boolean>>"


def from_json(frame: DataFrame, stream: Stream) -> DataFrame:
    """The stream's columns from JSON objects in the column `value`, one object a row, then `_raw` and `_error`.

    An `_error` that the source gives is kept. Columns of the stream that the frame already has, such as those of
    partitioned directories, are taken from there. The source may give options of Spark's JSON reader (`timestampFormat`
    and the like); with `unknown_columns: dead` an object with a key that the schema does not have is an error too.
    """
    from pyspark.sql import functions as f

    if "value" not in frame.columns:
        raise SourceError(
            f"the source {stream.source.format!r} has no column 'value' to read JSON from",
            hint="`payload: json` is for sources of messages; leave it out to read columns " + ", ".join(frame.columns),
        )
    options = {name: str(value) for name, value in stream.source.options.items()}
    strict = one_of(options, "unknown_columns", ("ignore", "dead")) == "dead"
    given_text = f.col("value").cast("string")
    value = f.make_valid_utf8(given_text)
    reading = {name: text for name, text in options.items() if name.lower() in JSON_OPTIONS}
    reading |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = f.from_json(value, f"{stream.schema.ddl}, `{CORRUPT}` string", reading)
    given = f.col(ERROR) if ERROR in frame.columns else f.lit(None).cast("string")
    there = [name for name in stream.schema.names if name in frame.columns and name != "value"]
    whole = f.size(f.from_json(f.concat(f.lit("["), value, f.lit(_MARKS)), _NOTHING, reading)) == _COUNT
    rows = frame.select(
        *there,
        value.alias(RAW),
        f.coalesce(given, f.when(~f.is_valid_utf8(given_text), f.lit("not UTF-8"))).alias(ERROR),
        parsed.alias("_row"),
        f.coalesce(whole, f.lit(False)).alias("_whole"),
    )
    corrupt = f.col("_row").isNull() | f.col(f"_row.{CORRUPT}").isNotNull() | ~f.col("_whole")
    parsed_columns = [column for column in stream.schema.columns if column.name not in there]
    texts = f.from_json(RAW, ", ".join(f"`{column.name}` string" for column in parsed_columns) or "`_` string", reading)
    reason = f.coalesce(
        misfits(parsed_columns, lambda name: f.col(f"_row.`{name}`"), texts.getField),
        f.lit("not a JSON object of the stream's schema"),
    )
    errors = [
        f.col(ERROR),
        f.when(corrupt & ~f.col("_whole"), f.lit("not one JSON object")).when(corrupt, reason),
        *[wrong for column in parsed_columns if (wrong := _not_as_written(column)) is not None],
    ]
    if strict:
        known = f.array(*[f.lit(name) for name in stream.schema.names])
        unknown = f.array_except(f.json_object_keys(RAW), known)
        errors.append(f.when(f.size(unknown) > 0, f.concat(f.lit("unknown columns: "), f.array_join(unknown, ", "))))
    columns = [
        f.col(f"`{name}`") if name in there else f.col(f"_row.`{name}`").alias(name) for name in stream.schema.names
    ]
    judged = rows.select(*columns, RAW, f.coalesce(*errors).alias(ERROR))
    return judged.withColumn(RAW, f.when(f.col(ERROR).isNotNull(), f.col(RAW)))


def misfits(
    columns: Sequence[Column], typed: Callable[[str], SparkColumn], text: Callable[[str], SparkColumn]
) -> SparkColumn:
    """Which columns have a text and no value of their type, in words; null where none has."""
    from pyspark.sql import functions as f

    found = [
        f.when(typed(column.name).isNull() & text(column.name).isNotNull(), f.lit(_misfit(column)))
        for column in columns
    ]
    return f.nullif(f.concat_ws("; ", *found), f.lit("")) if found else f.lit(None).cast("string")


def _misfit(column: Column) -> str:
    return f"column {column.name!r} is not a {type_name(column.type)}"


def _not_as_written(column: Column) -> SparkColumn | None:
    """Why a value that Spark took is not the one that was written: an object as text, a number that became infinite.

    The text is parsed again only where the value looks like that.
    """
    from pyspark.sql import functions as f

    if '"' in column.name or "'" in column.name:
        return None
    value = f.col(f"_row.`{column.name}`")
    written = f.schema_of_variant(f.try_variant_get(f.try_parse_json(RAW), f"$['{column.name}']", "variant"))
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        nested = value.startswith("{") | value.startswith("[")
        shape = f.coalesce(written, f.lit(""))
        is_nested = shape.startswith("OBJECT") | shape.startswith("ARRAY")
        return f.when(nested, f.when(is_nested, f.lit(f"{_misfit(column)} but an object or a list")))
    if pa.types.is_floating(column.type):
        infinite = f.abs(value) == f.lit(float("inf"))
        return f.when(
            infinite,
            f.when(
                written != "STRING", f.lit(f"column {column.name!r} is beyond what a {type_name(column.type)} holds")
            ),
        )
    return None
