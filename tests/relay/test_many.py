"""Thousands of outputs at one relay: what is shared, what is bounded, and what a look at them costs."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headgate.matching import ClassLists
from headgate.model import Subscription
from headgate.relay.core import Key, RelayCore, Room
from headgate.relay.due_inboxes import DueTimes
from headgate.relay.output import Output, QueueLimits
from headgate.relay.routes import Receiver, Routes
from headgate.wire.block import Block, Commit
from headgate.wire.sums import Committed, Matched

SCHEMA = pa.schema([("x", pa.int64())])
CLASSES = 10


def _routes(receivers: int) -> Routes:
    local = tuple(
        Receiver(number, number % CLASSES, Subscription(f"r{number}", "s", "root"), SCHEMA)
        for number in range(1, receivers + 1)
    )
    return Routes("root", "s", 1, None, SCHEMA, (), local)


def _block(number: int, class_id: int) -> Block:
    rows = pa.RecordBatch.from_arrays([pa.array([number])], schema=SCHEMA)
    lists = ClassLists(np.array([0, 1]), np.array([class_id], dtype=np.uint32))
    seqs = np.array([number], dtype=np.uint64)
    return Block("s", number - 1, number, (Commit(number - 1, number, 1, 0),), seqs, rows, lists)


def _core(receivers: int) -> RelayCore:
    core = RelayCore("root", QueueLimits())
    for number in range(1, receivers + 1):
        core.restore(Key("s", subscription=number), 0, 0)
    core.begin("s", 0)
    return core


def _room(key: Key, output: Output) -> Room:
    del key, output
    return Room(100)


def test_equal_receivers_share_one_block_and_its_bytes() -> None:
    core, here = _core(500), _routes(500)
    core.receive(_block(1, class_id=3), here, 0.0)
    core.receive(_block(2, class_id=3), here, 0.0)
    made = []
    for send in core.sends(100.0, _room):
        data = core.shared.encode(
            send.block, as_json=False, make=lambda block=send.block: made.append(block) or b"x", size=len
        )
        assert data == b"x"
    assert len(made) == 2, "one with the rows of class 3, one for all without rows"
    assert sorted(len(block.seqs) for block in made) == [0, 2]
    assert all(output.busy is not None for output in core.outputs.values())


@pytest.mark.parametrize("most", [255, 256, 257])
def test_no_more_inboxes_are_sent_to_than_is_said_and_the_rest_comes_next(most: int) -> None:
    core, here = _core(256), _routes(256)
    core.receive(_block(1, class_id=3), here, 0.0)
    first = list(core.sends(100.0, _room, most))
    assert len(first) == min(most, 256)
    rest = list(core.sends(100.0, _room, most))
    assert len(first) + len(rest) == 256
    assert {send.key for send in first}.isdisjoint(send.key for send in rest)
    for number, send in enumerate([*first, *rest], 1):
        core.outputs[send.key].published(number)
    assert list(core.sends(200.0, _room)) == []
    assert core.wake_in(200.0, 0.02) is None
    core.receive(_block(2, class_id=4), here, 200.0)
    assert core.wake_in(200.0, 0.02) == 0.02
    assert len(list(core.sends(300.0, _room))) == 256


@pytest.mark.parametrize(("receivers", "idle_s"), [(199, 0.5), (200, 0.5), (1_000, 2.5), (1_999, 4.9975), (2_001, 5.0)])
def test_with_many_outputs_ranges_without_rows_wait_longer(receivers: int, idle_s: float) -> None:
    core = _core(receivers)
    output = core.outputs[Key("s", subscription=1)]
    core.receive(_block(1, class_id=9), _routes(receivers), 10.0)
    assert output.due_at == pytest.approx(10.0 + idle_s)
    rows = core.outputs[Key("s", subscription=9)]
    assert rows.due_at <= 10.0 + QueueLimits().linger_s, "rows do not wait for that"


def test_an_output_is_looked_at_at_the_earliest_of_its_times_and_once() -> None:
    times: DueTimes[str] = DueTimes()
    times.put("a", 5.0)
    times.put("b", 3.0)
    times.put("a", 1.0)
    times.put("a", 4.0)
    assert times.next_at() == 1.0
    assert list(times.due(4.5)) == ["a", "b"]
    assert (times.next_at(), list(times.due(10.0))) == (None, [])
    times.put("c", 6.0)
    times.forget("c")
    assert times.next_at() is None


def test_large_sums_are_stored_packed_and_small_ones_as_text() -> None:
    sums = Matched("s", starts=dict.fromkeys(range(20000), 0))
    sums.recent = [Committed(5, 7, {3: 1}, dict.fromkeys(range(20000), 3))]
    data = sums.encode()
    assert len(data) < 200_000
    assert Matched.decode(data, "s") == sums
    assert Matched.decode(Matched("s").encode(), "s") == Matched("s")
    (line,) = sums.entries([], only=[7])
    assert (line.subscription, line.matched, line.in_flight, line.oldest_ms) == (7, 1, 1, 7)
