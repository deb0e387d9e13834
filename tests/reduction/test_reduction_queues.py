"""Queues and link buffers keep their promises under any mix of offers and takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import Schema
from headgate.reduction import FairDrain, ReductionQueue, parse_policy
from headgate_studies.models.link_buffer import LinkBuffer

SCHEMA = Schema.of({"k": "int", "x": "double", "s": "string", "t": "timestamp"})
POLICIES: list[dict[str, Any] | None] = [
    None,
    {"levels": [{"random": 0.1}, {"random": 0.25}, {"random": 0.5}], "controller": "ladder"},
    {
        "attribute": "x",
        "levels": [{"delta": 0.5}, {"drop": {"within": [-1, 1]}}, {"latest": 10}],
        "digest": ["max", "min"],
    },
    {"levels": [{"every": 2}, {"conflate": "k"}], "digest": [{"distinct": "s"}, {"quantiles": "x"}, {"std": "x"}]},
    {"levels": [{"uniq": "k"}, {"thin_time": {"step": "3 s", "key": "k"}}], "controller": "ladder", "headroom": 0.2},
    {"levels": [{"aggregate": {"of": "x", "window": "4 s", "key": "k"}}], "digest": [{"mean": "x"}], "max_age": "6 s"},
    {"levels": "auto", "allow": [{"guniq": "k"}, {"drop where": "x > 0"}, {"random": "needed"}]},
    {"levels": [{"drop": {"gt": 100, "attribute": "x"}}], "controller": "ladder"},
    {"attribute": "x", "levels": [{"extremes": {"step": "4 s", "key": "k"}}], "digest": ["max", "min"]},
]


def rows_of(rng: np.random.Generator, seqs: np.ndarray) -> pa.RecordBatch:
    count = len(seqs)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(rng.integers(0, 3, count), pa.int32()),
            pa.array(rng.normal(size=count)),
            pa.array(["abcdefgh"[: n % 8] for n in rng.integers(0, 8, count)]),
            pa.array(np.asarray(seqs, dtype=np.int64) * 1_000_000).cast(pa.timestamp("us", tz="UTC")),
        ],
        schema=SCHEMA.arrow,
    )


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    policy=st.sampled_from(range(len(POLICIES))),
    other=st.sampled_from(range(len(POLICIES))),
    seed=st.integers(0, 1 << 30),
    limit=st.sampled_from([(7, None), (25, None), (None, 400.0), (40, 700.0)]),
    steps=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=12),
)
def test_kept_and_digested_is_input(policy: int, other: int, seed: int, limit: Any, steps: list[Any]) -> None:
    rng = np.random.default_rng(seed)
    queue = ReductionQueue(parse_policy(POLICIES[policy], SCHEMA), SCHEMA, *limit, coverage=5)
    sequence, now, covered = 5, 0.0, 5
    offered: list[int] = []
    reduced_total = 0
    for step, (arrive, leave) in enumerate(steps):
        now += float(rng.random())
        seqs = sequence + np.cumsum(rng.integers(1, 4, arrive)).astype(np.uint64)
        to = int(seqs[-1]) + int(rng.integers(0, 3)) if arrive else sequence + int(rng.integers(0, 2))
        queue.offer(seqs, rows_of(rng, seqs), now, to)
        offered += seqs.tolist()
        sequence = to
        assert limit[0] is None or len(queue) <= limit[0]
        assert limit[1] is None or queue.bytes <= limit[1]
        if step == len(steps) // 2:
            queue.set_policy(parse_policy(POLICIES[other], SCHEMA), now)
        last = step == len(steps) - 1
        size = None if rng.random() < 0.7 else float(rng.integers(1, 200))
        taken = queue.take(None if last else leave, None if last else size, now)
        assert taken.since == covered
        assert taken.to >= covered
        assert np.all(taken.seqs[1:] > taken.seqs[:-1])
        inside = [seq for seq in offered if taken.since < seq <= taken.to]
        assert len(taken.seqs) + taken.reduced == len(inside)
        assert set(taken.seqs.tolist()) <= set(inside)
        assert taken.rows.num_rows == len(taken.seqs)
        if taken.digest is not None:
            assert taken.since < taken.digest.first <= taken.digest.last <= taken.to
            assert sum(taken.digest.reasons.values()) == taken.digest.count
            reduced_total += taken.digest.count
        covered = taken.to
    assert covered == sequence
    assert len(queue) == 0
    assert queue.untold == 0
    assert sum(queue.reduced.values()) == reduced_total


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    chosen=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(range(len(POLICIES))), st.integers(0, 1)), min_size=1, max_size=8
    ),
    seed=st.integers(0, 1 << 30),
    limit=st.sampled_from([(7, None), (25, None), (None, 400.0), (40, 700.0)]),
    steps=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=10),
)
@pytest.mark.slow
def test_a_link_tells_every_receiver_everything(chosen: list[Any], seed: int, limit: Any, steps: list[Any]) -> None:
    rng = np.random.default_rng(seed)
    link = LinkBuffer(SCHEMA, *limit)
    for number, (class_id, policy, priority) in enumerate(chosen):
        link.add(f"r{number}", class_id, parse_policy(POLICIES[policy], SCHEMA), priority=priority)
    matched: dict[int, list[int]] = {class_id: [] for class_id in range(4)}
    sequence, covered, now = 0, 0, 0.0
    for step, (arrive, leave) in enumerate(steps):
        now += float(rng.random())
        seqs = sequence + 1 + np.arange(arrive, dtype=np.uint64)
        member = rng.random((arrive, 4)) < 0.5
        member[~member.any(axis=1), 0] = True
        row, classes = np.nonzero(member)
        for seq, class_id in zip(seqs[row].tolist(), classes.tolist(), strict=True):
            matched[class_id].append(seq)
        offsets = np.concatenate([[0], np.cumsum(member.sum(axis=1))])
        sequence += arrive
        link.offer(seqs, rows_of(rng, seqs), offsets, classes, now, sequence)
        assert limit[0] is None or len(link) <= limit[0]
        assert limit[1] is None or link.bytes <= limit[1]
        taken = link.take() if step == len(steps) - 1 else link.take(leave)
        assert taken.since == covered
        assert np.all(taken.seqs[1:] > taken.seqs[:-1])
        for number, (class_id, _, _) in enumerate(chosen):
            inside = [seq for seq in matched[class_id] if taken.since < seq <= taken.to]
            got = taken.rows_of(f"r{number}").tolist()
            digest = taken.digest_of(f"r{number}")
            assert set(got) <= set(inside)
            assert len(got) + (digest.count if digest else 0) == len(inside)
            assert digest is None or (taken.since < digest.first and digest.last <= taken.to)
        covered = taken.to
    assert covered == sequence
    assert len(link) == 0


def test_equal_policies_share_a_queue_and_a_row_goes_once() -> None:
    link = LinkBuffer(SCHEMA, 10)
    one = parse_policy({"levels": [{"every": 2}], "headroom": 0.1}, SCHEMA)
    same = parse_policy({"headroom": 0.1, "levels": [{"every": 2}]}, SCHEMA)
    assert link.add("a", 1, one) == link.add("b", 1, same) != link.add("c", 2, one)
    seqs = np.arange(1, 7, dtype=np.uint64)
    classes = np.tile([1, 2], 6)
    link.offer(seqs, rows_of(np.random.default_rng(0), seqs), np.arange(0, 13, 2), classes, 0.0)
    taken = link.take()
    assert taken.seqs.tolist() == [1, 2, 3, 4, 5, 6]
    assert taken.rows_of("a").tolist() == taken.rows_of("b").tolist() == taken.rows_of("c").tolist()
    assert len(taken.groups) == 12
    link.remove("c")
    link.remove("a")
    assert [group.receivers for group in link.groups.values()] == [["b"]]


def test_a_link_gives_up_the_rows_of_the_one_who_takes_too_much() -> None:
    link = LinkBuffer(SCHEMA, 100)
    for name, class_id in (("small", 1), ("large", 2)):
        link.add(name, class_id, parse_policy(None, SCHEMA))
    rng = np.random.default_rng(3)
    for block in range(20):
        seqs = block * 20 + 1 + np.arange(20, dtype=np.uint64)
        classes = np.where(np.arange(20) < 2, 1, 2)
        link.offer(seqs, rows_of(rng, seqs), np.arange(21), classes, float(block))
    small, large = (group.backlog for group in link.groups.values())
    assert sum(small.reduced.values()) == 0
    assert sum(large.reduced.values()) > 200


def test_rows_out_of_order_are_refused() -> None:
    queue = ReductionQueue(parse_policy(None, SCHEMA), SCHEMA, coverage=10)
    seqs = np.array([10], dtype=np.uint64)
    with pytest.raises(ValueError, match="after 10"):
        queue.offer(seqs, rows_of(np.random.default_rng(0), seqs), 0.0)


def test_memory_of_what_the_receiver_has() -> None:
    """DELTA compares with what left the queue, not with what an earlier pack saw."""
    schema = Schema.of({"x": "double"})
    queue = ReductionQueue(parse_policy({"levels": [{"delta": {"attribute": "x", "change": 5}}]}, schema), schema, 4)

    def offer(first: int, values: list[float]) -> None:
        seqs = first + np.arange(len(values), dtype=np.uint64)
        queue.offer(seqs, pa.RecordBatch.from_pydict({"x": values}), float(first))

    offer(1, [10.0, 20.0])
    assert queue.take(2).rows.column("x").to_pylist() == [10.0, 20.0]
    offer(3, [21.0, 22.0, 26.0, 27.0, 31.0])
    assert queue.take().rows.column("x").to_pylist() == [26.0, 31.0]


def test_fair_drain_gives_bytes_by_weight_inside_priority() -> None:
    drain = FairDrain(quantum=100)
    drain.add("one", 1.0)
    drain.add("two", 2.0)
    drain.add("urgent", 1.0, priority=1)
    sent = dict.fromkeys(("one", "two", "urgent"), 0.0)
    sizes = {"one": 130.0, "two": 70.0}
    for _ in range(3000):
        name = drain.next(sizes)
        assert name is not None
        sent[name] += sizes[name]
    assert sent["two"] / sent["one"] == pytest.approx(2.0, rel=0.01)
    assert drain.next({**sizes, "urgent": 10_000.0}) == "urgent"
    drain.remove("one")
    assert drain.next({"two": 1.0}) == "two"
    assert drain.next({}) is None
