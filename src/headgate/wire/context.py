"""Updates of contexts as they stand in a root log: by class, all values before and all values after."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headgate.wire.frame import decode_frame, encode_frame

Changes = Mapping[int, tuple[Mapping[str, Any], Mapping[str, Any]]]


def encode_context(changes: Changes) -> bytes:
    """The bytes of one update.

    >>> decode_context(encode_context({7: ({"x": 1}, {"x": 2.5})}))
    {7: ({'x': 1}, {'x': 2.5})}
    """
    text = json.dumps([[identity, was, now] for identity, (was, now) in changes.items()]).encode()
    packed: bytes = pa.compress(text, codec="zstd", asbytes=True)
    return encode_frame("c", {"classes": len(changes), "size": len(text)}, [packed])


def context_size(data: bytes) -> int:
    """How many classes an update changes, without reading it.

    >>> context_size(encode_context({7: ({"x": 1}, {"x": 2.5})}))
    1
    """
    return int(decode_frame(data, "c").header["classes"])


def decode_context(data: bytes) -> dict[int, tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Read an update."""
    frame = decode_frame(data, "c")
    text = pa.decompress(frame.sections[0], decompressed_size=int(frame.header["size"]), codec="zstd", asbytes=True)
    return {identity: (was, now) for identity, was, now in json.loads(text)}
