"""Dead letters of a micro-batch: which rows are dead, those among them that are too large, and how they are stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.errors import HeadgateError
from headgate.pipeline.sources.jsontext import RAW
from headgate.pipeline.validate import DEAD, RAW_LENGTH
from headgate.wire.frame import encode_frame
from headgate.wire.message import json_value
from headgate.wire.rows import encode_rows

SHARE: Final = 0.9
"""How much of the server's largest message a part may take; the rest is for headers and class ids."""

_LETTERS: Final = 1000


def mark_oversize(batch: pa.RecordBatch, schema: pa.Schema, room: int) -> pa.RecordBatch:
    """The batch with every row dead that by itself, as it is stored, does not fit a message."""
    if batch.nbytes <= room:
        return batch
    reasons: dict[int, str] = {}
    for place in _large(batch, room):
        row = batch.slice(place, 1)
        size = len(encode_rows(_typed(row, schema)))
        if size > room:
            name, most = max(((name, row.column(name).nbytes) for name in schema.names), key=lambda each: each[1])
            reasons[place] = (
                f"the row takes {size:,} bytes, a message at most {room:,}: column {name!r} alone has {most:,}"
            )
    if not reasons:
        return batch
    marked = [reasons.get(place) or reason for place, reason in enumerate(batch.column(DEAD).to_pylist())]
    return batch.set_column(batch.schema.get_field_index(DEAD), DEAD, pa.array(marked, pa.string()))


def _large(batch: pa.RecordBatch, room: int, first: int = 0) -> Iterator[int]:
    """Places of rows with more than so many bytes, found by halving what is larger than that."""
    if batch.nbytes <= room:
        return
    if batch.num_rows == 1:
        yield first
        return
    half = batch.num_rows // 2
    yield from _large(batch.slice(0, half), room, first)
    yield from _large(batch.slice(half), room, first + half)


def split_dead(batch: pa.RecordBatch, schema: pa.Schema) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Good rows in the stream's schema, and the dead letters beside them."""
    alive = pc.is_null(batch.column(DEAD))
    good, dead = batch, None
    if not pc.all(alive).as_py():
        good, dead = batch.filter(alive), batch.filter(pc.invert(alive))
    return _typed(good, schema), dead


def _typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    missing = [name for name in schema.names if name not in batch.schema.names]
    if missing:  # its query was begun before the stream had them, and is begun again
        raise HeadgateError(
            f"the stream has the new column {missing[0]!r}: the micro-batch is read again with it",
            hint="nothing need be done",
        )
    return pa.RecordBatch.from_arrays([batch.column(field.name).cast(field.type) for field in schema], schema=schema)


def pack_dead(dead: pa.RecordBatch, room: int) -> Iterator[tuple[int, bytes]]:
    """Dead letters as stored: how many a message has, and its bytes; as many messages as are needed."""
    data = encode_dead(dead)
    if dead.num_rows == 1 or (len(data) <= room and dead.num_rows <= _LETTERS):
        yield dead.num_rows, data
        return
    half = dead.num_rows // 2
    yield from pack_dead(dead.slice(0, half), room)
    yield from pack_dead(dead.slice(half), room)


def encode_dead(dead: pa.RecordBatch) -> bytes:
    """Dead letters as stored: reason, raw text and row of each, as JSON lines in a frame; long values are cut."""
    lines = []
    for row in dead.to_pylist():
        reason, raw = row.pop(DEAD), row.pop(RAW)
        kept = {name: _short(value) for name, value in row.items()}
        lines.append(json.dumps({"reason": reason, "raw": raw, "row": kept}, default=json_value))
    text = "\n".join(lines).encode()
    packed = pa.compress(text, codec="zstd", asbytes=True)
    return encode_frame("x", {"rows": dead.num_rows, "size": len(text)}, [packed])


def _short(value: Any) -> Any:
    """A value that is shown in full up to as many characters as the raw text is, and cut beyond."""
    if not isinstance(value, str | bytes | list | dict):
        return value
    text = value if isinstance(value, str | bytes) else json.dumps(value, default=json_value)
    if len(text) <= RAW_LENGTH:
        return value
    shown = text[:RAW_LENGTH]
    return f"{shown if isinstance(shown, str) else shown.hex()}... ({len(text):,} in all)"
