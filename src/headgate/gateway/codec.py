"""Decoding each message once for all who read it: inboxes of one site often hold the same bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import pyarrow as pa

from headgate.protocol.codec import WireCodec
from headgate.wire.block import Block

KEPT_BYTES: Final = 16 << 20
"""What the messages whose blocks are kept take, at most."""
EACH_BYTES: Final = 8 << 10
"""What a block takes beside the bytes of its message, about: small messages make large objects."""


class SharedCodec(WireCodec):
    """As `WireCodec`, and gives the same block for the same bytes while it is asked for again.

    Readers of one group get messages of equal bytes, each in its own inbox, or one message from a shared one. A block
    is never changed, so they may all have the same.
    """

    def __init__(self, max_bytes: int = KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._blocks: OrderedDict[bytes, tuple[pa.Schema, Block]] = OrderedDict()

    @property
    def kept(self) -> int:
        """How many blocks are kept."""
        return len(self._blocks)

    def version(self, data: bytes) -> int:
        """The version of the catalog that routed a message."""
        found = self._blocks.get(data)
        return super().version(data) if found is None else found[1].version

    def block(self, data: bytes, schema: pa.Schema) -> Block:
        """The block of a message."""
        found = self._blocks.get(data)
        if found is not None and (found[0] is schema or found[0].equals(schema)):
            return found[1]
        block = super().block(data, schema)
        if found is None:
            self._bytes += len(data) + EACH_BYTES
        self._blocks[data] = schema, block
        while self._bytes > self._max_bytes:
            gone, _ = self._blocks.popitem(last=False)
            self._bytes -= len(gone) + EACH_BYTES
        return block
