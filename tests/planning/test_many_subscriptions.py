"""Problems of deployments with more classes than are compared: the same interests as one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from headgate.model import Deployment, Schema, Site, Source, Stream, Subscription
from headgate.planning import covering
from headgate.planning.deployment import problem_of
from headgate.planning.interest import Universe

STREAM = Stream("s", Schema.of({"n": "bigint", "x": "double", "t": "string"}), Source("nats"), "root")


@pytest.mark.parametrize("classes", [7, 8, 9, 300])
def test_a_member_takes_the_pieces_and_columns_of_its_subscriptions(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(covering, "MAX_COMPARED", 8)
    chance = random.Random(classes)
    wanted = {
        f"w{number}": Subscription(
            f"w{number}",
            "s",
            chance.choice(["a", "b", "c"]),
            f"n = {number % classes}",
            select=chance.choice([None, ("n",), ("n", "t")]),
        )
        for number in range(2 * classes)
    }
    wanted["all"] = Subscription("all", "s", "c", "true", select=("x",))
    sites = {name: Site(name) for name in ("root", "a", "b", "c")}
    problem = problem_of(Deployment({"s": STREAM}, sites, subscriptions=wanted))
    universe = problem.flows[0].universe
    assert len(universe.weights) == classes + 1
    for member in problem.members:
        mine = [each for each in wanted.values() if each.site == member.site]
        assert [want.name for want in member.wants] == [each.name for each in mine]
        if member.site == "c":
            assert member.interest.rows == universe.everything.rows
        else:
            assert member.interest.rows.bit_count() == len({each.where for each in mine})
        columns = {name for each in mine for name in (each.select or STREAM.schema.names)}
        assert member.interest.columns == sum(1 << STREAM.schema.names.index(name) for name in columns)


def test_the_size_of_many_pieces_is_the_sum_of_their_weights() -> None:
    weights = np.random.default_rng(1).uniform(0, 2e-5, 50_000)
    chosen = np.random.default_rng(2).random(50_000) < 0.5
    rows = int.from_bytes(np.packbits(chosen, bitorder="little").tobytes(), "little")
    universe = Universe(tuple(weights), (4.0, 2.0), 1.0)
    assert universe.size(rows, 0b10) == pytest.approx(3.0 * weights[chosen].sum())
