"""The ladder settles under a steady overload, both controllers bound the queue, and `auto` orders levels by measure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headgate.model import Schema
from headgate.reduction import ReductionQueue, parse_policy
from headgate.reduction.controllers import Ladder, Pressure
from headgate_studies.studies.pack_simulation import drop_tail, through_queue

SCHEMA = Schema.of({"bpm": "double", "patient": "int"})
RANDOM: dict[str, Any] = {"levels": [{"random": 0.1}, {"random": 0.25}, {"random": 0.5}]}
PULSE: dict[str, Any] = {"attribute": "bpm", "levels": [{"delta": 5}, {"drop": {"within": [50, 100]}}, {"latest": 10}]}
USELESS: dict[str, Any] = {"levels": [{"drop where": "bpm > 1000"}, {"every": 2}]}


def pulse(count: int, seed: int) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    values = 80 + 15 * np.sin(np.arange(count) / 50) + rng.normal(0, 6, count)
    return pa.RecordBatch.from_arrays(
        [pa.array(values), pa.array(rng.integers(0, 5, count), pa.int32())], schema=SCHEMA.arrow
    )


@pytest.mark.parametrize("factor", [1.1, 1.33, 2.0, 4.0])
@pytest.mark.parametrize("document", [RANDOM, PULSE, USELESS], ids=["random", "pulse", "useless"])
def test_the_ladder_settles(document: dict[str, Any], factor: float) -> None:
    """In the second half of a steady overload the level varies by at most one; the queue never passes its limit."""
    arrivals = np.arange(2500) * 0.03
    service = np.full(2500, 0.03 * factor)
    policy = parse_policy({**document, "controller": "ladder"}, SCHEMA)
    outcome = through_queue(policy, SCHEMA, pulse(2500, 1), arrivals, service, 50)
    settled = outcome.levels[len(outcome.levels) // 2 :]
    assert max(settled) - min(settled) <= 1
    assert outcome.longest <= 50
    assert outcome.declared == outcome.lost
    assert len(outcome.delay_s) + outcome.lost == 2500


@pytest.mark.parametrize("controller", ["ladder", "deficit"])
def test_same_loss_as_drop_tail_and_less_delay(controller: str) -> None:
    arrivals = np.arange(3000) * 0.03
    service = np.full(3000, 0.04)
    ours = through_queue(
        parse_policy({**RANDOM, "controller": controller}, SCHEMA), SCHEMA, pulse(3000, 2), arrivals, service, 50
    )
    peer = drop_tail(arrivals, service, 50)
    assert ours.loss == pytest.approx(peer.loss, abs=0.02)
    assert np.mean(ours.delay_s) < 0.85 * np.mean(peer.delay_s)


def test_a_level_that_frees_nothing_is_climbed_at_once() -> None:
    queue = ReductionQueue(parse_policy({**USELESS, "controller": "ladder"}, SCHEMA), SCHEMA, 10)
    queue.offer(np.arange(1, 12, dtype=np.uint64), pulse(11, 0), 0.0)
    assert queue.level == 2
    assert len(queue) == 6


def test_the_ratio_is_taken_before_the_history_moves() -> None:
    ladder = Ladder()
    ladder.packed(0.0, 2, 0.3)
    for step in range(1, 6):
        assert ladder.start(Pressure(step * 10.0, 100, 10, 5, 3)) == 2
        ladder.packed(step * 10.0, 2, 0.3)
    for now in (50.5, 51.0, 51.5):
        level = ladder.start(Pressure(now, 100, 10, 5, 3))
        ladder.packed(now, level, 0.3)
    assert level == 3
    for now in (60.0, 200.0, 340.0, 480.0, 620.0, 760.0):
        level = ladder.start(Pressure(now, 100, 10, 5, 3))
        ladder.packed(now, level, 0.3)
    assert level < 3


def test_auto_puts_what_helps_first_and_logs_it() -> None:
    document = {
        "levels": "auto",
        "allow": [{"drop where": "bpm > 1000"}, {"conflate": "patient"}, {"every": 2}, {"random": "needed"}],
    }
    queue = ReductionQueue(parse_policy(document, SCHEMA), SCHEMA, 40)
    for block in range(6):
        seqs = block * 20 + 1 + np.arange(20, dtype=np.uint64)
        queue.offer(seqs, pulse(20, block), float(block))
    (change, *_) = queue.reorderings
    assert change.before == ("drop_where", "conflate", "every", "random")
    assert change.after == ("every", "conflate", "drop_where", "random")
    assert len(queue) <= 40


@pytest.mark.parametrize("controller", ["ladder", "deficit"])
@pytest.mark.parametrize("document", [None, {"levels": [{"random": "needed"}]}, {"levels": ["tail"]}])
def test_as_many_rows_go_as_needed_and_no_more(document: dict[str, Any] | None, controller: str) -> None:
    """However heavy the overload is, a pack leaves the headroom free: a tenth of the queue, not half of it."""
    policy = parse_policy(None if document is None else {**document, "controller": controller}, SCHEMA)
    queue = ReductionQueue(policy, SCHEMA, 100)
    for start in range(1, 5000, 90):
        queue.offer(np.arange(start, start + 90, dtype=np.uint64), pulse(90, start), start / 90)
        assert 90 <= len(queue) <= 100
    assert queue.packs > 40


@pytest.mark.parametrize(("offered", "left"), [(99, 99), (100, 100), (101, 90)])
def test_a_queue_is_packed_past_its_limit_and_not_before(offered: int, left: int) -> None:
    queue = ReductionQueue(parse_policy(None, SCHEMA), SCHEMA, 100)
    queue.offer(np.arange(1, offered + 1, dtype=np.uint64), pulse(offered, 1), 0.0)
    assert len(queue) == left
    assert queue.untold == offered - left


def test_a_gentle_level_is_passed_over_when_the_overload_asks_for_more() -> None:
    """`deficit` still chooses the level by the overload where levels drop parts that they fix themselves."""
    queue = ReductionQueue(parse_policy({**RANDOM, "controller": "deficit"}, SCHEMA), SCHEMA, 100)
    for start in range(1, 1000, 50):
        queue.offer(np.arange(start, start + 50, dtype=np.uint64), pulse(50, start), start / 50)
    assert queue.level == 3
