"""Messages of the simulated world: the values themselves, so that a million events need not be encoded and decoded.

What a reader may take for granted of real bytes is checked here too: a block in other columns than its reader expects,
or one whose stored bytes were damaged, cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeVar

import pyarrow as pa

from headgate.matching import ClassLists
from headgate.virtual.messages import Unreadable
from headgate.wire.block import Block
from headgate.wire.frame import WireError
from headgate.wire.manifest import Manifest
from headgate.wire.part import Part
from headgate.wire.snapshot import SnapshotChange

T = TypeVar("T")
_HEADER_BYTES = 120


_NO_CLASSES: Final = ClassLists.empty(0)
_empty = lru_cache(lambda schema: pa.RecordBatch.from_pylist([], schema=schema))


class PlainCodec:
    """Stores blocks, manifests and parts as they are."""

    def encode(self, block: Block, *, as_json: bool = False) -> Block:
        """A block as a message."""
        del as_json
        return block

    def block(self, data: Any, schema: pa.Schema) -> Block:
        """The block of a message."""
        found = _expect(data, Block)
        if len(found.seqs) and found.rows.schema.names != schema.names:
            raise WireError(f"the block has {found.rows.schema.names}, not {schema.names}")
        if len(found.seqs):
            return found
        return replace(found, rows=_empty(schema), classes=_NO_CLASSES)

    def coverage(self, data: Any) -> tuple[int, int]:
        """The range (after, upto] that a message covers."""
        found = _expect(data, Block)
        return found.after, found.upto

    def version(self, data: Any) -> int:
        """The version of the catalog that routed a message."""
        return _expect(data, Block).version

    def base(self, data: Any) -> int | None:
        """The revision that a published one is a change of."""
        return data.base if isinstance(data, SnapshotChange) else None

    def manifest(self, data: Any) -> Manifest:
        """A manifest."""
        return _expect(data, Manifest)

    def encode_manifest(self, manifest: Manifest) -> Manifest:
        """A manifest as a message."""
        return manifest

    def part(self, data: Any, schema: pa.Schema) -> Part:
        """A staged part."""
        found = _expect(data, Part)
        if found.rows.schema.names != schema.names:
            raise WireError(f"the part has {found.rows.schema.names}, not {schema.names}")
        return found

    def size(self, data: Any) -> int:
        """How many bytes a message would take."""
        return size_of(data)

    def join(self, messages: Iterable[Any]) -> list[Any]:
        """Several messages as one answer."""
        return list(messages)

    def split(self, answer: Any) -> list[Any]:
        """The messages of an answer."""
        return list(answer)


def _expect(data: Any, kind: type[T]) -> T:
    if not isinstance(data, kind):
        raise WireError(f"expected a {kind.__name__.lower()}, found {type(data).__name__}")
    return data


def answer_size(value: Any) -> int:
    """The bytes of the messages in an answer."""
    if isinstance(value, list):
        return sum(map(answer_size, value))
    data = getattr(value, "data", value)
    return size_of(data) if isinstance(data, bytes | Block | Part | Manifest | Unreadable) else 0


def size_of(data: Any) -> int:
    """The bytes that a message would take, near enough for limits and bandwidths."""
    match data:
        case bytes():
            return len(data)
        case Block():
            return _HEADER_BYTES + 24 * len(data.seqs) + 16 * len(data.declared)
        case Part():
            return _HEADER_BYTES + 24 * len(data.positions)
        case Manifest():
            return 2 * _HEADER_BYTES + 8 * len(data.class_ids)
        case Unreadable(inner):
            return size_of(inner)
        case _:
            return 4 * _HEADER_BYTES
