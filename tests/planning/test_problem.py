"""Bad problems give a clear error or an explained infeasible result; interests of any kind become pieces."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from headgate.model import Site
from headgate.planning import (
    Delays,
    Flow,
    InterestPieces,
    InvalidPlanError,
    Member,
    Problem,
    ProblemError,
    Universe,
    Want,
)
from headgate.planning import plan_problem as plan
from headgate.planning.interest import atomise

TEN = Universe.blocks(10)


def problem(**changes):
    base = Problem(
        tuple(Site(name) for name in "abc"),
        (Flow("s", "a", 10.0, TEN),),
        (Member("s", "b", TEN.everything, (Want("x"),)), Member("s", "c", InterestPieces(TEN, 3), (Want("y"),))),
    )
    return replace(base, **changes)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"sites": (Site("a"), Site("a"), Site("b"), Site("c"))}, "two sites are called 'a'"),
        ({"members": (Member("s", "b", InterestPieces(TEN, 0), (Want("x"),)),)}, "served by nobody"),
        ({"members": (Member("s", "b", InterestPieces(TEN, 1 << 12), (Want("x"),)),)}, "served by nobody"),
        (
            {"members": (Member("s", "b", InterestPieces(TEN, 1)), Member("s", "b", InterestPieces(TEN, 2)))},
            "twice a member",
        ),
        ({"members": tuple(Member("s", x, InterestPieces(TEN, 1), (Want("w"),)) for x in "bc")}, "two subscriptions"),
        ({"members": (Member("s", "b", InterestPieces(TEN, 1), (Want("x"),), 0.0),)}, "the bulk of site 'b'"),
        ({"delays": Delays(np.full((3, 3), -0.1))}, "the delay between 'a' and 'a' is -0.1"),
        ({"delays": Delays(np.zeros((2, 2)))}, "delay matrix"),
        ({"relays": frozenset(("b", "nowhere"))}, "'nowhere' may relay, which is no site"),
        ({"capacities": {frozenset("ad"): 1.0}}, "not between two sites"),
        ({"capacities": {frozenset("ab"): -1.0}}, "capacity"),
        ({"flows": (Flow("s", "a", float("nan"), TEN),)}, "rate"),
        ({"flows": (Flow("s", "q", 1.0, TEN),)}, "which is no site"),
    ],
)
def test_bad_problems(changes, part):
    with pytest.raises(ProblemError, match=part):
        problem(**changes)


def test_a_disconnected_physical_graph_is_explained():
    cut = problem(capacities={frozenset("ab"): 100.0}, physical=True)
    with pytest.raises(InvalidPlanError, match="no chain of links through members of stream 's' joins 'c'"):
        plan(cut)


def test_a_relay_joins_what_members_do_not():
    links = {frozenset("ab"): 100.0, frozenset("bc"): 100.0}
    only = (Member("s", "c", InterestPieces(TEN, 3), (Want("y"),)),)
    with pytest.raises(InvalidPlanError, match="let sites relay"):
        plan(problem(members=only, capacities=links, physical=True))
    result = plan(problem(members=only, capacities=links, physical=True, relays=frozenset("b")))
    assert result.plan.trees["s"].parents == {"b": "a", "c": "b"}
    assert result.subscriptions["y"].drop == 0.0


def test_zero_bandwidth_is_a_result_with_its_reason():
    result = plan(problem(sites=(Site("a", 0.0), Site("b"), Site("c"))))
    assert result.subscriptions["x"].drop == 1.0
    assert result.subscriptions["x"].binds == "upload of a passes 0 %"
    assert "upload of a" in result.explanation


@dataclass(frozen=True)
class Span:
    """An interval of a number line as an interest."""

    low: float
    high: float

    def covers(self, other):
        return self.low <= other.low and other.high <= self.high

    def merge(self, other):
        return Span(min(self.low, other.low), max(self.high, other.high))

    @property
    def size(self):
        return self.high - self.low


def test_interests_of_any_kind_become_pieces():
    spans = [Span(0, 10), Span(2, 4), Span(2, 4), Span(12, 15)]
    universe, pieces = atomise(spans, 20.0)
    assert len(universe.weights) == 3
    for one, part in zip(spans, pieces, strict=True):
        assert part.size == pytest.approx(one.size)
        for other, piece in zip(spans, pieces, strict=True):
            assert part.covers(piece) == one.covers(other)
    assert pieces[0].merge(pieces[3]).size == pytest.approx(13)
