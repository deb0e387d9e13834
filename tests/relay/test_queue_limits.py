"""Every default limit of a queue, one below it, at it and one above it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headgate.matching import ClassLists
from headgate.model import Subscription
from headgate.relay.output import _ASTRAY, HEAVY_GROUPS, HEAVY_ROWS, SPAN, Output, QueueLimits
from headgate.relay.queue_report import MOST_CLASSES, waits_by_class
from headgate.relay.routes import Child, Receiver
from headgate.wire.block import Block, Commit

DEFAULT = QueueLimits()


def receiver(identity: int = 1, class_id: int = 7, **policy: object) -> Receiver:
    subscription = Subscription(f"r{identity}", "s", "a", policy=dict(policy) or None)
    return Receiver(identity, class_id, subscription, pa.schema([("x", pa.int8())]))


def link(*classes: int) -> Child:
    found = tuple(receiver(number, class_id) for number, class_id in enumerate(classes, 1))
    return Child("c", found, pa.schema([("x", pa.int8())]))


def block(after: int, count: int, width: int = 1, lists: ClassLists | None = None) -> Block:
    """So many rows of so many bytes each."""
    seqs = np.arange(after + 1, after + count + 1, dtype=np.uint64)
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), count, [None, pa.py_buffer(bytes(width * count))])
    rows = pa.RecordBatch.from_arrays([values], names=["x"])
    return Block("s", after, after + count, (Commit(after, after + count, 1, 0),), seqs, rows, lists)


@pytest.mark.parametrize(("count", "left"), [(99_999, 99_999), (100_000, 100_000), (100_001, 90_000)])
def test_rows_of_a_queue(count: int, left: int) -> None:
    assert DEFAULT.max_rows == 100_000
    output = Output(DEFAULT)
    output.offer(block(0, count), receiver(), 0.0)
    assert (output.rows, output.reduced) == (left, count - left)


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_bytes_of_a_queue(over: int) -> None:
    assert DEFAULT.max_bytes == 64 << 20
    output = Output(DEFAULT)
    width = 1 << 20
    output.offer(block(0, 63, width), receiver(), 0.0)
    output.offer(block(63, 1, width + over), receiver(), 0.0)
    assert (output.rows < 64) == (over > 0)
    assert output.bytes <= DEFAULT.max_bytes


@pytest.mark.parametrize(("rows", "heavy"), [(-1, False), (0, False), (1, True)])
def test_rows_of_a_pack_that_is_done_apart(rows: int, heavy: bool) -> None:
    assert HEAVY_ROWS == 5_000
    output = Output(QueueLimits(max_rows=100), defer=True)
    output.offer(block(0, HEAVY_ROWS + rows), receiver(), 0.0)
    assert output.overfull == heavy
    assert (output.rows <= 100) == (not heavy)


@pytest.mark.parametrize(("more", "heavy"), [(-1, False), (0, False), (1, True)])
def test_groups_of_a_pack_that_is_done_apart(more: int, heavy: bool) -> None:
    assert HEAVY_GROUPS == 16
    target = link(*range(1, HEAVY_GROUPS + more + 1))
    output = Output(QueueLimits(max_rows=100), defer=True)
    output.offer(
        block(0, 101, 1, ClassLists.of([[1 + row % len(target.receivers)] for row in range(101)])), target, 0.0
    )
    assert output.overfull == heavy


@pytest.mark.parametrize(("later", "kept"), [(-1, True), (0, True), (1, False)])
def test_old_rows_go_when_four_times_the_limit_has_come_behind_them(later: int, kept: bool) -> None:
    assert SPAN == 4
    output = Output(QueueLimits(max_rows=100))
    keeping = receiver(levels=["tail"])  # it would keep the oldest rows for ever
    output.offer(block(0, 50), keeping, 0.0)
    after = 50
    for count in (*[100] * (SPAN - 1), 100 + later):
        output.offer(block(after, count), keeping, 1.0)
        after += count
    oldest = min(int(each.block.seqs[0]) for each in output.queue if len(each.block.seqs))
    assert (oldest == 1) == kept


@pytest.mark.parametrize(("tries", "cut"), [(_ASTRAY - 1, False), (_ASTRAY, True), (_ASTRAY + 1, True)])
def test_messages_that_end_inside_a_commit(tries: int, cut: bool) -> None:
    """After so many of them one is cut where a commit ends, as a reader counts up to such ends only."""
    output = Output(QueueLimits(linger_s=0.0))
    commits = tuple(Commit(at, at + 10, 1, 0) for at in range(0, 1000, 10))
    ends = []
    for number in range(tries):
        at = number * 15 + (0 if not number else 1)  # pieces that end 1 to 9 rows behind the end of a commit
        upto = (number + 1) * 15 + 1
        whole = block(at, upto - at)
        mine = tuple(commit for commit in commits if commit.upto > at and commit.after < upto)
        output.offer(Block("s", at, upto, mine, whole.seqs, whole.rows, None), receiver(), 0.0)
    while (message := output.next_message(1.0, 20)) is not None and len(ends) < tries:
        ends.append(message.at_boundary)
        output.published(len(ends))
    assert any(ends) == cut


def test_an_idle_output_sends_at_once() -> None:
    output = Output(DEFAULT)
    output.offer(block(0, 1), receiver(), 0.0)
    assert output.due(0.0)


def sent_once() -> Output:
    """An output that has sent a message at time 0, of at most 1,000 rows."""
    output = Output(DEFAULT)
    output.offer(block(0, 1), receiver(), 0.0)
    assert output.next_message(0.0, 1000) is not None
    output.published(1)
    return output


@pytest.mark.parametrize(("waited", "due"), [(0.199, False), (0.2, True), (0.201, True)])
def test_a_message_soon_after_another_waits_for_more(waited: float, due: bool) -> None:
    assert DEFAULT.linger_s == 0.2
    output = sent_once()
    output.offer(block(1, 1), receiver(), 0.01)
    assert output.due(waited) == due


def test_commits_that_come_meanwhile_are_one_message() -> None:
    output = sent_once()
    for number in range(1, 10):
        output.offer(block(number, 1), receiver(), 0.02 * number)
        assert not output.due(0.02 * number)
    message = output.next_message(0.2, 1000)
    assert message is not None
    assert (message.after, message.upto) == (1, 10)


@pytest.mark.parametrize(("now", "due"), [(0.299, False), (0.301, True)])
def test_what_is_left_of_a_commit_waits_no_longer_than_that_since_it_came(now: float, due: bool) -> None:
    output = sent_once()
    output.offer(block(1, 1500), receiver(), 0.1)
    message = output.next_message(0.25, 1000)
    assert message is not None
    assert len(message.seqs) == 1000
    output.published(2)
    assert output.due(now) == due


@pytest.mark.parametrize(("rows", "due"), [(999, False), (1000, True), (1001, True)])
def test_a_full_message_does_not_wait(rows: int, due: bool) -> None:
    output = sent_once()
    output.offer(block(1, rows), receiver(), 0.01)
    assert output.due(0.01) == due


@pytest.mark.parametrize(("waited", "due"), [(1.99, False), (2.0, True), (2.01, True)])
def test_coverage_without_rows_soon_after_a_message_waits(waited: float, due: bool) -> None:
    output = sent_once()
    output.offer(block(1, 1).take(np.zeros(0, dtype=np.int64)), receiver(), 0.01)
    assert output.due(waited) == due


@pytest.mark.parametrize(("waited", "due"), [(0.499, False), (0.5, True), (0.501, True)])
def test_coverage_without_rows_waits_longer(waited: float, due: bool) -> None:
    assert DEFAULT.idle_s == 0.5
    output = Output(DEFAULT)
    output.offer(block(0, 1).take(np.zeros(0, dtype=np.int64)), receiver(), 0.0)
    assert output.due(waited) == due


@pytest.mark.parametrize(("classes", "listed"), [(-1, True), (0, True), (1, False)])
def test_classes_that_a_report_lists(classes: int, listed: bool) -> None:
    count = MOST_CLASSES + classes
    output = Output(DEFAULT)
    lists = ClassLists(np.arange(count + 1), np.arange(count, dtype=np.uint32))
    output.offer(block(0, count, 1, lists), link(*range(3)), 0.0)
    found = waits_by_class(output.queue, 2.0)
    assert (found is not None) == listed
    if found is not None:
        assert found["5"] == (1, 1, 2.0)
        assert len(found) == count
