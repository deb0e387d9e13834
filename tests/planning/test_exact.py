"""Optima against plain enumeration, and the heuristics against optima."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from headgate.planning import (
    Graph,
    InterestPieces,
    InvalidPlanError,
    ProblemError,
    Universe,
    edges_of,
    measure,
    plan_problem,
    violations,
)
from headgate.planning.construct import construct
from headgate.planning.exact import best_quality, least_bandwidth
from headgate.planning.generate import Workload, generate
from headgate.planning.problem import tree_members
from headgate.planning.search import Search, improve

from .oracle import bulky

TINY = Workload(sites=5, streams=2, filters_per_stream=3, upload_mbit=(0.3, 0.9), download_mbit=(0.8, 2.0))


def every_graph(problem):
    members = tree_members(problem)
    roots = {flow.name: flow.root for flow in problem.flows}
    mates = {m.stream: [x.site for x in members if x.stream == m.stream] for m in members}
    options = [[roots[m.stream], *(s for s in mates[m.stream] if s != m.site)] for m in members]
    for chosen in itertools.product(*options):
        parents = {(m.stream, m.site): parent for m, parent in zip(members, chosen, strict=True)}
        try:
            yield parents, Graph.of(problem, parents)
        except ProblemError:
            continue


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_branch_and_bound_finds_the_best_of_all_graphs(seed):
    problem = generate(TINY, seed)
    best = max((-m.zeros, m.geometric_mean) for m in (measure(graph) for _, graph in every_graph(problem)))
    for start in (None, construct(problem, "qasdg", seed).graph):
        found = best_quality(problem, start)
        assert found.proven
        assert found.metrics.geometric_mean == pytest.approx(best[1], rel=1e-9)


def test_the_limit_ends_it_without_a_claim():
    problem = generate(TINY, 1)
    found = best_quality(problem, construct(problem, "qasdg", 1).graph, limit=3)
    assert not found.proven
    assert found.metrics.geometric_mean >= measure(construct(problem, "qasdg", 1).graph).geometric_mean


def with_columns(problem, rng):
    """The same problem with three columns of different widths, each member asking for some of them."""
    flows = tuple(
        replace(flow, universe=replace(flow.universe, widths=(0.25, 0.125, 0.5), base_bytes=0.125))
        for flow in problem.flows
    )
    universe = {flow.name: flow.universe for flow in flows}
    members = tuple(
        replace(m, interest=InterestPieces(universe[m.stream], m.interest.rows, int(rng.integers(1, 8))))
        for m in problem.members
    )
    return replace(problem, flows=flows, members=members)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_the_bandwidth_programme_finds_the_cheapest_valid_graph(scale, columns):
    problem = generate(Workload(sites=5, streams=2, filters_per_stream=3, blocks=4, scale=0.3 * scale), 2)
    if columns:
        problem = bulky(with_columns(problem, np.random.default_rng(2)), np.random.default_rng(3))
    bulk = {(member.stream, member.site): member.bulk for member in problem.members}
    costs = [
        sum(
            problem.flows[problem.flow_index[edge.stream]].rate_rows_per_s
            * edge.interest.size
            * bulk[edge.stream, edge.child]
            for edge in edges_of(problem, parents)
        )
        for parents, _ in every_graph(problem)
        if violations(problem, edges_of(problem, parents)) == []
    ]
    found = least_bandwidth(problem)
    assert found.feasible == bool(costs)
    if costs:
        assert found.bytes_per_s == pytest.approx(min(costs), rel=1e-6)
        assert violations(problem, edges_of(problem, found.parents)) == []


def test_overlapping_pieces_are_refused():
    problem = generate(Workload(sites=5, streams=1, filters_per_stream=3, blocks=4), 2)
    flow = replace(problem.flows[0], universe=Universe((0.4, 0.4, 0.4, 0.4)))
    members = tuple(replace(m, interest=InterestPieces(flow.universe, m.interest.rows)) for m in problem.members)
    with pytest.raises(ProblemError, match="overlap"):
        least_bandwidth(replace(problem, flows=(flow,), members=members))


def test_exact_plans_are_offered_as_algorithms():
    problem = generate(Workload(sites=5, streams=1, filters_per_stream=3, blocks=4, scale=0.9), 2)
    cheapest, optimum = plan_problem(problem, "cheapest"), plan_problem(problem, "optimum")
    assert cheapest.overloads == ()
    assert "no graph is better" in optimum.explanation
    assert not cheapest.metrics.better_than(optimum.metrics)
    tight = generate(Workload(sites=5, streams=1, filters_per_stream=3, blocks=4, scale=0.01), 2)
    with pytest.raises(InvalidPlanError, match="without overloading"):
        plan_problem(tight, "cheapest")


def test_search_comes_close_to_the_optimum():
    shares = []
    for seed in range(8):
        problem = generate(TINY, seed)
        searched = improve(construct(problem, "qasdg", seed).graph, seed, Search(steps=3_000)).graph
        optimum = best_quality(problem, searched).metrics.geometric_mean
        shares.append(measure(searched).geometric_mean / optimum)
    assert np.mean(shares) >= 0.98
    assert max(shares) <= 1 + 1e-9
