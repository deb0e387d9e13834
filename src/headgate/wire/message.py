"""Blocks as bytes: what travels on a link (with class lists) and what lies in an inbox (without).

The receiver names the schema: the version in the message and the output that it came on determine the columns, so
none are sent. An inbox of a subscription that asked for JSON holds one JSON object per message instead of a frame.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching import ClassLists
from headgate.reduction import Digest
from headgate.wire.block import Block, Commit, Declared
from headgate.wire.frame import WireError, decode_frame, encode_frame
from headgate.wire.integers import decode_sorted, encode_sorted
from headgate.wire.lists import Sections, decode_classes, encode_classes
from headgate.wire.patch import Patches, decode_patches, encode_patches
from headgate.wire.rows import decode_rows, encode_rows
from headgate.wire.unsent import Unsent


def _header(block: Block) -> dict[str, Any]:
    header: dict[str, Any] = {
        "stream": block.stream,
        "after": block.after,
        "upto": block.upto,
        "rows": len(block.seqs),
        "commits": [_commit(commit) for commit in block.commits],
    }
    if block.declared:
        header["declared"] = {str(receiver): dict(reasons) for receiver, reasons in block.declared.items()}
    if block.basis:
        header["basis"] = {str(receiver): dict(counted) for receiver, counted in block.basis.items()}
    if block.begun:
        header["begun"] = {str(receiver): count for receiver, count in block.begun.items()}
    if block.columns is not None:
        header["columns"] = list(block.columns)
    if len(block.withheld):
        header["withheld"] = (block.withheld - np.uint64(block.after)).tolist()
    if block.digests:
        header["digests"] = {str(receiver): digest.to_dict() for receiver, digest in block.digests.items()}
    return header


def _commit(commit: Commit) -> list[Any]:
    """A commit as numbers; what is seldom there (shed otherwise, unsent, lost, not looked at) where there is any."""
    found = [commit.after, commit.upto, commit.version, commit.time_ms, commit.lag_ms, commit.shed]
    more = [commit.shed_updates, commit.partly_shed]
    unsent = None if commit.unsent is None else commit.unsent.to_dict()
    if commit.whole or commit.unevaluated:
        counts = [{str(each): count for each, count in some.items()} for some in (commit.whole, commit.unevaluated)]
        return [*found, *more, unsent, *(counts if commit.unevaluated else counts[:1])]
    if unsent is not None:
        return [*found, *more, unsent]
    return [*found, *more] if any(more) else found


def _commits(header: Mapping[str, Any]) -> tuple[Commit, ...]:
    return tuple(_read_commit(*numbers) for numbers in header["commits"])


def _read_commit(*numbers: Any) -> Commit:
    unsent = [None if found is None else Unsent.from_dict(found) for found in numbers[8:9]]
    counts = [{int(receiver): int(count) for receiver, count in found.items()} for found in numbers[9:11]]
    return Commit(*numbers[:8], *unsent, *counts)


def _declared(header: Mapping[str, Any]) -> Declared:
    return {int(receiver): reasons for receiver, reasons in header.get("declared", {}).items()}


def _basis(header: Mapping[str, Any]) -> Mapping[int, Mapping[str, int]]:
    return {int(receiver): counted for receiver, counted in header.get("basis", {}).items()}


def _begun(header: Mapping[str, Any]) -> Mapping[int, int]:
    return {int(receiver): int(count) for receiver, count in header.get("begun", {}).items()}


def _columns(header: Mapping[str, Any]) -> tuple[str, ...] | None:
    return tuple(header["columns"]) if "columns" in header else None


def _fewer(schema: pa.Schema, columns: tuple[str, ...] | None) -> pa.Schema:
    """The columns of an output's schema that a message has."""
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])


def _withheld(header: Mapping[str, Any]) -> npt.NDArray[np.uint64]:
    return np.array(header.get("withheld", ()), dtype=np.uint64) + np.uint64(header["after"])


def _digests(header: Mapping[str, Any]) -> Mapping[int, Digest]:
    return {int(receiver): Digest.from_dict(found) for receiver, found in header.get("digests", {}).items()}


def encode_block(block: Block) -> bytes:
    """The bytes of a block."""
    header = _header(block)
    base = np.uint64(block.after)
    sections = [encode_sorted(block.seqs - base), encode_rows(block.rows)] if len(block.seqs) else []
    if sections and block.classes is not None:
        named, lists = encode_classes(block.classes)
        header |= named
        sections.extend(lists)
        if block.patches:
            header["patches"], patches = encode_patches(block.patches, block.after)
            sections.extend(patches)
    return encode_frame("b", header, sections)


