"""What the outputs of one relay share: blocks that were joined or encoded for one of them, and how often the idle send.

Subscriptions of one class and projection get the same block objects (`headgate.relay.split`). What is made of them, a
block of several or the bytes of a message, is made once and remembered for the others as long as it may be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from headgate.wire.block import Block, concat

EMPTY_PER_S: Final = 100
"""So many messages without rows a relay sends in a second: with more outputs each of them waits longer."""
_MOST_IDLE_S: Final = 5.0  # but not longer than this: what is sent to nobody stays in the site log until then
_QUIET_PERIODS: Final = 4
_MOST_BLOCKS: Final = 2_048
_MOST_BYTES: Final = 32 << 20


class SharedWork:
    """Remembers by the identity of blocks; the blocks are kept with what was made of them, so that ids stay theirs."""

    def __init__(self) -> None:
        self.idle_s = 0.0
        """How long a range without rows waits at least, whatever the limits of a queue say."""
        self._joined: dict[tuple[int, ...], tuple[Sequence[Block], Block]] = {}
        self._encoded: dict[tuple[int, bool], tuple[Block, Any]] = {}
        self._bytes = 0

    def pace(self, outputs: int) -> None:
        """Say how many outputs there are."""
        self.idle_s = min(outputs / (_QUIET_PERIODS * EMPTY_PER_S), _MOST_IDLE_S)

    def join(self, blocks: Sequence[Block]) -> Block:
        """Adjacent blocks as one."""
        if len(blocks) == 1:
            return blocks[0]
        key = tuple(map(id, blocks))
        known = self._joined.get(key)
        if known is None:
            if len(self._joined) >= _MOST_BLOCKS:
                self._joined.clear()
            known = self._joined[key] = (blocks, concat(blocks))
        return known[1]

    def encode(self, block: Block, *, as_json: bool, make: Callable[[], Any], size: Callable[[Any], int]) -> Any:
        """A block as a message."""
        known = self._encoded.get((id(block), as_json))
        if known is not None:
            return known[1]
        data = make()
        if len(self._encoded) >= _MOST_BLOCKS or self._bytes > _MOST_BYTES:
            self._encoded.clear()
            self._bytes = 0
        self._encoded[id(block), as_json] = (block, data)
        self._bytes += size(data)
        return data
