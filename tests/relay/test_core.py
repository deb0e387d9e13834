from __future__ import annotations

import pytest

from headgate.relay.core import RelayCore
from headgate.relay.output import QueueLimits
from tests.relay.world import RECEIVERS, World, routes

ROOMY = QueueLimits(linger_s=0.0, idle_s=0.0)


def _run(world: World, steps: int, *, faults: bool) -> None:
    for _ in range(steps):
        world.now += 0.1
        choice = world.random.random()
        site = world.random.choice(list(world.logs))
        if choice < 0.25:
            world.commit()
        elif choice < 0.6:
            world.receive(site)
        elif choice < 0.97 or not faults:
            world.publish(site, faulty=faults)
        else:
            world.crash(site)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 20))])
def test_every_matched_row_arrives_exactly_once_through_crashes_and_lost_answers(seed: int) -> None:
    world = World(seed, limits=ROOMY)
    _run(world, 150, faults=True)
    world.drain()
    assert world.crashes
    for identity in RECEIVERS:
        assert world.delivered(identity) == (world.matched(identity), {})


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 10))])
def test_what_does_not_fit_is_declared_and_the_rest_arrives_in_order(seed: int) -> None:
    world = World(seed, limits=QueueLimits(max_rows=12, linger_s=0.0, idle_s=0.0), inbox_limit=4)
    _run(world, 200, faults=False)
    world.drain()
    given_up_in_all = 0
    for identity in RECEIVERS:
        numbers, given_up = world.delivered(identity)
        assert numbers == sorted(set(numbers))
        assert set(numbers) <= set(world.matched(identity))
        assert len(numbers) + sum(given_up.values()) == len(world.matched(identity))
        given_up_in_all += sum(given_up.values())
    assert given_up_in_all
    assert world.refusals


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 10))])
def test_a_message_that_vanished_from_a_link_is_repaired(seed: int) -> None:
    world = World(seed, limits=ROOMY)
    for _ in range(12):
        world.commit()
        world.receive("root")
        world.publish("root", faulty=False)
    world.lose_link_message()
    world.drain()
    for identity in RECEIVERS:
        assert world.delivered(identity) == (world.matched(identity), {})


def test_a_link_carries_only_the_classes_and_columns_below_it() -> None:
    world = World(1, limits=ROOMY)
    for _ in range(3):
        world.commit()
    world.drain()
    from headgate.wire.message import decode_block

    for _, _, data in world.logs["c"].messages:
        block = decode_block(data, routes("c").schema)
        assert block.classes is not None
        assert set(block.classes.ids.tolist()) <= {3}
        assert all(seq % 3 == 0 for seq in block.seqs.tolist())


def test_an_output_has_to_be_restored_before_its_first_block() -> None:
    world = World(1, limits=ROOMY)
    world.commit()
    core = RelayCore("root", ROOMY)
    with pytest.raises(LookupError, match="was not restored"):
        core.receive(world.root_log[0], routes("root"), 0.0)


def test_the_settled_mark_waits_for_the_slowest_output() -> None:
    world = World(3, limits=ROOMY)
    world.commit()
    world.receive("root")
    core = world.cores["root"]
    assert core.settled("s") is None
    while core.settled("s") is None:
        world.now += 1
        world.publish("root", faulty=False)
    world.commit()
    world.receive("root")
    first = core.settled("s")
    assert first is not None
    assert first < world.head
