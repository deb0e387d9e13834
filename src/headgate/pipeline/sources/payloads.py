"""Messages into rows: Arrow IPC streams into typed columns, JSON into lines of text. A bad message is never an error.

What cannot be read becomes a row with nulls, its text in `_raw` and the reason in `_error`. Where one row of an Arrow
message does not fit the schema, the others of that message still do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

PAYLOADS = ("arrow", "json", "jsonl")
"""An Arrow IPC stream, one JSON object a message, or JSON objects a line each."""

TEXT_SCHEMA = pa.schema([("value", pa.string()), ("_error", pa.string())])
_RAW_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class PayloadMessage:
    """A message with its sequence in its log."""

    sequence: int
    data: bytes


def decode_text(messages: Iterable[PayloadMessage], *, lines: bool) -> pa.RecordBatch:
    """One row a message, or one a line where `lines`; blank lines are not rows.

    >>> messages = [PayloadMessage(1, b'{"a": 1}'), PayloadMessage(2, bytes([255]))]
    >>> decode_text(messages, lines=False)["_error"].to_pylist()
    [None, 'message 2 is not UTF-8']
    """
    values: list[bytes] = []
    origins: list[int] = []
    for message in messages:
        found = [line for line in message.data.split(b"\n") if line.strip()] if lines else [message.data]
        values += found
        origins += [message.sequence] * len(found)
    try:
        texts = pa.array(values, pa.binary()).cast(pa.string())
        errors = pa.nulls(len(values), pa.string())
    except pa.ArrowInvalid:
        reasons = [
            None if _is_utf8(value) else f"message {origin} is not UTF-8"
            for value, origin in zip(values, origins, strict=True)
        ]
        texts = pa.array([value.decode(errors="replace") for value in values], pa.string())
        errors = pa.array(reasons, pa.string())
    return pa.RecordBatch.from_arrays([texts, errors], schema=TEXT_SCHEMA)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def decode_arrow(messages: Iterable[PayloadMessage], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of the schema's columns, of which the last two are `_raw` and `_error`.

    Columns are found by name; one that is missing is null, one that the schema does not have is left out. Numbers are
    widened and narrowed where no value changes; text is never read as a number nor a number as text.
    """
    for message in messages:
        try:
            with pa.ipc.open_stream(message.data) as reader:
                batches = list(reader)
            for batch in batches:
                batch.validate(full=True)
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = f"message {message.sequence} is not an Arrow stream: {str(error).splitlines()[0]}"
            yield dead_row(f"{len(message.data)} bytes: {message.data[:48].hex(' ')}", reason, schema)
            continue
        for batch in batches:
            yield from _fit(batch, message.sequence, schema)


def dead_row(raw: str | None, reason: str, schema: pa.Schema) -> pa.RecordBatch:
    """One row of nulls with its `_raw` and `_error`."""
    given = {"_raw": raw, "_error": reason}
    return pa.RecordBatch.from_arrays(
        [pa.array([given.get(field.name)], field.type) for field in schema], schema=schema
    )


def _fit(batch: pa.RecordBatch, sequence: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        yield _cast(batch, schema)
    except _MisfitError as error:
        if batch.num_rows <= 1:
            raw = json.dumps(batch.to_pylist()[0], default=str)[:_RAW_LENGTH] if batch.num_rows else None
            if raw is not None:
                yield dead_row(raw, f"message {sequence}: {error}", schema)
            return
        half = batch.num_rows // 2
        yield from _fit(batch.slice(0, half), sequence, schema)
        yield from _fit(batch.slice(half), sequence, schema)


class _MisfitError(Exception):
    """A column's values do not fit the stream's type."""


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        places = batch.schema.get_all_field_indices(field.name)
        if field.name in ("_raw", "_error") or not places:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(places[0])
        if not column.type.equals(field.type):
            if not _related(column.type, field.type):
                raise _MisfitError(f"column {field.name!r} is {column.type}, not {field.type}")
            try:
                column = column.cast(field.type)
            except pa.ArrowException as error:
                raise _MisfitError(
                    f"column {field.name!r} is not {field.type}: {str(error).splitlines()[0]}"
                ) from error
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _related(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether a cast keeps the meaning: numbers to numbers, text to text, times to times, nested types part by part."""
    if pa.types.is_null(one):
        return True
    if pa.types.is_dictionary(one):
        return _related(one.value_type, other)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return one.num_fields == other.num_fields and all(
            mine.name == theirs.name and _related(mine.type, theirs.type)
            for mine, theirs in zip(one, other, strict=True)
        )
    if _is_list(one) and _is_list(other):
        return _related(one.value_type, other.value_type)
    if pa.types.is_map(one) and pa.types.is_map(other):
        return _related(one.key_type, other.key_type) and _related(one.item_type, other.item_type)
    return any(
        family(one) and family(other) for family in (_is_number, _is_text, pa.types.is_timestamp, _is_bytes)
    ) or (one.equals(other))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))
