"""Deployments: problems from subscriptions, plans, given plans, bad input."""

from dataclasses import replace

import pytest

from headgate.errors import HeadgateError
from headgate.model import Deployment, Link, Links, Plan, Quality, Schema, Site, Source, Stream, Subscription, Tree
from headgate.planning import InvalidPlanError, ProblemError, plan_deployment, problem_of


def deployment(**changes):
    stream = Stream(
        "wind", Schema.of({"station": "string", "t": "double", "speed": "double"}), Source("generator"), "oslo",
        rate_rows_per_s=100.0,
    )  # fmt: skip
    subscriptions = [
        Subscription("all", "wind", "paris"),
        Subscription("strong", "wind", "lyon", "speed > 10", quality=Quality(0.1, 1.0, at_least=0.9)),
        Subscription("strong2", "wind", "paris", " speed  >  10 ", ("t", "speed")),
        Subscription("here", "wind", "oslo", "t < 0"),
    ]
    base = Deployment(
        {"wind": stream},
        {name: Site(name) for name in ("oslo", "paris", "lyon")},
        Links(0.05, {frozenset(("paris", "lyon")): Link(frozenset(("paris", "lyon")), 0.01)}),
        {found.name: found for found in subscriptions},
    )
    return replace(base, **changes)


def test_a_plan_serves_everybody_and_predicts():
    result = plan_deployment(deployment())
    assert set(result.plan.trees["wind"].members) == {"oslo", "paris", "lyon"}
    assert set(result.subscriptions) == {"all", "strong", "strong2", "here"}
    assert result.subscriptions["here"].delay_s == 0.0
    assert all(found.drop == 0 and found.met for found in result.subscriptions.values())
    assert "every contract holds" in result.explanation


def test_the_root_is_not_a_member_of_its_own_stream():
    problem = problem_of(deployment())
    assert {member.site for member in problem.members} == {"oslo", "paris", "lyon"}
    assert "oslo" not in plan_deployment(deployment()).plan.trees["wind"].parents


def test_measured_figures_replace_assumed_ones():
    sizes = {"row_bytes": {"wind": 80.0}, "selectivity": {"strong": 0.5}, "rate_rows_per_s": {"wind": 10.0}}
    problem = problem_of(deployment(), sizes)
    lyon = next(member for member in problem.members if member.site == "lyon")
    assert problem.flows[0].bytes_per_s == pytest.approx(800.0)
    assert lyon.interest.size == pytest.approx(40.0)


def test_a_narrow_upload_breaks_a_contract_and_says_why():
    sites = {"oslo": Site("oslo", 1000.0), "paris": Site("paris"), "lyon": Site("lyon")}
    links = Links(0.05)
    result = plan_deployment(deployment(sites=sites, links=links))
    assert result.overloads
    assert "upload of oslo" in result.explanation
    assert result.subscriptions["all"].drop > 0.5
    assert result.subscriptions["all"].binds.startswith("upload of oslo")


def test_a_given_plan_is_used_and_checked():
    given = Plan({"wind": Tree("wind", "oslo", {"paris": "oslo", "lyon": "paris"})})
    result = plan_deployment(deployment(plan=given))
    assert result.plan == given
    assert result.algorithm == "given"
    missing = Plan({"wind": Tree("wind", "oslo", {"paris": "oslo"})})
    with pytest.raises(InvalidPlanError, match=r"filter satisfaction.*wind at lyon"):
        plan_deployment(deployment(plan=missing))


def test_zero_bandwidth_is_planned_and_explained():
    sites = {"oslo": Site("oslo", 0.0), "paris": Site("paris"), "lyon": Site("lyon")}
    result = plan_deployment(deployment(sites=sites))
    assert result.subscriptions["strong"].drop == 1.0
    assert "contract broken: strong" in result.explanation


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"links": Links(-1.0)}, "negative"),
        ({"links": Links(0.0, {frozenset(("oslo", "rome")): Link(frozenset(("oslo", "rome")), 0.1)})}, "rome"),
        ({"sites": {"paris": Site("paris"), "lyon": Site("lyon")}}, "no site"),
        ({"sites": {n: Site(n, -5.0) for n in ("oslo", "paris", "lyon")}}, "upload -5"),
        ({"subscriptions": {"x": Subscription("x", "rain", "paris")}}, "no stream"),
        ({"subscriptions": {"x": Subscription("x", "wind", "rome")}}, "no site"),
    ],
)
def test_bad_input_is_refused_with_a_reason(changes, part):
    with pytest.raises(ProblemError, match=part):
        plan_deployment(deployment(**changes))


