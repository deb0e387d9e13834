"""The end of a detached subscriber's grace period: what lies unread in its inbox is given up, declared expired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headgate.wire.block import EXPIRED, Block, concat, merge_declared


def expire_rows(block: Block, receiver: int) -> Block:
    """The same coverage with every row declared expired."""
    gone = {receiver: {EXPIRED: len(block.seqs)}} if len(block.seqs) else {}
    emptied = block.take(np.zeros(0, dtype=np.int64))
    return replace(emptied, declared=merge_declared(block.declared, gone))


def expire_messages(blocks: Sequence[Block], receiver: int) -> Block:
    """Unread messages of an inbox as one that says what they held; it takes their place in one step."""
    # Columns may have changed between them; without rows they no longer matter.
    schema = blocks[-1].rows.slice(0, 0)
    return concat([replace(expire_rows(block, receiver), rows=schema, classes=None) for block in blocks])
