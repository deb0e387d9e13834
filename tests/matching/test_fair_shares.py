"""Fair shares of matching: max-min fairness against an oracle, and a stream that is behind because of one identity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.matching.fair_shares import LEAST_PART, BatchLoad, FairShares, max_min

demands = st.dictionaries(st.integers(0, 9), st.floats(0.01, 1000), min_size=1, max_size=8)
weights = st.dictionaries(st.integers(0, 9), st.floats(0.1, 10), max_size=10)


def oracle(wanted: dict[int, float], capacity: float, by: dict[int, float]) -> dict[int, float]:
    """The water level at which all that is given is the capacity, by bisection."""
    low, high = 0.0, 1e7
    for _ in range(200):
        level = (low + high) / 2
        if sum(min(need, level * by.get(each, 1.0)) for each, need in wanted.items()) < capacity:
            low = level
        else:
            high = level
    return {each: min(need, high * by.get(each, 1.0)) for each, need in wanted.items()}


@given(demands, st.floats(0.01, 5000), weights)
def test_shares_are_those_of_the_water_level(wanted: dict[int, float], capacity: float, by: dict[int, float]) -> None:
    assert max_min(wanted, capacity, by) == pytest.approx(oracle(wanted, capacity, by), rel=1e-6, abs=1e-9)


@given(demands, st.floats(0.01, 5000), weights)
def test_nobody_gets_more_than_needed_nor_less_than_a_share(
    wanted: dict[int, float], capacity: float, by: dict[int, float]
) -> None:
    found = max_min(wanted, capacity, by)
    total = sum(by.get(each, 1.0) for each in wanted)
    assert sum(found.values()) <= capacity * (1 + 1e-9)
    for each, need in wanted.items():
        share = capacity * by.get(each, 1.0) / total
        assert min(need, share) * (1 - 1e-9) <= found[each] <= need


costs = st.dictionaries(st.integers(1, 20), st.floats(0.5, 2000), min_size=1, max_size=12)


@given(costs, st.data(), st.floats(1.01, 20))
def test_whoever_needs_less_than_its_share_is_not_cut(cost: dict[int, float], data: st.DataObject, late: float) -> None:
    owners = {each: data.draw(st.sets(st.sampled_from("abcd"), min_size=1), label=str(each)) for each in cost}
    shares = FairShares(1.0)
    shares.learn(load(cost, seconds=late))
    assert shares.budget_us is not None
    serving = shares.serve(owners)
    people = {owner for mine in owners.values() for owner in mine}
    fair_us = shares.budget_us / len(people)
    for portion in serving.portions:
        mine = [each for each, names in owners.items() if portion.identity in names]
        assert portion.needs_us == pytest.approx(sum(cost[each] / len(owners[each]) for each in mine))
        if portion.needs_us <= fair_us:
            assert not any(each in serving.parts for each in mine)
    assert all(LEAST_PART <= part < 1 for part in serving.parts.values())
    if all(len(mine) == 1 for mine in owners.values()):
        taken_us = sum(cost[each] * serving.parts.get(each, 1.0) for each in cost)
        assert taken_us <= shares.budget_us + LEAST_PART * sum(cost.values()) + 1e-6


def load(cost: dict[int, float], seconds: float, parts: dict[int, float] | None = None) -> BatchLoad:
    """A micro-batch of as many rows as take so long, of which some classes are evaluated on a part."""
    rows = int(seconds * 1e6 / sum(cost.values())) + 1
    looked = {each: max(1, int(rows * (parts or {}).get(each, 1.0))) for each in cost}
    spent = {each: (count, cost[each] * count / 1e6) for each, count in looked.items()}
    return BatchLoad(rows, sum(taken_s for _, taken_s in spent.values()), 1, 0, spent)


def test_the_stream_catches_up_and_only_the_one_who_takes_too_much_is_cut() -> None:
    """Bob has 20 filters of 5 us, eve 4 of 400: a micro-batch takes 3.4 times its period with all of it."""
    cost = dict.fromkeys(range(20), 5.0) | dict.fromkeys(range(20, 24), 400.0)
    owners = {each: ["bob" if each < 20 else "eve"] for each in cost}
    shares, parts, took = FairShares(1.0), {}, []
    for _ in range(60):
        batch = load(cost, 3.4, parts)
        took.append(batch.seconds)
        shares.learn(batch)
        parts = dict(shares.serve(owners).parts)
        assert not parts.keys() & set(range(20))
    assert took[0] > 3
    assert max(took[8:]) < 1.2  # it stays about at its period
    assert all(0.2 < part < 0.5 for part in parts.values())


def test_nobody_is_cut_where_matching_is_not_the_reason() -> None:
    shares = FairShares(1.0)
    shares.learn(BatchLoad(1_000, 12.0, 2, 0, {1: (1_000, 0.5)}))  # a session that warms up
    assert shares.serve({1: ["eve"]}).parts == {}


def test_when_the_load_is_gone_everybody_is_served_again() -> None:
    shares, owners = FairShares(1.0), {1: ["eve"], 2: ["bob"]}
    shares.learn(load({1: 900.0, 2: 10.0}, 2.0))
    assert set(shares.serve(owners).parts) == {1}
    for _ in range(10):
        shares.learn(load({1: 900.0, 2: 10.0}, 0.3))
    assert (shares.budget_us, shares.serve(owners).parts) == (None, {})


def test_weights_are_shares() -> None:
    shares = FairShares(1.0)
    shares.learn(load({1: 500.0, 2: 500.0}, 2.0))
    parts = shares.serve({1: ["ada"], 2: ["bob"]}, {"ada": 3.0}).parts
    assert parts == pytest.approx({1: 0.75, 2: 0.25})
