"""The measured problem against rows counted one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import Column, Deployment, Link, Links, Plan, Schema, Site, Source, Stream, Subscription, Tree
from headgate.planning import Graph, problem_of
from headgate.planning import measured as measured_module
from headgate.planning.measured import Bandwidth, Figures, Measured, Observed, cautious, crossings, measured_problem

COLUMNS = {"a": 4.0, "b": 1.5, "c": 9.0}
BASE = 2.0
SITES = ("x", "y", "z")


def _deployment(wishes: list[tuple[str, int, tuple[str, ...] | None]]) -> tuple[Deployment, dict[str, int]]:
    schema = Schema(tuple(Column(name, pa.float64()) for name in COLUMNS))
    stream = Stream("s", root="root", schema=schema, source=Source("json"), rate_rows_per_s=7.0)
    subscriptions = {
        f"w{index}": Subscription(f"w{index}", "s", site, where=f"a > {class_id}", select=select)
        for index, (site, class_id, select) in enumerate(wishes)
    }
    sites = {name: Site(name) for name in ("root", *SITES)}
    ids = {f"w{index}": class_id for index, (_, class_id, _) in enumerate(wishes)}
    return Deployment({"s": stream}, sites, subscriptions=subscriptions), ids


def _needed(deployment: Deployment, ids: dict[str, int], row: frozenset[int], sites: set[str]) -> set[str]:
    """The columns of a row that a set of sites needs."""
    found: set[str] = set()
    for name, each in deployment.subscriptions.items():
        if each.site in sites and ids[name] in row:
            found |= set(COLUMNS) if each.select is None else set(each.select)
    return found


def _counted(deployment: Deployment, ids: dict[str, int], rows: list[frozenset[int]], sites: set[str]) -> float:
    """Bytes that a link to the sites carries per row of the stream, row by row."""
    total = 0.0
    for row in rows:
        wanted = any(each.site in sites and ids[name] in row for name, each in deployment.subscriptions.items())
        total += BASE + sum(COLUMNS[name] for name in _needed(deployment, ids, row, sites)) if wanted else 0.0
    return total / len(rows)


def _rows(deployment: Deployment, ids: dict[str, int], rows: list[frozenset[int]], sites: set[str]) -> float:
    """The part of the rows that anybody at the sites wants."""
    wanted = {ids[name] for name, each in deployment.subscriptions.items() if each.site in sites}
    return sum(bool(row & wanted) for row in rows) / len(rows)


def _observed(rows: list[frozenset[int]], rate: float = 100.0) -> Observed:
    counts = Counter(rows)
    return Observed(rate, {ids: count / len(rows) for ids, count in counts.items()}, COLUMNS, BASE)


selects = st.one_of(st.none(), st.sets(st.sampled_from(sorted(COLUMNS)), min_size=1).map(lambda s: tuple(sorted(s))))
wishes_of = st.lists(st.tuples(st.sampled_from(SITES), st.integers(0, 4), selects), min_size=1, max_size=8)
rows_of = st.lists(st.frozensets(st.integers(0, 4), max_size=5), min_size=1, max_size=40)


@given(wishes_of, rows_of)
@settings(max_examples=30, deadline=None)
def test_every_link_weighs_what_its_rows_weigh(
    wishes: list[tuple[str, int, tuple[str, ...] | None]], rows: list[frozenset[int]]
) -> None:
    deployment, ids = _deployment(wishes)
    problem = measured_problem(deployment, ids, Measured({"s": _observed(rows)}))
    interests = {member.site: member.interest for member in problem.members}
    mine = list(deployment.subscriptions.values())
    for size in range(1, len(interests) + 1):
        for sites in combinations(sorted(interests), size):
            merged = interests[sites[0]]
            for site in sites[1:]:
                merged = merged.merge(interests[site])
            expected = _counted(deployment, ids, rows, set(sites))
            if expected > 0:
                assert merged.size == pytest.approx(expected)
            # In a chain the link into the first site carries what all of them need.
            chain = dict(zip(sites, ("root", *sites), strict=False))
            carried = crossings(deployment.streams["s"], mine, ids, _observed(rows), Tree("s", "root", chain))
            part, bytes_ = carried[sites[0]]
            assert bytes_ == pytest.approx(expected)
            assert part == pytest.approx(_rows(deployment, ids, rows, set(sites)))
            assert carried[sites[-1]][1] == pytest.approx(_counted(deployment, ids, rows, {sites[-1]}))


def test_a_graph_of_it_is_evaluated_as_any_other() -> None:
    rows = [frozenset({0, 1}), frozenset({0}), frozenset({2}), frozenset()]
    deployment, ids = _deployment([("x", 0, None), ("y", 1, ("b",)), ("z", 2, None)])
    problem = measured_problem(deployment, ids, Measured({"s": _observed(rows)}, {"root": Bandwidth(500.0)}))
    plan = Plan({"s": Tree("s", "root", {"x": "root", "y": "x", "z": "root"})})
    graph = Graph.of(problem, plan)
    row = BASE + sum(COLUMNS.values())
    sizes = {graph.name(node)[1]: float(graph.net.node["size"][node]) for node in range(1, 4)}
    assert sizes == pytest.approx({"x": 100 * row / 2, "y": 100 * (BASE + 1.5) / 4, "z": 100 * row / 4})
    kept = {graph.name(node)[1]: float(graph.net.node["kept"][node]) for node in range(1, 4)}
    assert kept["x"] == pytest.approx(500.0 / (100 * row * 0.75))
    assert kept["y"] == kept["x"]


def test_what_was_not_seen_is_assumed_and_declared_bandwidths_stand() -> None:
    deployment, ids = _deployment([("x", 0, None)])
    assumed = problem_of(deployment)
    same = measured_problem(deployment, ids, Measured())
    assert (same.flows, same.members) == (assumed.flows, assumed.members)
    declared = Deployment(
        deployment.streams, {**deployment.sites, "root": Site("root", 10.0)}, subscriptions=deployment.subscriptions
    )
    problem = measured_problem(declared, ids, Measured({}, {"root": Bandwidth(99.0)}))
    assert problem.sites[problem.site_index["root"]].upload_bytes_per_s == 10.0


def test_the_rarest_rows_are_counted_with_those_most_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_module, "MAX_PIECES", 2)
    rows = [frozenset({0})] * 6 + [frozenset({1})] * 5 + [frozenset({0, 2})]
    deployment, ids = _deployment([("x", 0, None), ("y", 1, None), ("x", 2, ("a",))])
    problem = measured_problem(deployment, ids, Measured({"s": _observed(rows)}))
    row = BASE + sum(COLUMNS.values())
    sizes = {member.site: member.interest.size for member in problem.members}
    assert sizes == pytest.approx({"x": row * 7 / 12, "y": row * 5 / 12})


def test_what_a_link_takes_for_a_row_goes_with_the_site_that_it_leads_to() -> None:
    rows = [frozenset({0, 1}), frozenset({0})]
    deployment, ids = _deployment([("x", 0, None), ("y", 1, ("b",))])
    problem = measured_problem(deployment, ids, Measured({"s": replace(_observed(rows), bulk={"x": 0.8, "y": 1.5})}))
    row = BASE + sum(COLUMNS.values())
    for parent in ("x", "root"):
        graph = Graph.of(problem, Plan({"s": Tree("s", "root", {"x": "root", "y": parent})}))
        sizes = {graph.name(node)[1]: float(graph.net.node["size"][node]) for node in range(1, 3)}
        assert sizes == pytest.approx({"x": 0.8 * 100 * row, "y": 1.5 * 50 * (BASE + 1.5)})


def test_an_unknown_upload_is_taken_for_little_more_than_it_has_shown() -> None:
    deployment, ids = _deployment([("x", 0, None), ("y", 0, None), ("z", 0, None)])
    problem = measured_problem(deployment, ids, Measured({"s": _observed([frozenset({0})])}))
    graph = Graph.of(problem, Plan({"s": Tree("s", "root", {"x": "root", "y": "x", "z": "x"})}))
    row = 100 * (BASE + sum(COLUMNS.values()))
    found = {site.name: site.upload_bytes_per_s for site in cautious(graph).sites}
    # The root sends one copy and x two: each may be given twice that, who has shown nothing counts as the usual one.
    assert found == pytest.approx({"root": 2 * row, "x": 4 * row, "y": 1.5 * row, "z": 1.5 * row})
    told = replace(problem, sites=tuple(replace(site, upload_bytes_per_s=5.0) for site in problem.sites))
    assert cautious(Graph.of(told, graph.plan())) is told


def test_figures_hold_for_subscriptions_that_came_later() -> None:
    deployment, ids = _deployment([("x", 0, None), ("y", 1, None), ("z", 7, None)])
    rows = [frozenset({0}), frozenset({0, 1}), frozenset(), frozenset({0, 1})]
    figures = Figures.of(Measured({"s": _observed(rows)}, {"x": Bandwidth(9.0)}))
    problem = figures.problem(deployment, ids)
    assert {site.name: site.upload_bytes_per_s for site in problem.sites} == {
        "root": None,
        "x": 9.0,
        "y": None,
        "z": None,
    }
    (flow,) = problem.flows
    assert flow.rate_rows_per_s == 100.0
    assert flow.universe.row_bytes == pytest.approx(BASE + sum(COLUMNS.values()))
    parts = {member.site: member.interest.size / flow.universe.row_bytes for member in problem.members}
    assert parts == pytest.approx({"x": 0.75, "y": 0.5, "z": 0.2})  # a > 0 holds a > 1; nothing was seen of a > 7


@pytest.mark.parametrize(
    ("rate", "follow", "expected"), [(300.0, False, 300.0), (900.0, False, 500.0), (900.0, True, 900.0)]
)
def test_a_link_that_was_full_is_planned_with_what_it_carried(rate: float, follow: bool, expected: float):
    """Not with more than is declared, unless that is only a first guess."""
    ends = frozenset(("root", "x"))
    deployment, class_ids = _deployment([("x", 1, None), ("y", 1, None)])
    links = Links(pairs={ends: Link(ends, 0.01, 500.0, follow=follow)})
    found = replace(deployment, links=links)
    measured = Measured(links={ends: rate})
    assert measured_problem(found, class_ids, measured).capacities == {ends: expected}
    assert Figures.of(measured).problem(found, class_ids).capacities == {ends: expected}