def decode_block(data: bytes, schema: pa.Schema) -> Block:
    """Read a block; `schema` is the columns of its output under its version (see `block_version`)."""
    if data[:1] == b"{":
        return _decode_json(data, schema)
    frame = decode_frame(data, "b")
    header = frame.header
    commits = _commits(header)
    columns = _columns(header)
    schema = _fewer(schema, columns)
    if not commits:
        raise WireError("a block names no commit")
    count, after = int(header["rows"]), int(header["after"])
    classes = None
    patches: Patches = {}
    if count:
        seqs = decode_sorted(frame.sections[0], count) + np.uint64(after)
        rows = decode_rows(frame.sections[1], schema, count)
        rest: Sections = frame.sections[2:]
        if "ids" in header:
            classes, rest = decode_classes(header, rest, count)
        patches = decode_patches(header.get("patches", ()), rest, after, schema)
    else:
        seqs, rows = np.zeros(0, dtype=np.uint64), schema.empty_table().to_batches()
        rows = rows[0] if rows else pa.RecordBatch.from_pylist([], schema=schema)
        classes = ClassLists.empty(0)
    return Block(
        header["stream"],
        after,
        int(header["upto"]),
        commits,
        seqs,
        rows,
        classes,
        _declared(header),
        _digests(header),
        patches,
        _basis(header),
        _begun(header),
        _withheld(header),
        columns,
    )


def _peek(data: bytes) -> Mapping[str, Any]:
    """The header of an encoded block, without its rows."""
    found: Mapping[str, Any] = json.loads(data) if data[:1] == b"{" else decode_frame(data, "b").header
    return found


def block_version(data: bytes) -> int:
    """The version of an encoded block: what a reader needs before it can decode the rows."""
    return int(_peek(data)["commits"][-1][2])


def block_range(data: bytes) -> tuple[int, int]:
    """The coverage (after, upto] of an encoded block."""
    header = _peek(data)
    return int(header["after"]), int(header["upto"])


def encode_json(block: Block) -> bytes:
    """The same content as one JSON object, for clients that read JSON; rows carry their sequence as `_seq`."""
    header = _header(block)
    header["rows"] = [
        {"_seq": seq, **row} for seq, row in zip(block.seqs.tolist(), block.rows.to_pylist(), strict=True)
    ]
    return json_text(header).encode()


def json_text(document: Any) -> str:
    """A document with values of rows in it as JSON: NaN and infinities, which JSON does not have, are texts.

    >>> json_text({"a": float("nan"), "b": [1.5, float("-inf")]})
    '{"a":"nan","b":[1.5,"-inf"]}'
    """
    try:
        return json.dumps(document, separators=(",", ":"), default=json_value, allow_nan=False)
    except ValueError:
        return json.dumps(_speakable(document), separators=(",", ":"), default=json_value, allow_nan=False)


def _speakable(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {key: _speakable(item) for key, item in value.items()}
        case list() | tuple():
            return [_speakable(item) for item in value]
        case _:
            return value


def json_value(value: Any) -> Any:
    """How a value that JSON does not know is written."""
    match value:
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case _:
            raise TypeError(f"no JSON form for {type(value).__name__}")


def _decode_json(data: bytes, schema: pa.Schema) -> Block:
    header = json.loads(data)
    commits = _commits(header)
    documents, fewer = header["rows"], _columns(header)
    schema = _fewer(schema, fewer)
    seqs = np.array([row["_seq"] for row in documents], dtype=np.uint64)
    columns = [_json_column([row[field.name] for row in documents], field.type) for field in schema]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    return Block(
        header["stream"],
        header["after"],
        header["upto"],
        commits,
        seqs,
        rows,
        None,
        _declared(header),
        _digests(header),
        basis=_basis(header),
        begun=_begun(header),
        withheld=_withheld(header),
        columns=fewer,
    )


def _json_column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values as `encode_json` wrote them, back in their type."""
    return pa.array([from_json(value, kind) for value in values], type=kind)


def from_json(value: Any, kind: pa.DataType) -> Any:
    """One value as `encode_json` wrote it, as Python's own type."""
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value)
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_binary(kind):
        return base64.b64decode(value)
    if pa.types.is_list(kind):
        return [from_json(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        return [(from_json(key, kind.key_type), from_json(item, kind.item_type)) for key, item in value]
    if pa.types.is_struct(kind):
        return {field.name: from_json(value.get(field.name), field.type) for field in kind}
    return value
