"""Outputs give up rows as policies say, and every commit's end has exact counts, through crashes too."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.matching import ClassLists
from headgate.model import Subscription
from headgate.reduction.backlog import Limit
from headgate.relay.output import Output, QueueLimits
from headgate.relay.reducer import Reducer, Waiting
from headgate.relay.routes import Child, Receiver
from headgate.wire.block import Block, Commit
from headgate.wire.message import decode_block, encode_block, encode_json
from tests.relay import world as worlds
from tests.relay.test_core import _run

POLICIES: dict[int, dict[str, Any] | None] = {
    1: {"levels": [{"every": 2}], "digest": [{"max": "x"}]},
    2: {"levels": [{"drop where": "x % 4 = 0"}, {"latest": 3}], "controller": "ladder", "digest": ["count"]},
    3: {"levels": [{"delta": {"attribute": "x", "change": 5}}], "max_rows": 6},
    4: None,
    5: {"levels": [{"guniq": "y"}, {"random": 0.5}], "digest": [{"distinct": "y"}]},
}


@pytest.fixture
def with_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = worlds.receiver

    def receiver(identity: int) -> Receiver:
        found = plain(identity)
        return replace(found, subscription=replace(found.subscription, policy=POLICIES[identity]))

    monkeypatch.setattr(worlds, "receiver", receiver)


@pytest.mark.slow
@pytest.mark.usefixtures("with_policies")
@pytest.mark.parametrize("faults", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_counts_are_exact_at_every_end_of_a_commit(seed: int, faults: bool) -> None:
    world = worlds.World(seed, limits=QueueLimits(max_rows=12, linger_s=0.0, idle_s=0.0), inbox_limit=4)
    _run(world, 250, faults=faults)
    world.drain()
    reasons: set[str] = set()
    for identity, (_, class_id, _) in worlds.RECEIVERS.items():
        schema = worlds.receiver(identity).schema
        told = 0
        for _, _, data in world.inboxes[identity].messages:
            block = decode_block(data, schema)
            told += len(block.seqs) + sum(block.declared.get(identity, {}).values())
            reasons |= set(block.declared.get(identity, {}))
            assert set(block.digests) <= {identity}
            if identity in block.digests:
                assert block.digests[identity].count <= sum(block.declared[identity].values())
            if block.at_boundary:
                assert told == block.upto // class_id
        assert told == world.head // class_id
    assert reasons & {"every", "random", "delta", "latest", "guniq", "drop_where"}


SCHEMA = pa.schema([("x", pa.int64())])


def _receiver(identity: int, class_id: int, policy: dict[str, Any] | None, weight: float = 1.0) -> Receiver:
    subscription = Subscription(f"r{identity}", "s", "a", policy=policy, weight=weight)
    return Receiver(identity, class_id, subscription, pa.schema([("x", pa.int64())]))


def _block(first: int, last: int, classes: list[list[int]] | None, *, commits: int = 1) -> Block:
    seqs = np.arange(first, last + 1, dtype=np.uint64)
    ends = np.linspace(first - 1, last, commits + 1).astype(int).tolist()
    found = tuple(Commit(low, high, 1, 1_000 * high) for low, high in itertools.pairwise(ends))
    rows = pa.RecordBatch.from_arrays([pa.array(seqs.astype(np.int64))], names=["x"])
    return Block("s", first - 1, last, found, seqs, rows, None if classes is None else ClassLists.of(classes))


def test_a_link_drops_a_row_for_a_class_only_when_all_its_policies_do() -> None:
    gentle = _receiver(1, 7, {"levels": [{"drop where": "x > 8"}]})
    harsh = _receiver(2, 7, {"levels": [{"drop where": "x > 4"}]})
    other = _receiver(3, 9, {"levels": [{"drop where": "x > 0"}]})
    child = Child("c", (gentle, harsh, other), pa.schema([("x", pa.int64())]))
    block = _block(1, 12, [[7, 9] for _ in range(12)])
    reducer = Reducer()
    reducer.offered(block, child)
    (result,) = reducer.reduce([Waiting(block, child, 0.0)], Limit(8, None), 1.0)
    left = result.block
    assert left.classes is not None
    assert len(left.seqs) <= 8
    for identity, class_id in ((1, 7), (2, 7), (3, 9)):
        kept = sum(class_id in left.classes.row(row).tolist() for row in range(len(left.seqs)))
        assert kept + sum(left.declared.get(identity, {}).values()) == 12
    assert left.declared[1] is not left.declared[2]
    assert sum(left.declared[1].values()) == sum(left.declared[2].values())


def test_digests_travel_and_merge() -> None:
    receiver = _receiver(1, 7, {"levels": [{"every": 3}], "digest": [{"max": "x"}, {"min": "x"}]})
    blocks = [_block(1, 9, None), _block(10, 18, None)]
    reducer = Reducer()
    result = reducer.reduce([Waiting(block, receiver, 0.0) for block in blocks], Limit(8, None), 1.0)
    assert [len(each.block.seqs) for each in result] == [3, 3]
    for encode in (encode_block, encode_json):
        back = decode_block(encode(result[0].block), receiver.schema)
        assert back.digests == result[0].block.digests
        assert back.digests[1].show() == {
            "count": 6, "reasons": {"every": 6}, "first": 2, "last": 9, "max(x)": 9, "min(x)": 2,
        }  # fmt: skip


def test_a_block_of_several_commits_is_told_commit_by_commit() -> None:
    receiver = _receiver(1, 7, {"levels": [{"every": 2}]})
    result = Reducer().reduce([Waiting(_block(1, 12, None, commits=3), receiver, 0.0)], Limit(8, None), 1.0)
    assert [(each.block.after, each.block.upto, each.block.at_boundary) for each in result] == [
        (0, 4, True), (4, 8, True), (8, 12, True),
    ]  # fmt: skip
    assert [each.block.declared for each in result] == [{1: {"every": 2}}] * 3


def test_old_rows_go_whatever_the_age_is_measured_by() -> None:
    receiver = _receiver(1, 7, {"max_age": "5 s"})
    reducer = Reducer()
    waiting = [Waiting(_block(1, 3, None), receiver, 0.0), Waiting(_block(4, 6, None), receiver, 8.0)]
    assert reducer.expire(waiting, 4.0) is None
    fresh = reducer.expire(waiting, 9.0)
    assert fresh is not None
    assert [each.block.seqs.tolist() for each in fresh] == [[], [4, 5, 6]]
    assert fresh[0].block.declared == {1: {"max_age": 3}}


@pytest.mark.parametrize("link", [False, True])
def test_giving_up_a_whole_block_tells_everybody(link: bool) -> None:
    receiver = _receiver(1, 7, {"digest": [{"max": "x"}], "levels": [{"every": 2}]})
    other = _receiver(2, 9, None)
    target: Child | Receiver = Child("c", (receiver, other), receiver.schema) if link else receiver
    block = _block(1, 4, [[7], [7, 9], [9], [9]] if link else None)
    left = Reducer().emptied(Waiting(block, target, 0.0), "oldest").block
    assert len(left.seqs) == 0
    assert left.declared == ({1: {"oldest": 2}, 2: {"oldest": 3}} if link else {1: {"oldest": 4}})
    assert left.digests[1].show()["max(x)"] == (2 if link else 4)
    assert set(left.digests) == {1}


def test_a_long_pack_runs_apart_while_the_front_is_sent() -> None:
    receivers = tuple(_receiver(number, 7, {"levels": [{"random": number / 50}]}) for number in range(1, 31))
    child = Child("c", receivers, pa.schema([("x", pa.int64())]))
    output = Output(QueueLimits(max_rows=80, linger_s=0.0), defer=True)
    left: list[Block] = []

    def send(now: float) -> None:
        block = output.next_message(now, 5)
        assert block is not None
        left.append(block)
        output.published(len(left))

    output.offer(_block(1, 60, [[7]] * 60), child, 0.0)
    assert not output.overfull
    output.offer(_block(61, 120, [[7]] * 60), child, 0.1)
    assert output.overfull
    work = output.begin_pack(0.2)
    assert work is not None
    send(0.3)
    send(0.3)
    assert output.next_message(0.3, 5) is None, "only the front is free"
    output.end_pack(work())
    assert output.rows <= 80
    while output.queue:
        send(1.0)
    assert [(one.upto, two.after) for one, two in itertools.pairwise(left)] == [
        (one.upto, one.upto) for one in left[:-1]
    ]
    sent = sum(len(block.seqs) for block in left)
    assert sent < 120
    for receiver in receivers:
        assert sent + sum(sum(block.declared.get(receiver.id, {}).values()) for block in left) == 120


def test_a_block_larger_than_the_queue_is_not_old_at_once() -> None:
    output = Output(QueueLimits(max_rows=20, linger_s=0.0))
    receiver = _receiver(1, 7, None)
    output.offer(_block(1, 200, None), receiver, 0.0)
    assert output.rows == 18, "as many as needed go: a tenth of the queue stays free"
    output.offer(_block(201, 400, None), receiver, 1.0)
    left = [each.block for each in output.queue]
    assert sum(len(block.seqs) + sum(block.declared.get(1, {}).values()) for block in left) == 400
    assert 0 < output.rows <= 20
    assert all(seq > 200 for block in left for seq in block.seqs.tolist()), "what came before four times the limit goes"


def test_what_an_output_gave_up_before_its_first_message_is_known_after_a_restart() -> None:
    receiver = _receiver(1, 7, None)
    given_up = replace(_block(1, 40, None).take(np.zeros(0, dtype=np.int64)), declared={1: {"oldest": 40}})
    output = Output(QueueLimits(linger_s=0.0))
    output.restore_held(given_up, receiver, 0.0)
    assert (output.settled, output.reach) == (40, 40)
    output.offer(_block(41, 50, None), receiver, 1.0)
    message = output.next_message(2.0, 100)
    assert message is not None
    assert (message.after, message.upto, message.declared) == (0, 40, {1: {"oldest": 40}})


@pytest.mark.parametrize("other", [{"levels": [{"latest": 3}]}, {"levels": [{"conflate": "x"}]}, None])
def test_the_newest_rows_stay_where_a_policy_asks_for_the_latest(other: dict[str, Any] | None) -> None:
    """On a shared link as many of the rows that `latest` would drop go as have to: the oldest of them."""
    child = Child("c", (_receiver(1, 7, {"levels": [{"latest": 5}]}), _receiver(2, 9, other)), SCHEMA)
    block = _block(1, 200, [[7] if seq % 2 else [9] for seq in range(1, 201)])
    (result,) = Reducer().reduce([Waiting(block, child, 0.0)], Limit(100, None), 1.0)
    left = result.block
    assert left.classes is not None
    mine = [int(seq) for row, seq in enumerate(left.seqs) if 7 in left.classes.row(row).tolist()]
    assert 5 < len(mine) < 100, "more than asked for, as there is room for it"
    assert mine == list(range(201 - 2 * len(mine), 200, 2)), "and these are the newest"
