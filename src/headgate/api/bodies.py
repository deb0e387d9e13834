"""Rows in the body of a request: JSON, JSON lines, CloudEvents or Arrow, and which of them fit their stream.

A row that does not fit is named by its place in the body, counted from 0, with the reason. Whether it is refused or
becomes a dead letter of the stream is up to whoever sends it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from headgate.api.problems import ApiError
from headgate.errors import HeadgateError
from headgate.model import Stream, type_name
from headgate.pipeline.sources.payloads import PayloadMessage, decode_arrow
from headgate.pipeline.validate import required_columns
from headgate.wire.message import from_json

JSON: Final = "application/json"
LINES: Final = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines", "application/ndjson")
ARROW: Final = "application/vnd.apache.arrow.stream"
EVENT: Final = "application/cloudevents+json"
EVENTS: Final = "application/cloudevents-batch+json"
KINDS: Final = (JSON, *LINES, ARROW, EVENT, EVENTS)


@dataclass(frozen=True, slots=True)
class RowMisfit:
    """A row of a body that does not fit its stream."""

    row: int
    reason: str

    def document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"row": self.row, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Body:
    """The rows of a body that fit, as a table of the stream's types, and the others.

    `raw` has the rows that do not fit as far as they can be told, for dead letters. `key` is the identity that the
    sender gave the rows (the source and id of a CloudEvent).
    """

    rows: pa.Table
    misfits: tuple[RowMisfit, ...] = ()
    raw: tuple[Any, ...] = ()
    key: str | None = None


@dataclass(slots=True)
class _Given:
    """Rows as they were written, and what could not be read at all."""

    rows: list[tuple[int, Any]] = field(default_factory=list)
    misfits: list[RowMisfit] = field(default_factory=list)
    raw: list[Any] = field(default_factory=list)


def read_bodies(data: bytes, headers: Mapping[str, str], stream: Stream) -> list[Body]:
    """The rows of a request: one body, or one for each CloudEvent of it. They have the columns of a source."""
    stream = replace(stream, schema=stream.source_schema)
    kind = headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if kind == ARROW:
        return [_arrow(data, stream)]
    if kind in (EVENT, EVENTS):
        return _events(_json(data), stream, batch=kind == EVENTS)
    if kind in LINES:
        return [_fitted(_lines(data), stream)]
    if kind != JSON:
        raise ApiError(f"rows cannot be read from {kind[:100]!r}", hint=f"send {', '.join(KINDS)}", kind="unsupported")
    found = _json(data)
    key = None
    if "ce-id" in headers:  # a CloudEvent whose attributes are headers
        key = _event_key(headers.get("ce-source"), headers["ce-id"])
    rows = found if isinstance(found, list) else [found]
    return [_fitted(_Given(list(enumerate(rows))), stream, key)]


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ApiError(f"the body is not JSON: {str(error)[:200] or 'nested too deep'}") from None


def _lines(data: bytes) -> _Given:
    found = _Given()
    numbered = ((number, line) for number, line in enumerate(data.split(b"\n")) if line.strip())
    for row, (number, line) in enumerate(numbered):
        try:
            found.rows.append((row, json.loads(line)))
        except (ValueError, RecursionError) as error:
            found.misfits.append(RowMisfit(row, f"line {number + 1} is not JSON: {str(error)[:200]}"))
            found.raw.append(line.decode(errors="replace"))
    return found


def _events(document: Any, stream: Stream, *, batch: bool) -> list[Body]:
    events = document if batch else [document]
    if not isinstance(events, list):
        raise ApiError("a batch of CloudEvents is a list", hint=f"send one event as {EVENT}")
    found = []
    for number, event in enumerate(events):
        if not isinstance(event, dict) or not {"specversion", "id", "source", "type"} <= event.keys():
            raise ApiError(
                f"event {number} is no CloudEvent", hint="it needs specversion, id, source, type and its row as data"
            )
        data = event.get("data")
        rows = data if isinstance(data, list) else [data]
        given = _Given([(number, row) for row in rows])
        found.append(_fitted(given, stream, _event_key(event["source"], event["id"])))
    return found


def _event_key(source: Any, identity: Any) -> str:
    """What makes a CloudEvent the same one as another: its source and its id."""
    return json.dumps([str(source), str(identity)])


def _fitted(given: _Given, stream: Stream, key: str | None = None) -> Body:
    """Written rows as a table of the stream's types; those that do not fit are named."""
    good, misfits, raw = [], list(given.misfits), list(given.raw)
    strict = stream.source.options.get("unknown_columns") == "dead"
    needed = required_columns(stream)
    for number, row in given.rows:
        try:
            good.append(_typed(row, stream, needed, strict=strict))
        except _UnfitError as error:
            misfits.append(RowMisfit(number, str(error)))
            raw.append(row)
    try:
        table = pa.Table.from_pylist(good, schema=stream.schema.arrow)
    except (pa.ArrowException, OverflowError) as error:  # every value was tried alone, and fits
        raise HeadgateError(f"the rows cannot be put together: {str(error).splitlines()[0]}") from error
    return Body(table, tuple(sorted(misfits, key=lambda each: each.row)), tuple(raw), key)


