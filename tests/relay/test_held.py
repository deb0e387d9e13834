"""Blocks that are held behind a gap: as many as the limit says, let go when there is no room, never in the way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from headgate.matching import ClassLists
from headgate.relay.core import Gap, RelayCore, key_of
from headgate.relay.output import QueueLimits
from headgate.wire.block import Block, Commit
from tests.relay.world import STREAM, routes


def _block(number: int, count: int = 1, wanted: int = 0) -> Block:
    """Rows of one class, by default one row that nobody wants, for the coverage alone."""
    schema, after, upto = routes("root").schema, (number - 1) * count, number * count
    rows = pa.RecordBatch.from_arrays([pa.nulls(count, field.type) for field in schema], schema=schema)
    seqs = np.arange(after + 1, upto + 1, dtype=np.uint64)
    return Block(STREAM, after, upto, (Commit(after, upto, 1, 0),), seqs, rows, ClassLists.of([[wanted]] * count))


@pytest.mark.parametrize("count", [1023, 1024, 1025])
def test_as_many_held_blocks_as_are_allowed_are_released_at_once(count: int) -> None:
    core, here = RelayCore("root", QueueLimits()), routes("root")
    for target in here.targets:
        core.restore(key_of(STREAM, target), 0, 1)
    core.begin(STREAM, 0)
    for number in range(2, count + 2):
        assert core.receive(_block(number), here, 0.0) == Gap(STREAM, 0, 1)
    assert core.receive(_block(1), here, 0.0) is None
    assert core.coverage(STREAM) == 1 + min(count, 1024)
    assert core.gap(STREAM) is None
    assert {output.reach for output in core.outputs.values()} == {1 + min(count, 1024)}


def test_an_output_whose_first_block_waits_behind_a_gap_does_not_keep_the_rest_from_being_settled() -> None:
    """It kept the site log full, so that what fills the gap found no room: a standstill for ever."""
    core, here = RelayCore("root", QueueLimits()), routes("root")
    first, *rest = here.targets
    core.restore(key_of(STREAM, first), 0, 1)
    core.begin(STREAM, 0)
    assert core.receive(_block(1), replace(here, children=(first,), local=()), 0.0) is None  # type: ignore[arg-type]
    core.outputs[key_of(STREAM, first)].resume(1, 2)
    for target in rest:
        core.restore(key_of(STREAM, target), None, 0)
    assert core.receive(_block(5), here, 0.0) == Gap(STREAM, 1, 4)
    assert core.settled(STREAM) == 1


def test_blocks_behind_a_gap_can_be_let_go_and_asked_for_again() -> None:
    core, here = RelayCore("root", QueueLimits()), routes("root")
    for target in here.targets:
        core.restore(key_of(STREAM, target), 0, 1)
    core.begin(STREAM, 0)
    for number in (3, 4, 5):
        core.receive(_block(number), here, 0.0)
    core.let_go(STREAM, {3})
    assert core.gap(STREAM) == Gap(STREAM, 0, 2)  # the one that is still in the log stays
    core.let_go(STREAM, ())
    assert core.gap(STREAM) == Gap(STREAM, 0, 4)  # the last one stays, and shows what is missing
    for number in (1, 2, 3, 4):
        core.receive(_block(number), here, 0.0)
    assert core.coverage(STREAM) == 5


def test_queues_are_packed_between_held_blocks() -> None:
    """A thousand blocks that had waited were routed before the first pack: far more rows than a queue may hold."""
    core, here = RelayCore("root", QueueLimits(max_rows=100, heavy_rows=50), defer=True), routes("root")
    for target in here.targets:
        core.restore(key_of(STREAM, target), 0, 1)
    core.begin(STREAM, 0)
    for number in range(2, 22):
        core.receive(_block(number, 60, wanted=2), here, 0.0)
    core.receive(_block(1, 60, wanted=2), here, 0.0)
    while core.overfull:
        assert max(output.rows for output in core.outputs.values()) <= 2 * 100 + 60
        for output in core.overfull:
            if (work := output.begin_pack(0.0)) is not None:
                output.end_pack(work())
        core.overfull.clear()
        core.release(0.0)
    assert core.coverage(STREAM) == 21 * 60
    assert core.gap(STREAM) is None
