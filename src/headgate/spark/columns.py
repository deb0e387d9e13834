"""Columns of a subscription and of a stream as Spark sees them, and the metadata column of what was given up.

With the option `metadata` every row has its stream and sequence number in `_headgate`. A range in which something was
given up is a row of its own, behind the rows of the range: its columns are null, `_headgate.seq` too, and
`_headgate.given_up` counts rows by reason. `rows` and `given_up` take such a frame apart.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.client import Delivery
from headgate.client.names import known_names
from headgate.errors import HeadgateError, nearest
from headgate.model import Schema
from headgate.model.schema import type_name
from headgate.wire.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

METADATA: Final = "_headgate"
_METADATA_TYPE: Final = (
    "struct<stream:string,seq:bigint,after:bigint,upto:bigint,given_up:map<string,bigint>,digest:string,shed:bigint,"
    "unsent:map<string,bigint>>"
)


class SparkSchemaError(HeadgateError):
    """A schema that does not fit the subscription or the stream."""


def rows(frame: DataFrame) -> DataFrame:
    """The rows of a frame that was read with `metadata`, without what was given up."""
    return frame.where(f"{METADATA}.seq is not null")


def given_up(frame: DataFrame) -> DataFrame:
    """What was given up, of a frame that was read with `metadata`: a row for each range, with counts by reason."""
    return frame.where(f"{METADATA}.seq is null").select(f"{METADATA}.*").drop("seq")


def delivered_schema(snapshot: Snapshot, name: str, *, metadata: bool) -> Schema:
    """The columns of a subscription, as it is now, and the metadata column if it is asked for."""
    first = snapshot.deployment.subscriptions[known_names(name, snapshot)[0]]
    schema = snapshot.deployment.streams[first.stream].schema.select(first.select)
    if not metadata:
        return schema
    return Schema((*schema.columns, *Schema.of({METADATA: _METADATA_TYPE}).columns))


def check_columns(asked: StructType, has: Schema, what: str, fix: str) -> None:
    """Refuse a schema with a column that is not there, or of another type."""
    types = {column.name: type_name(column.type) for column in has.columns}
    for field in asked.fields:
        if field.name not in types:
            close = nearest(field.name, types)
            hint = f"did you mean {close!r}?" if close else f"it has {', '.join(types)}"
            raise SparkSchemaError(f"{what} has no column {field.name!r}", hint=hint)
        given = field.dataType.simpleString()
        if given != types[field.name].replace(", ", ","):
            wanted = types[field.name]
            raise SparkSchemaError(
                f"column {field.name!r} of {what} is {wanted}, not {given}",
                hint=fix.format(name=field.name, type=wanted),
            )


def batches(delivery: Delivery, stream: str, target: pa.Schema) -> list[pa.RecordBatch]:
    """A delivery as Spark takes it: its rows, and where the metadata column is asked for, what was given up."""
    found = [_conformed(delivery.rows, target, [_row(stream, seq) for seq in delivery.seqs.tolist()])]
    told = delivery.given_up or delivery.shed or delivery.unsent
    if told and METADATA in target.names:
        found.append(_conformed(None, target, [_given_up(stream, delivery)]))
    return [each for each in found if each.num_rows]


def _row(stream: str, seq: int) -> dict[str, Any]:
    return {"stream": stream, "seq": seq}


def _given_up(stream: str, delivery: Delivery) -> dict[str, Any]:
    return {
        "stream": stream,
        "after": delivery.after,
        "upto": delivery.upto,
        "given_up": list(delivery.given_up.items()),
        "digest": json.dumps(delivery.digest, default=str) if delivery.digest else None,
        "shed": delivery.shed,
        "unsent": list(delivery.unsent.items()),
    }


def _conformed(rows_: pa.RecordBatch | None, target: pa.Schema, metadata: list[dict[str, Any]]) -> pa.RecordBatch:
    """The target's columns; one that the rows do not have, as it was added since, is null."""
    columns = []
    for field in target:
        if field.name == METADATA:
            columns.append(pa.array(metadata, field.type))
        elif rows_ is None or field.name not in rows_.schema.names:
            columns.append(pa.nulls(len(metadata), field.type))
        else:
            columns.append(rows_.column(field.name).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=target)