class _UnfitError(Exception):
    """Why a row does not fit."""


def _typed(row: Any, stream: Stream, needed: Mapping[str, str], *, strict: bool) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise _UnfitError("it is not a JSON object")
    unknown = sorted(row.keys() - set(stream.schema.names))
    if strict and unknown:
        raise _UnfitError(f"unknown columns: {', '.join(unknown)}"[:300])
    found = {}
    for column in stream.schema.columns:
        value = row.get(column.name)
        if value is None and column.name in needed:
            raise _UnfitError(f"{needed[column.name]} {column.name!r} is null")
        try:
            found[column.name] = pa.scalar(_strict(value, column.type), column.type).as_py()
        except (pa.ArrowException, ValueError, TypeError, AttributeError, ArithmeticError):
            raise _UnfitError(f"column {column.name!r} is not a {type_name(column.type)}") from None
    return found


def _strict(value: Any, kind: pa.DataType) -> Any:
    """A JSON value as the type's own, where it is written as that type is: no number is text, and no text a number."""
    wanted: type | tuple[type, ...] = object
    if pa.types.is_integer(kind):
        wanted = int
    elif pa.types.is_floating(kind) and not (isinstance(value, str) and value.lower() in _NOT_FINITE):
        wanted = (int, float)
    elif pa.types.is_boolean(kind):
        wanted = bool
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        wanted = str
    if value is not None and (
        not isinstance(value, wanted) or (isinstance(value, bool) and wanted not in (bool, object))
    ):
        raise TypeError(value)
    return from_json(value, kind)


_NOT_FINITE: Final = frozenset({"nan", "inf", "-inf", "infinity", "-infinity", "+inf", "+infinity"})


def _arrow(data: bytes, stream: Stream) -> Body:
    schema = pa.schema([*stream.schema.arrow, ("_raw", pa.string()), ("_error", pa.string())])
    batches = list(decode_arrow([PayloadMessage(0, data)], schema))
    table = pa.Table.from_batches(batches, schema=schema)
    errors = table.column("_error").to_pylist()
    if len(errors) == 1 and errors[0] is not None and "is not an Arrow stream" in errors[0]:
        raise ApiError(f"the body is not an Arrow stream: {errors[0].partition(': ')[2]}")
    reasons = dict(enumerate(errors))
    for name, what in required_columns(stream).items():
        for number, value in enumerate(table.column(name).is_null().to_pylist()):
            if value and reasons[number] is None:
                reasons[number] = f"{what} {name!r} is null"
    misfits = [
        RowMisfit(row, reason.partition("message 0: ")[2] or reason) for row, reason in reasons.items() if reason
    ]
    good = pa.array([reasons[number] is None for number in range(table.num_rows)], pa.bool_())
    texts = table.column("_raw").to_pylist()
    whole = table.select(stream.schema.names)
    raw = [
        json.loads(texts[each.row]) if texts[each.row] else whole.slice(each.row, 1).to_pylist()[0] for each in misfits
    ]
    return Body(whole.filter(good), tuple(misfits), tuple(raw))
