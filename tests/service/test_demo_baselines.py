"""What the demo's summary compares its plan with: copies in messages of the size that links really send."""

import numpy as np
import pyarrow as pa

from headgate.matching import ClassLists
from headgate.service.demo.baselines import sent_bytes
from headgate.wire.block import Block, Commit
from headgate.wire.message import encode_block


def _block(rows: int) -> Block:
    return Block(
        "s",
        0,
        rows,
        (Commit(0, rows, 1, 1000),),
        np.arange(1, rows + 1, dtype=np.uint64),
        pa.record_batch({"v": np.arange(rows) * 0.1, "w": np.arange(rows) % 7}),
        ClassLists.of([[1]] * rows),
    )


def test_a_copy_is_cut_into_messages_of_the_link() -> None:
    block = _block(5_000)
    whole = len(encode_block(block))
    assert sent_bytes(block, None) == sent_bytes(block, 1e9) == whole
    rate = whole  # 50 ms of it are a twentieth of the block: twenty messages with headers of their own
    cut = sent_bytes(block, rate)
    assert cut == sum(len(encode_block(piece)) for piece in block.pieces(5_000 // 20))
    assert cut > whole
    assert sent_bytes(_block(0), 1.0) == len(encode_block(_block(0)))
