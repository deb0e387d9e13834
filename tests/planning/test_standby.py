"""Standby parents: sites above the parent that can reach the member, those with room first."""

from dataclasses import replace

from headgate.model import Deployment, Plan, Schema, Site, Source, Stream, Subscription, Tree
from headgate.planning import problem_of
from headgate.planning.measured import with_relays_of
from headgate.planning.standby import with_standbys
from headgate.wire import codec

CHAIN = Plan({"wind": Tree("wind", "a", {"b": "a", "c": "b", "d": "c", "e": "d"})})


def deployment(**uploads: float) -> Deployment:
    """One stream of 100 rows a second from a, wanted at the end of a chain."""
    stream = Stream("wind", Schema.of({"speed": "double"}), Source("generator"), "a", rate_rows_per_s=100.0)
    sites = {name: Site(name, upload_bytes_per_s=uploads.get(name)) for name in "abcde"}
    wanted = {f"at-{name}": Subscription(f"at-{name}", "wind", name) for name in "de"}
    return Deployment({"wind": stream}, sites, subscriptions=wanted)


def standbys(found: Deployment, **changes: object) -> dict[str, tuple[str, ...]]:
    """Of each member of the chain."""
    problem = replace(with_relays_of(problem_of(found), CHAIN), **changes)  # type: ignore[arg-type] # fields of it
    return dict(with_standbys(problem, CHAIN).trees["wind"].standbys)


def test_the_nearest_site_above_the_parent_comes_first() -> None:
    """Who is served by the root has none: nobody else has the rows."""
    assert standbys(deployment()) == {"c": ("a",), "d": ("b", "a"), "e": ("c", "b", "a")}


def test_who_would_be_overloaded_comes_last() -> None:
    """b sends to c already, and could not send as much to e; c sends nothing to d while d is dead."""
    rate = 100.0 * 16  # rows a second times bytes a row
    assert standbys(deployment(b=1.5 * rate, c=1.5 * rate))["e"] == ("c", "a", "b")


def test_a_site_that_has_no_link_to_the_member_is_none() -> None:
    """In the physical model only pairs that are given can connect."""
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("b", "e")]
    links = {frozenset(pair): 1e9 for pair in pairs}
    assert standbys(deployment(), physical=True, capacities=links)["e"] == ("b",)


def test_standbys_are_published_with_a_tree_and_are_no_part_of_its_identity() -> None:
    """A plan whose standbys alone differ moves nobody."""
    plan = with_standbys(with_relays_of(problem_of(deployment()), CHAIN), CHAIN)
    read = codec.decode_plan(codec.encode_plan(plan)).trees["wind"]
    assert (read.standbys_of("e"), plan) == (("c", "b", "a"), CHAIN)
    assert CHAIN.trees["wind"].standbys_of("e") == ("c", "b", "a")
