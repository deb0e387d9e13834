"""The envelope of everything Headgate stores or sends: a kind, a JSON header, binary sections and a checksum.

Layout: ``HG`` · format version (1 byte) · kind (1 byte) · CRC-32 of all that follows (4 bytes) · header length
(4 bytes) · section count (2 bytes) · section lengths (4 bytes each) · header (JSON, UTF-8) · sections. Integers are
little-endian. A reader refuses what it does not understand before it allocates anything.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.errors import HeadgateError

FORMAT: Final = 1
_PREFIX = struct.Struct("<2sBcI")
_COUNTS = struct.Struct("<IH")
_MAGIC = b"HG"


class WireError(HeadgateError):
    """Bytes that are not what they should be: truncated, corrupted, or of another format."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message: what it is, its header, and its sections as views of the bytes received."""

    kind: str
    header: Mapping[str, Any]
    sections: tuple[memoryview, ...]


def encode_frame(kind: str, header: Mapping[str, Any], sections: Sequence[bytes | memoryview] = ()) -> bytes:
    """The bytes of a frame."""
    head = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    lengths = struct.pack(f"<{len(sections)}I", *(len(section) for section in sections))
    body = b"".join((_COUNTS.pack(len(head), len(sections)), lengths, head, *sections))
    return _PREFIX.pack(_MAGIC, FORMAT, kind.encode("ascii"), zlib.crc32(body)) + body


def decode_frame(data: bytes, expected: str | None = None) -> Frame:
    """Read a frame; `expected` names the kind that the caller can use.

    >>> decode_frame(encode_frame("m", {"a": 1}, [b"xy"])).sections[0].tobytes()
    b'xy'
    """
    view = memoryview(data)
    if len(view) < _PREFIX.size + _COUNTS.size:
        raise WireError(f"a message of {len(view)} bytes is shorter than any frame")
    magic, version, kind_byte, checksum = _PREFIX.unpack_from(view)
    if magic != _MAGIC:
        raise WireError("a message does not start with the letters HG", hint="is another program publishing here?")
    if version != FORMAT:
        raise WireError(f"a message has format {version}, this program reads {FORMAT}", hint="upgrade the older side")
    kind = kind_byte.decode("ascii", "replace")
    if expected is not None and kind != expected:
        raise WireError(f"a message is of kind {kind!r}, expected {expected!r}")
    body = view[_PREFIX.size :]
    if zlib.crc32(body) != checksum:
        raise WireError("a message failed its checksum: it was truncated or changed on the way")
    header_length, count = _COUNTS.unpack_from(body)
    position = _COUNTS.size + 4 * count
    lengths = struct.unpack_from(f"<{count}I", body, _COUNTS.size)
    if position + header_length + sum(lengths) != len(body):
        raise WireError("a message's lengths do not add up")
    header = json.loads(bytes(body[position : position + header_length]))
    position += header_length
    sections = []
    for length in lengths:
        sections.append(body[position : position + length])
        position += length
    return Frame(kind, header, tuple(sections))
