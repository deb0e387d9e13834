"""Updates of contexts as they stand in a root log: by class, all values before and all values after.

Classes with the same names are one table of values, so that the names are written once however many there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa

from headgate.wire.frame import WireError, decode_frame, encode_frame

Changes = Mapping[int, tuple[Mapping[str, Any], Mapping[str, Any]]]


class _Table(msgspec.Struct, array_like=True, gc=False):
    """Classes whose values have the same names, before and after; `numbers` are their places in the update.

    A row has the values before and then those after: most are the same, which compresses well side by side.
    """

    before: list[str]
    after: list[str]
    numbers: list[int]
    ids: list[int]
    rows: list[list[Any]]


_TABLES: Final = msgspec.msgpack.Decoder(list[_Table])


def encode_context(changes: Changes) -> bytes:
    """The bytes of one update.

    >>> decode_context(encode_context({7: ({"x": 1}, {"x": 2.5})}))
    {7: ({'x': 1}, {'x': 2.5})}
    """
    tables: dict[tuple[tuple[str, ...], tuple[str, ...]], _Table] = {}
    for number, (identity, (was, now)) in enumerate(changes.items()):
        key = (tuple(was), tuple(now))
        table = tables.get(key)
        if table is None:
            table = tables[key] = _Table(list(was), list(now), [], [], [])
        table.numbers.append(number)
        table.ids.append(identity)
        table.rows.append([*was.values(), *now.values()])
    body = msgspec.msgpack.encode(list(tables.values()))
    packed: bytes = pa.compress(body, codec="zstd", asbytes=True)
    return encode_frame("c", {"classes": len(changes), "size": len(body)}, [packed])


def context_size(data: bytes) -> int:
    """How many classes an update changes, without reading it.

    >>> context_size(encode_context({7: ({"x": 1}, {"x": 2.5})}))
    1
    """
    return int(decode_frame(data, "c").header["classes"])


def decode_context(data: bytes) -> dict[int, tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Read an update; its classes come in the order in which they were written."""
    frame = decode_frame(data, "c")
    try:
        body = pa.decompress(frame.sections[0], decompressed_size=int(frame.header["size"]), codec="zstd", asbytes=True)
        tables = _TABLES.decode(body)
    except (pa.ArrowInvalid, OSError, msgspec.DecodeError) as error:
        raise WireError(f"an update of contexts cannot be read: {error}") from error
    found: list[tuple[int, int, tuple[Mapping[str, Any], Mapping[str, Any]]]] = []
    for table in tables:
        before, after, middle = table.before, table.after, len(table.before)
        found += [
            (number, identity, (dict(zip(before, row, strict=False)), dict(zip(after, row[middle:], strict=False))))
            for number, identity, row in zip(table.numbers, table.ids, table.rows, strict=False)
        ]
    if len(tables) > 1:
        found.sort(key=lambda each: each[0])
    return {identity: values for _, identity, values in found}
