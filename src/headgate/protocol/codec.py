"""Blocks, manifests and parts as messages: bytes on a real server, the values themselves in virtual time.

Machines read and write messages through the codec of their port only. What cannot be read, for whatever reason, is a
`WireError`: the reader sets the message aside and goes on.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

from headgate.wire.block import Block
from headgate.wire.frame import WireError
from headgate.wire.manifest import Manifest, decode_manifest, encode_manifest
from headgate.wire.message import block_range, block_version, decode_block, encode_block, encode_json
from headgate.wire.part import Part, decode_part
from headgate.wire.snapshot import base_revision

T = TypeVar("T")


class Codec(Protocol):
    """How messages are written and read."""

    def encode(self, block: Block, *, as_json: bool = False) -> Any:
        """A block as a message."""
        ...

    def block(self, data: Any, schema: pa.Schema) -> Block:
        """The block of a message; the version and the output that it came on say which columns it has."""
        ...

    def coverage(self, data: Any) -> tuple[int, int]:
        """The range (after, upto] that a message covers."""
        ...

    def version(self, data: Any) -> int:
        """The version of the catalog that routed a message."""
        ...

    def manifest(self, data: Any) -> Manifest:
        """A manifest."""
        ...

    def encode_manifest(self, manifest: Manifest) -> Any:
        """A manifest as a message."""
        ...

    def part(self, data: Any, schema: pa.Schema) -> Part:
        """A staged part."""
        ...

    def base(self, data: Any) -> int | None:
        """The revision that a published one is a change of, None when it is whole."""
        ...

    def size(self, data: Any) -> int:
        """How many bytes a message takes."""
        ...

    def join(self, messages: Iterable[Any]) -> Any:
        """Several messages as one answer."""
        ...

    def split(self, answer: Any) -> list[Any]:
        """The messages of an answer."""
        ...


def _readable(what: str, read: Callable[[], T]) -> T:
    """Whatever a decoder trips over is the message's fault: it came from outside."""
    try:
        return read()
    except Exception as error:
        raise WireError(f"this is no {what}: {error or type(error).__name__}") from error


_ANSWER: Final = b"HGA"  # so that an answer without messages differs from none


class WireCodec:
    """Messages as bytes."""

    def encode(self, block: Block, *, as_json: bool = False) -> bytes:
        """A block as a message."""
        return encode_json(block) if as_json else encode_block(block)

    def block(self, data: bytes, schema: pa.Schema) -> Block:
        """The block of a message."""
        return _readable("block", lambda: decode_block(data, schema))

    def coverage(self, data: bytes) -> tuple[int, int]:
        """The range (after, upto] that a message covers."""
        return _readable("block", lambda: block_range(data))

    def version(self, data: bytes) -> int:
        """The version of the catalog that routed a message."""
        return _readable("block", lambda: block_version(data))

    def manifest(self, data: bytes) -> Manifest:
        """A manifest."""
        return _readable("manifest", lambda: decode_manifest(data))

    def encode_manifest(self, manifest: Manifest) -> bytes:
        """A manifest as a message."""
        return encode_manifest(manifest)

    def part(self, data: bytes, schema: pa.Schema) -> Part:
        """A staged part."""
        return _readable("part", lambda: decode_part(data, schema))

    def base(self, data: bytes) -> int | None:
        """The revision that a published one is a change of."""
        return base_revision(data)

    def size(self, data: bytes) -> int:
        """How many bytes a message takes."""
        return len(data)

    def join(self, messages: Iterable[bytes]) -> bytes:
        """Several messages as one answer."""
        return _ANSWER + b"".join(struct.pack("<I", len(message)) + message for message in messages)

    def split(self, answer: bytes) -> list[bytes]:
        """The messages of an answer."""
        found, position = [], len(_ANSWER)
        while position + 4 <= len(answer):
            (size,) = struct.unpack_from("<I", answer, position)
            found.append(answer[position + 4 : position + 4 + size])
            position += 4 + size
        return found
