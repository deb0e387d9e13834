"""Blocks that readers share: the same for the same bytes, and no more of them than there is room for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headgate.gateway.codec import EACH_BYTES, SharedCodec
from headgate.protocol.codec import WireCodec
from headgate.wire.block import Block, Commit

ROWS = pa.record_batch({"value": pa.array([1, 2], pa.int64())})
SCHEMA = ROWS.schema


def message(upto: int) -> bytes:
    commit = Commit(upto - 10, upto, 3, 1_700_000_000_000)
    return WireCodec().encode(Block("s", upto - 10, upto, (commit,), np.array([upto - 1, upto], np.uint64), ROWS))


def test_equal_bytes_are_one_block_also_for_an_equal_schema() -> None:
    codec = SharedCodec()
    first = codec.block(message(10), SCHEMA)
    again = codec.block(bytes(bytearray(message(10))), pa.schema(list(SCHEMA)))
    assert again is first
    assert codec.version(message(10)) == first.version == 3
    assert first.rows.equals(WireCodec().block(message(10), SCHEMA).rows)


@pytest.mark.parametrize(("count", "kept"), [(3, 3), (4, 4), (5, 4), (50, 4)])
def test_it_keeps_so_many_bytes_and_the_newest(count: int, kept: int) -> None:
    size = len(message(100)) + EACH_BYTES
    codec = SharedCodec(4 * size + 100)
    blocks = {upto: codec.block(message(upto), SCHEMA) for upto in range(100, 100 + count)}
    assert codec.kept == kept
    last = 100 + count - 1
    assert codec.block(message(last), SCHEMA) is blocks[last]
    assert (codec.block(message(100), SCHEMA) is blocks[100]) == (count == kept)
