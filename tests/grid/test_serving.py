"""Sites that serve, replicate and retreat: every query is served exactly once, and every replica is accounted for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.grid import DzSet, DzSpace, decompose_batch
from headgate.grid.serving import Budget, Demand, Partition, Parts, ServingOverlay
from headgate.grid.serving.holdings import OWN, fitting
from headgate_studies.workloads.serving import HotSpot, cut, index_space

SPACE = DzSpace.round_robin({"x": 3, "y": 3, "space": 2, "time": 1})
quick = settings(deadline=None, max_examples=25, derandomize=True)

# A spiral: greedy routing by distance alone runs into its walls.
SPIRAL = np.array(
    [
        [0, 0, 0, 0, 0, 0, 0, 1],
        [9, 9, 9, 9, 9, 9, 9, 1],
        [8, 5, 5, 5, 5, 5, 9, 1],
        [8, 5, 7, 7, 7, 5, 9, 1],
        [8, 5, 6, 6, 7, 5, 9, 1],
        [8, 5, 5, 6, 7, 5, 9, 2],
        [8, 8, 8, 8, 8, 8, 8, 2],
        [3, 3, 3, 4, 4, 4, 2, 2],
    ]
)


def query(identity, low, high):
    _, codes, lengths = decompose_batch(SPACE, [low], [high])
    return Parts(Demand(identity, tuple(low), tuple(high)), codes, lengths)


def random_box(rng):
    low = [int(rng.integers(0, size)) if d < 2 else 0 for d, size in enumerate(SPACE.shape)]
    high = [int(rng.integers(a + 1, size + 1)) for a, size in zip(low, SPACE.shape, strict=True)]
    return low, high


def check(overlay):
    """The ledger: queries are served once and whole, streams agree at both ends, and all data comes from its owner."""
    space = overlay.partition.space
    for core in overlay.sites.values():
        have = core.holdings
        assert have.budget.held == 0
        assert have.budget.used <= have.budget.capacity
        assert have.clients.regions() <= have.available
        assert have.outgoing.regions() <= have.available
        for identity, sink in have.sinks.items():
            source = overlay.sites[sink.peer].holdings.sources[identity]
            assert (source.peer, source.region) == (core.site, sink.region)
        for identity, source in have.sources.items():
            assert overlay.sites[source.peer].holdings.sinks[identity].peer == core.site
        assert len(have.clients) == sum(len(slots) for slots in have.slots.values())
        assert set(have.slots) == set(have.demands)
        own = have.incoming.parts(list(have.incoming.inside(0, 0)))[3].tolist().count(OWN)
        assert own + len(have.sources) == len(have.incoming)
    shared = {id(core.holdings.budget): core.holdings.budget.used for core in overlay.sites.values()}
    assert sum(shared.values()) >= overlay.client_load + overlay.replication
    for demand, placement in overlay.clients.items():
        served = {site: core for site, core in overlay.sites.items() if demand in core.holdings.slots}
        assert set(served) == set(placement.parts)
        if not placement.refused:
            total = 0
            for core in served.values():
                slots = sorted(core.holdings.slots[demand])
                total += int(core.holdings.clients.parts(slots)[2].sum())
            assert total == placement.demand.size
            assert placement.lacking == 0
    grounded = {site: overlay.partition.cells(site) for site in overlay.sites}
    while True:
        before = sum(cells.cells for cells in grounded.values())
        for site, core in overlay.sites.items():
            for source in core.holdings.sources.values():
                region = DzSet.from_expressions(space, [source.region.code], [source.region.length])
                grounded[site] = grounded[site] | (region & grounded[source.peer])
        if sum(cells.cells for cells in grounded.values()) == before:
            break
    for site, core in overlay.sites.items():
        assert core.holdings.available == grounded[site]


@pytest.mark.slow
@quick
@given(st.integers(0, 2**32 - 1), st.sampled_from([20, 60, 200]), st.booleans(), st.sampled_from([0.0, 0.3]))
def test_random_queries_and_removals_leave_a_true_ledger(seed, capacity, together, ahead_s):
    rng = np.random.default_rng(seed)
    overlay = ServingOverlay(Partition.squares(SPACE, 2), capacity, limit=SPACE.digits, ahead_s=ahead_s)
    for identity in range(30):
        if ahead_s:
            overlay.tick()
        overlay.ask(f"s{rng.integers(4)}", query(identity, *random_box(rng)))
        if not together:
            overlay.run()
        for gone in [d for d in overlay.clients if rng.random() < 0.1 and overlay.clients[d].complete_at is not None]:
            overlay.cancel(gone)
    overlay.run()
    check(overlay)
    for demand in list(overlay.clients):
        overlay.cancel(demand)
        if rng.random() < 0.5:
            overlay.run()
            check(overlay)
    for _ in range(4):
        overlay.run()
        overlay.run(until=overlay.now + 1.0)
        overlay.tick()
    overlay.run()
    check(overlay)
    assert (overlay.client_load, overlay.replication, overlay.connections) == (0, 0, 0)


@given(st.lists(st.integers(0, 50)), st.integers(-5, 200))
def test_what_fits_is_taken_largest_first_past_what_does_not(weights, room):
    weights.sort(reverse=True)
    left, expected = room, []
    for weight in weights:
        expected.append(weight <= left)
        left -= weight if weight <= left else 0
    assert fitting(np.array(weights, dtype=np.int64), room).tolist() == expected


def test_every_query_finds_its_site_on_an_irregular_partition():
    space = DzSpace.round_robin({"x": 3, "y": 3})
    partition = Partition(space, tuple(f"p{i}" for i in range(10)), SPIRAL)
    overlay = ServingOverlay(partition, 10**6, limit=6)
    identity = 0
    for site in partition.sites:
        for x in range(8):
            for y in range(8):
                _, codes, lengths = decompose_batch(space, [[x, y]], [[x + 1, y + 1]])
                overlay.ask(site, Parts(Demand(identity, (x, y), (x + 1, y + 1)), codes, lengths))
                overlay.run()
                assert list(overlay.clients[identity].parts) == [f"p{SPIRAL[y, x]}"]
                identity += 1


def test_an_overloaded_region_spreads_and_comes_back_when_the_crowd_leaves():
    overlay = ServingOverlay(Partition.squares(SPACE, 2), 120, limit=SPACE.digits)
    for identity in range(40):
        overlay.ask("s3", query(identity, [0, 0, 0, 0], [2, 1, 4, 2]))
        overlay.run()
    check(overlay)
    assert not any(placement.refused for placement in overlay.clients.values()) or overlay.client_load > 400
    assert overlay.connections > 0
    served = {site for placement in overlay.clients.values() for site in placement.parts}
    assert len(served) > 1
    for identity in range(40):
        if identity % 8:
            overlay.cancel(identity)
    overlay.run()
    check(overlay)
    assert overlay.connections == 0, "five queries fit where the data is"


@pytest.mark.long
@quick
@given(st.integers(0, 2**32 - 1))
def test_replicas_go_back_when_readers_were_moved_on_by_what_was_measured_and_left_then(seed):
    rng = np.random.default_rng(seed)
    overlay = ServingOverlay(Partition.squares(SPACE, 2), 120, limit=SPACE.digits)
    for identity in range(24):
        overlay.ask("s3", query(identity, [0, 0, 0, 0], [2, 1, 4, 2]))
        overlay.run()
        if rng.random() < 0.3:
            overlay.measure(f"s{rng.integers(4)}", int(rng.integers(16, 200)))
            overlay.run()
    for identity in range(24):
        overlay.cancel(identity)
    for _ in range(4):
        overlay.run(until=overlay.now + 6.0)
        overlay.tick()
    overlay.run()
    assert (overlay.client_load, overlay.replication, overlay.connections) == (0, 0, 0)


def test_a_crowd_on_one_smallest_region_is_served_by_all_sites():
    overlay = ServingOverlay(Partition.squares(SPACE, 4), 110, limit=SPACE.digits)
    for identity in range(1_600):
        overlay.ask("s5", query(identity, [2, 2, 0, 0], [3, 3, 1, 1]))
        overlay.run()
    assert not any(placement.refused for placement in overlay.clients.values())
    assert overlay.replication <= 0.05 * overlay.client_load


def test_streams_share_the_bandwidth_of_a_site():
    partition = Partition.squares(SPACE, 2)
    budgets = {site: Budget(64) for site in partition.sites}
    wind, rain = (ServingOverlay(partition, budgets, limit=SPACE.digits) for _ in range(2))
    for identity in range(6):
        for overlay in (wind, rain):
            overlay.ask("s0", query(identity, [0, 0, 0, 0], [2, 2, 2, 2]))
            overlay.run()
    for site, budget in budgets.items():
        used = [overlay.sites[site].holdings for overlay in (wind, rain)]
        assert budget.used == sum(have.clients.total + have.outgoing.total for have in used) <= 64
    assert wind.client_load + rain.client_load > 2 * 64, "both streams have spread to other sites"


def test_the_same_query_weighs_the_same_on_every_index():
    boxes = HotSpot(1.0).boxes(np.random.default_rng(5))
    for identity, (low, high) in zip(range(20), boxes, strict=False):
        sizes = set()
        for dimensions in (2, 3, 4):
            space = index_space(dimensions)
            parts = cut(space, identity, low, high, 8)
            weights = parts.demand.weights(space, parts.codes, parts.lengths)
            assert int(weights.sum()) == parts.demand.size
            sizes.add(parts.demand.size)
        assert len(sizes) == 1


def test_partitions_that_are_none_are_refused():
    with pytest.raises(ValueError, match="power of two"):
        Partition(SPACE, ("a",), np.zeros((3, 3), dtype=np.int64))
    with pytest.raises(ValueError, match="every site must own"):
        Partition(SPACE, ("a", "b"), np.zeros((2, 2), dtype=np.int64))


def test_a_region_on_the_way_of_a_crowd_is_replicated_before_it_comes():
    space = index_space(4)
    partition = Partition.squares(space, 4)
    overlay = ServingOverlay(partition, space.cells // 16, limit=8, ahead_s=2.0)
    sent = []
    for identity in range(80):
        at = 0.1 * identity
        overlay.run(until=at)
        left = round((0.05 + 0.05 * at) * 1024)
        overlay.ask("s0", cut(space, identity, (left, 40, 0, 0), (left + 150, 190, 512, 512), 8))
        if identity % 10 == 9:
            overlay.tick()
            overlay.run(until=at + 0.05)
            sent.append({s.region.id for core in overlay.sites.values() for s in core.holdings.sinks.values()})
    assert overlay.messages["Expect"] + sum(len(core._unused) for core in overlay.sites.values()) > 0
    assert any(sent)
    for identity in range(80):
        overlay.cancel(identity)
    for _ in range(8):
        overlay.run(until=overlay.now + 1.0)
        overlay.tick()
    overlay.run()
    check(overlay)
    assert overlay.connections == 0
