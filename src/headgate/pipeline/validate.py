"""Validation: every row either fits the stream's schema or is a dead letter with its reason. One pass, no Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.model import Stream
from headgate.model.schema import SchemaError
from headgate.pipeline.sources.jsontext import ERROR, RAW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEAD = "_dead"
"""Why a row is a dead letter; null for a good row."""

RAW_LENGTH = 4096
"""Characters of a record that could not be read which a dead letter keeps."""


def validate(frame: DataFrame, stream: Stream) -> DataFrame:
    """The stream's columns, then `_dead` (why a row is a dead letter, null for a good one) and `_raw`.

    A row is dead when its source could not read it, or when a column of the key, the event time or a column of the
    stream's option `required` is null. Dead rows stay where they are, so that one pass matches the good rows and
    counts the others. Columns that the schema does not have are left out; one that it has and the frame has not is
    an error of the deployment, not of a row.
    """
    from pyspark.sql import functions as f

    missing = [name for name in stream.schema.names if name not in frame.columns]
    if missing:
        raise SchemaError(
            f"stream {stream.name!r} lacks the column {missing[0]!r} of its schema",
            hint="columns are " + ", ".join(frame.columns),
        )
    reasons = [f.col(ERROR)] if ERROR in frame.columns else []
    unread = f.col(ERROR).isNotNull() if ERROR in frame.columns else f.lit(False)
    for name, what in required_columns(stream).items():
        reasons.append(f.when(~unread & f.col(f"`{name}`").isNull(), f.lit(f"{what} {name!r} is null")))
    nothing = f.lit(None).cast("string")
    dead = f.nullif(f.concat_ws("; ", *reasons), f.lit("")) if reasons else nothing
    raw = f.substring(f.col(RAW), 1, RAW_LENGTH) if RAW in frame.columns else nothing
    return frame.select(*[f.col(f"`{name}`") for name in stream.schema.names], dead.alias(DEAD), raw.alias(RAW))


def required_columns(stream: Stream) -> dict[str, str]:
    """Columns that must not be null, each with the word for what it is."""
    found = {str(name): "column" for name in stream.options.get("required", ())}
    if stream.event_time is not None:
        found[stream.event_time] = "event time"
    return {**found, **dict.fromkeys(stream.key, "key column")}
