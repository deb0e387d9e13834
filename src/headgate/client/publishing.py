"""Rows of any usual shape into messages of a stream's input."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from headgate.client.errors import ClientError
from headgate.model import Source
from headgate.wire.message import json_value

_SHARE: Final = 0.9


def encode_rows(rows: Any, source: Source, stream: str, max_bytes: int) -> list[bytes]:
    """The messages that carry rows into a stream, each of at most so many bytes.

    >>> encode_rows([{"a": 1}, {"a": 2}], Source("nats", {"payload": "json"}), "s", 1000)
    [b'{"a": 1}', b'{"a": 2}']
    """
    check_published(source, stream)
    return [data for _, data in cut_rows(to_table(rows), source, max_bytes)]


def cut_rows(table: pa.Table, source: Source, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The messages of rows in order, each with how many rows it has."""
    payload = source.options.get("payload", "arrow")
    room = int(max_bytes * _SHARE)
    if payload == "arrow":
        return _arrow(table, room)
    lines = [json.dumps(row, default=json_value).encode() for row in table.to_pylist()]
    for number, line in enumerate(lines):
        if len(line) > room:
            raise ClientError(f"row {number} takes {len(line)} bytes, a message at most {room}", kind="too-large")
    return ((1, line) for line in lines) if payload == "json" else _joined(lines, room)


def check_published(source: Source, stream: str) -> None:
    """Refuse to publish into a stream that does not read what is published."""
    if source.format != "nats":
        raise ClientError(
            f"the stream {stream!r} reads from {source.format!r}, so nothing can be published into it",
            hint="give it `source: {format: nats}`",
            kind="conflict",
        )
    elsewhere = sorted({"url", "log", "subject"} & set(source.options))
    if elsewhere:
        raise ClientError(
            f"the stream {stream!r} reads a subject of its own ({', '.join(elsewhere)})",
            hint="publish there with NATS",
            kind="conflict",
        )


def to_table(rows: Any) -> pa.Table:
    """A record batch, a table, a pandas frame or a list of dicts as a table."""
    match rows:
        case pa.RecordBatch():
            return pa.Table.from_batches([rows])
        case pa.Table():
            return rows
        case list():
            # Columns are those of any row, where Arrow would take those of the first.
            names = dict.fromkeys(name for row in rows for name in row)
            try:
                return pa.table({name: [row.get(name) for row in rows] for name in names})
            except pa.ArrowException as error:
                raise ClientError(f"the rows are not of one type: {str(error).splitlines()[0]}") from error
        case _:
            return pa.Table.from_pandas(rows, preserve_index=False)


def _arrow(table: pa.Table, room: int) -> Iterator[tuple[int, bytes]]:
    """IPC streams, halved until each fits."""
    if not table.num_rows:
        return
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    if len(data) <= room:
        yield table.num_rows, data
    elif table.num_rows == 1:
        raise ClientError(f"a row takes {len(data)} bytes, a message at most {room}", kind="too-large")
    else:
        half = table.num_rows // 2
        yield from _arrow(table.slice(0, half).combine_chunks(), room)
        yield from _arrow(table.slice(half).combine_chunks(), room)


def _joined(lines: list[bytes], room: int) -> Iterator[tuple[int, bytes]]:
    """Lines in as few messages as fit."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and size + len(line) + 1 > room:
            yield len(batch), b"\n".join(batch)
            batch, size = [], 0
        batch.append(line)
        size += len(line) + 1
    if batch:
        yield len(batch), b"\n".join(batch)
