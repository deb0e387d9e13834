"""A subscription's limits on rows, bytes and age hold in every queue where its rows wait, shared links included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.matching import ClassLists
from headgate.model import LinkQueue, Subscription
from headgate.reduction.rows import row_bytes
from headgate.relay.output import Output, QueueLimits
from headgate.relay.routes import Child, Receiver
from headgate.relay.split import for_child, for_local
from headgate.wire.block import Block, Commit
from headgate.wire.message import decode_block, encode_block
from tests.relay import world as worlds
from tests.relay.test_core import _run

SCHEMA = pa.schema([("x", pa.float64()), ("at", pa.timestamp("us", tz="UTC"))])
NOW = QueueLimits(linger_s=0.0, idle_s=0.0)


def receiver(identity: int, class_id: int, policy: dict[str, Any] | None) -> Receiver:
    return Receiver(identity, class_id, Subscription(f"r{identity}", "s", "a", policy=policy), SCHEMA)


def child(*receivers: Receiver, **limits: Any) -> Child:
    return Child("c", receivers, SCHEMA, LinkQueue(**limits))


def block(first: int, count: int, classes: list[int], time_s: float = 0.0) -> Block:
    """Rows first, first + 1, ... all of the same classes, one each second of event time."""
    seqs = np.arange(first, first + count, dtype=np.uint64)
    rows = pa.RecordBatch.from_arrays(
        [pa.array(seqs.astype(np.float64)), pa.array(seqs.astype(np.int64) * 1_000_000).cast(SCHEMA.field("at").type)],
        schema=SCHEMA,
    )
    lists = ClassLists(
        np.arange(0, count * len(classes) + 1, len(classes)), np.tile(np.array(sorted(classes), np.uint32), count)
    )
    commits = (Commit(first - 1, first + count - 1, 1, int(time_s * 1000)),)
    return Block("s", first - 1, first + count - 1, commits, seqs, rows, lists)


def waiting(output: Output, target: Child) -> dict[int, Block]:
    """What waits, as each receiver would get it."""
    found: dict[int, list[Block]] = {each.id: [] for each in target.receivers}
    for entry in output.queue:
        for mine, piece in for_local(entry.block, target.receivers):
            found[mine.id].append(piece)
    return {identity: _whole(pieces) for identity, pieces in found.items()}


def _whole(pieces: list[Block]) -> Block:
    rows = pa.Table.from_batches([each.rows for each in pieces], SCHEMA).combine_chunks().to_batches()
    return replace(
        pieces[-1],
        seqs=np.concatenate([each.seqs for each in pieces]),
        rows=rows[0] if rows else pieces[0].rows.slice(0, 0),
        declared={0: {"all": sum(sum(found.values()) for each in pieces for found in each.declared.values())}},
    )


def given_up(found: Block) -> int:
    return found.declared[0]["all"]


def sent(output: Output, target: Child, most: int = 500) -> Iterator[Block]:
    """Everything as messages that went over the wire."""
    number = 0
    while (message := output.next_message(1e6, most)) is not None:
        yield decode_block(encode_block(message), target.schema)
        number += 1
        output.published(number)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [{}, {"levels": [{"latest": 50}]}])
@pytest.mark.parametrize("same_class", [False, True])
def test_max_rows_holds_on_a_link_behind_which_rows_pile_up(same_class: bool, policy: dict[str, Any]) -> None:
    """As reported: 102,218 rows waited for a slow link under `max_rows: 2000`, and nothing was reduced."""
    other = 7 if same_class else 9
    target = child(receiver(1, 7, {**policy, "max_rows": 2000}), receiver(2, other, None))
    output = Output(replace(NOW, max_rows=200_000, max_bytes=1 << 30))
    count = 102_218
    for first in range(1, count + 1, 10_000):
        output.offer(block(first, min(10_000, count + 1 - first), [7, 9]), target, first / 1000)
        found = waiting(output, target)
        assert len(found[1].seqs) <= 2000
        assert len(found[1].seqs) + given_up(found[1]) == output.came
        assert len(found[2].seqs) == output.came, "who has no limit loses nothing"
    bounded = np.zeros(0, dtype=np.uint64)
    declared = 0
    for message in sent(output, target, 20_000):
        for mine, piece in for_local(message, target.receivers):
            if mine.id == 1:
                bounded = np.concatenate([bounded, piece.seqs])
                declared += sum(piece.declared.get(1, {}).values())
    assert 0 < len(bounded) <= 2000
    assert len(bounded) + declared == count
    assert np.all(np.diff(bounded.astype(np.int64)) > 0)


def test_a_row_leaves_the_queue_of_a_link_when_nobody_wants_it_any_more() -> None:
    policies: list[dict[str, Any]] = [
        {"max_rows": 40, "levels": [{"latest": 40}]},
        {"max_rows": 60, "levels": ["tail"]},
    ]
    target = child(receiver(1, 7, policies[0]), receiver(2, 7, policies[1]))
    output = Output(NOW)
    for first in range(1, 1001, 100):
        output.offer(block(first, 100, [7]), target, float(first))
        found = waiting(output, target)
        assert len(found[1].seqs) <= 40
        assert len(found[2].seqs) <= 60
        wanted = np.union1d(found[1].seqs, found[2].seqs)
        assert output.rows == len(wanted), "the link carries what one of the two wants"
    assert int(found[1].seqs[0]) > 900
    assert int(found[2].seqs[-1]) <= 100, "the oldest stay under drop-tail, the newest under latest"


@pytest.mark.parametrize(("count", "left"), [(99, 99), (100, 100), (101, 90)])
@pytest.mark.parametrize("on_link", [False, True])
def test_max_rows_at_the_limit(count: int, left: int, on_link: bool) -> None:
    policy = {"max_rows": 100}
    target = child(receiver(1, 7, policy), receiver(2, 9, None)) if on_link else receiver(1, 7, policy)
    output = Output(NOW)
    offered = block(1, count, [7])
    output.offer(offered if on_link else replace(offered, classes=None), target, 0.0)
    assert output.rows == left


@pytest.mark.parametrize(("over", "reduced"), [(-1.0, False), (0.0, False), (1.0, True)])
def test_max_bytes_at_the_limit(over: float, reduced: bool) -> None:
    size = float(row_bytes(block(1, 100, [7]).rows).sum())
    target = child(receiver(1, 7, {"max_bytes": size - over}), receiver(2, 9, None))
    output = Output(NOW)
    output.offer(block(1, 100, [7, 9]), target, 0.0)
    found = waiting(output, target)
    assert (len(found[1].seqs) < 100) == reduced
    assert float(row_bytes(found[1].rows).sum()) <= size - over
    assert len(found[2].seqs) == 100


def test_max_age_holds_on_a_link_by_arrival_and_by_event_time() -> None:
    by_arrival = receiver(1, 7, {"max_age": "5 s"})
    by_event = receiver(2, 7, {"max_age": {"age": "5 s", "attribute": "at"}})
    target = child(by_arrival, by_event, receiver(3, 7, None))
    output = Output(NOW)
    output.offer(block(1, 10, [7], 10.0), target, 10.0)
    output.offer(block(11, 10, [7], 12.0), target, 12.0)
    assert output.due(14.9)
    found = waiting(output, target)
    assert [len(found[number].seqs) for number in (1, 2, 3)] == [20, 11, 20], "row n happened at n seconds"
    assert output.due(15.0)
    assert len(waiting(output, target)[1].seqs) == 20
    output.due(15.01)
    found = waiting(output, target)
    assert found[1].seqs.tolist() == list(range(11, 21))
    assert given_up(found[1]) == 10
    output.due(100.0)
    found = waiting(output, target)
    assert [len(found[number].seqs) for number in (1, 2, 3)] == [0, 0, 20]
    assert [given_up(found[number]) for number in (1, 2, 3)] == [20, 20, 0]


@pytest.mark.parametrize(("limits", "left"), [({"max_rows": 50}, 45), ({"max_age_s": 5.0}, 100), ({}, 100)])
def test_limits_of_a_link_in_the_deployment_file(limits: dict[str, Any], left: int) -> None:
    target = child(receiver(1, 7, None), receiver(2, 9, None), **limits)
    output = Output(NOW)
    output.offer(block(1, 100, [7, 9]), target, 0.0)
    assert output.rows == left
    output.due(6.0)
    assert output.rows == (0 if "max_age_s" in limits else left)
    found = waiting(output, target)
    for each in found.values():
        assert len(each.seqs) + given_up(each) == 100


def test_aggregate_works_where_others_want_the_same_rows() -> None:
    mean = {"max_rows": 30, "levels": [{"aggregate": {"of": "x", "window": "10 s", "time": "at"}}]}
    target = child(receiver(1, 7, mean), receiver(2, 7, None))
    output = Output(NOW)
    output.offer(block(1, 100, [7]), target, 0.0)
    below = child(*target.receivers)
    got: dict[int, list[float]] = {1: [], 2: []}
    declared = 0
    for message in sent(output, target, 7):
        for mine, piece in for_local(decode_block(encode_block(for_child(message, below)), SCHEMA), target.receivers):
            got[mine.id] += piece.rows.column("x").to_pylist()
            declared += sum(piece.declared.get(1, {}).values())
    assert got[2] == [float(x) for x in range(1, 101)], "the other one has every row as it was"
    # Windows of ten seconds: rows 1 to 9, 10 to 19, ..., 100.
    assert got[1] == [5.0, *(start + 4.5 for start in range(10, 100, 10)), 100.0]
    assert declared == 100 - len(got[1])


def test_aggregate_works_on_a_link_that_is_too_full() -> None:
    mean = {"levels": [{"aggregate": {"of": "x", "window": "10 s", "time": "at"}}]}
    target = child(receiver(1, 7, mean), receiver(2, 9, None))
    output = Output(replace(NOW, max_rows=80))
    offered = block(1, 99, [7])
    offered = replace(offered, classes=ClassLists.of([[7] if seq < 60 else [9] for seq in range(1, 100)]))
    output.offer(offered, target, 0.0)
    found = waiting(output, target)
    assert found[1].rows.column("x").to_pylist() == [5.0, 14.5, 24.5, 34.5, 44.5, 54.5]
    assert given_up(found[1]) == 59 - 6


BOUNDED: dict[int, dict[str, Any] | None] = {
    1: None,
    2: {"max_rows": 5, "levels": [{"latest": 3}]},
    3: {"max_rows": 6},
    4: {"max_age": "0.3 s"},
    5: {"levels": [{"guniq": "y"}], "digest": [{"distinct": "y"}]},
}


@pytest.mark.slow
@pytest.mark.parametrize("faults", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_counts_are_exact_through_crashes(seed: int, faults: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Receivers 2 and 5 share a class behind one link, and only one of them has a limit."""
    plain = worlds.receiver

    def with_policy(identity: int) -> Receiver:
        found = plain(identity)
        return replace(found, subscription=replace(found.subscription, policy=BOUNDED[identity]))

    monkeypatch.setattr(worlds, "receiver", with_policy)
    world = worlds.World(seed, limits=QueueLimits(max_rows=40, linger_s=0.0, idle_s=0.0), inbox_limit=4)
    _run(world, 150, faults=faults)
    world.drain()
    reasons: set[str] = set()
    for identity, (_, class_id, _) in worlds.RECEIVERS.items():
        told = 0
        for _, _, data in world.inboxes[identity].messages:
            found = decode_block(data, worlds.receiver(identity).schema)
            told += len(found.seqs) + sum(found.declared.get(identity, {}).values())
            reasons |= set(found.declared.get(identity, {}))
            if found.at_boundary:
                assert told == found.upto // class_id
        assert told == world.head // class_id
    if not faults:
        assert "latest" in reasons