def test_the_filter_algebra_tells_what_covers_what():
    subscriptions = {
        name: Subscription(name, "wind", site, where)
        for name, site, where in (("wide", "paris", "speed > 5"), ("narrow", "lyon", "speed BETWEEN 6 AND 9"))
    }
    problem = problem_of(deployment(subscriptions=subscriptions), {"selectivity": {"wide": 0.6, "narrow": 0.25}})
    wide, narrow = (next(m for m in problem.members if m.site == site).interest for site in ("paris", "lyon"))
    assert wide.covers(narrow)
    assert not narrow.covers(wide)
    row = problem.flows[0].universe.row_bytes
    assert (wide.size, narrow.size, wide.merge(narrow).size) == pytest.approx((0.6 * row, 0.25 * row, 0.6 * row))


def gridded(**wants):
    stream = Stream(
        "rain", Schema.of({"lat": "double", "lon": "double", "at": "timestamp", "mm": "double"}), Source("generator"),
        "oslo", rate_rows_per_s=100.0,
        options={
            "grid": {
                "x": {"column": "lon", "bounds": [0, 16], "size": 16},
                "y": {"column": "lat", "bounds": [40, 56], "size": 16},
                "block": 4,
            }
        },
    )  # fmt: skip
    subscriptions = {
        name: Subscription(name, "rain", "paris" if name == "wide" else "lyon", **want) for name, want in wants.items()
    }
    return problem_of(deployment(streams={"rain": stream}, subscriptions=subscriptions))


@pytest.mark.parametrize(
    ("wide", "narrow", "covers"),
    [
        ({"resolution": {"space": "1/2"}}, {"resolution": {"space": "1/4"}}, True),
        ({"resolution": {"space": "1/4"}}, {"resolution": {"space": "1/2"}}, False),
        ({"resolution": {"space": "1/2"}}, {"resolution": {"space": "1/4"}, "where": "mm > 1"}, True),
        ({"resolution": {"space": "1/2"}, "where": "mm > 1"}, {"resolution": {"space": "1/4"}}, False),
        (
            {"resolution": {"space": "1/2"}, "where": "mm > 1"},
            {"resolution": {"space": "1/4"}, "where": "mm > 2"},
            True,
        ),
        ({"where": "mm > 1"}, {"resolution": {"space": "1/4"}, "where": "mm > 2"}, True),
        ({"region": {"box": {"x": [0, 12], "y": [40, 52]}}}, {"region": {"box": {"x": [2, 9], "y": [42, 49]}}}, True),
        ({"region": {"box": {"x": [2, 9], "y": [42, 49]}}}, {"region": {"box": {"x": [0, 12], "y": [40, 52]}}}, False),
    ],
)
def test_regions_and_resolutions_tell_what_covers_what(wide, narrow, covers):
    problem = gridded(wide=wide, narrow=narrow)
    one, two = (next(m for m in problem.members if m.site == site).interest for site in ("paris", "lyon"))
    assert one.covers(two) == covers
    assert 0 < two.size <= problem.flows[0].universe.row_bytes
    if covers:
        assert one.merge(two).size == one.size


@pytest.mark.parametrize("algorithm", ["qasdg", "search"])
def test_pairs_that_are_not_listed_are_not_planned(algorithm: str) -> None:
    listed = {frozenset(pair): Link(frozenset(pair), 0.01) for pair in (("oslo", "lyon"), ("paris", "lyon"))}
    sites = {name: Site(name, 1e6) for name in ("oslo", "paris", "lyon")}
    free = plan_deployment(deployment(sites=sites), algorithm=algorithm)
    assert free.plan.trees["wind"].parents["paris"] == "oslo"
    bound = plan_deployment(deployment(sites=sites, links=Links(0.05, listed, only_listed=True)), algorithm=algorithm)
    assert bound.plan.trees["wind"].parents == {"lyon": "oslo", "paris": "lyon"}
    alone = Links(0.05, {frozenset(("oslo", "lyon")): listed[frozenset(("oslo", "lyon"))]}, only_listed=True)
    with pytest.raises(HeadgateError, match="no chain of links"):
        plan_deployment(deployment(sites=sites, links=alone), algorithm=algorithm)


@pytest.mark.parametrize("algorithm", ["qasdg", "search"])
def test_a_site_that_nobody_can_dial_is_a_leaf(algorithm: str) -> None:
    # The root can feed one site; the other one is fed by it, whichever can be dialled.
    for hidden, other in (("paris", "lyon"), ("lyon", "paris")):
        sites = {name: Site(name, nats="private" if name == hidden else None) for name in ("paris", "lyon")}
        sites["oslo"] = Site("oslo", 120.0)
        result = plan_deployment(deployment(sites=sites), algorithm=algorithm)
        parents = result.plan.trees["wind"].parents
        assert parents[other] == "oslo"
        assert hidden not in parents.values()
