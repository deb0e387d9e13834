"""Kernels against the plain oracle, and incremental evaluation against full evaluation."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import Quality, QualityTable
from headgate.planning import Flow, Graph, InterestPieces, Member, Problem, Universe, Want, measure, predict
from headgate.planning.construct import ALGORITHMS, construct
from headgate.planning.generate import Workload, generate
from headgate.planning.kernel.flow import evaluate as full
from headgate.planning.kernel.trials import end_trials, try_by_groups
from headgate.planning.problem import Delays

from .oracle import bulky
from .oracle import evaluate as oracle

SMALL = Workload(sites=12, streams=4, filters_per_stream=8)


def physical(problem, rng, keep=0.7):
    """The same problem over random links with capacities, the source linked to everybody so that it can be served."""
    roots = {flow.root for flow in problem.flows}
    names = [site.name for site in problem.sites]
    links = {
        frozenset((one, other)): float(rng.uniform(2e4, 2e5))
        for i, one in enumerate(names)
        for other in names[:i]
        if rng.random() < keep or {one, other} & roots
    }
    return Problem(problem.sites, problem.flows, problem.members, problem.delays, links, physical=True)


@pytest.mark.parametrize("name", [algorithm.name for algorithm in ALGORITHMS])
@pytest.mark.parametrize("model", ["logical", "physical"])
def test_drop_and_delay_agree_with_the_oracle(name, model):
    for seed in range(2):
        problem = generate(SMALL, seed)
        if seed:
            problem = bulky(problem, np.random.default_rng(seed))
        if model == "physical":
            problem = physical(problem, np.random.default_rng(seed))
        graph = construct(problem, name, seed).graph
        kept, delay = oracle(problem, graph.parents())
        for node in range(len(graph.net.node)):
            if graph.net.node["parent"][node] < 0:
                continue
            assert graph.net.node["kept"][node] == pytest.approx(kept[graph.name(node)], abs=1e-9)
            assert graph.net.node["lag"][node] == pytest.approx(delay[graph.name(node)], abs=1e-12)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.05, 0.3, 1.0, 20.0]), st.booleans(), st.data())
def test_moving_subtrees_agrees_with_full_evaluation(seed, scale, links, data):
    rng = np.random.default_rng(seed)
    problem = generate(Workload(sites=15, streams=5, filters_per_stream=9, scale=scale), seed)
    if seed % 2:
        problem = bulky(problem, rng)
    if links:
        problem = physical(problem, rng)
    name = data.draw(st.sampled_from(["brush", "chain", "unfas", "qasdg"]))
    graph = construct(problem, name, seed).graph
    net = graph.net
    for _ in range(30):
        before = {field: net.node[field].copy() for field in ("parent", "kept", "lag", "size", "out", "score")}
        node = int(rng.integers(graph.streams, len(net.node)))
        mates = np.flatnonzero(net.node["stream"] == net.node["stream"][node])
        parent = int(rng.choice(mates[(mates < graph.streams) | (net.node["parent"][mates] >= 0)]))
        if graph._below(parent, node) or (links and net.link[net.node["site"][parent], net.node["site"][node]] < 0):
            continue
        keep = bool(rng.random() < 0.6)
        graph.move(node, parent, keep=keep)
        if not keep:
            for field, values in before.items():
                assert np.array_equal(net.node[field], values), field
    moved = {field: net.node[field].copy() for field in ("kept", "lag", "size", "out", "score", "zeros", "depth")}
    mask, total, permeable = net.mask.copy(), net.total.copy(), net.resource["permeable"].copy()
    assert full(net, False)
    for field, values in moved.items():
        scale_of = max(1.0, float(np.abs(values).max()))
        assert net.node[field] == pytest.approx(values, abs=1e-9 * scale_of), field
    assert np.array_equal(mask[graph.streams :], net.mask[graph.streams :])
    assert net.total == pytest.approx(total, rel=1e-9, abs=1e-6)
    assert net.resource["permeable"] == pytest.approx(permeable, abs=1e-9)


def _tabled(problem, rng):
    """The same problem with step and linear tables, and with templates that tolerate no drop, among its qualities."""
    tables = (
        Quality(table=QualityTable("steps", (0.1, 0.6), (0.1, 1.0), ((1.0, 0.8), (0.4, 0.2)))),
        Quality(table=QualityTable("linear", (0.0, 0.9), (0.0, 3.0), ((1.0, 0.3), (0.4, 0.0)))),
        Quality(0.0, 1.0),
    )
    members = [
        replace(m, wants=tuple(replace(want, quality=tables[int(rng.integers(3))]) for want in m.wants))
        if rng.random() < 0.5
        else m
        for m in problem.members
    ]
    return Problem(problem.sites, problem.flows, tuple(members), problem.delays, problem.capacities, problem.physical)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 0.3, 1.0, 3.0]), st.booleans(), st.integers(0, 3), st.data())
def test_trials_by_groups_agree_with_full_evaluation(seed, scale, links, goal, data):
    """Kept and undone trials of one to four moves: totals, every node's drop, and after them everything."""
    rng = np.random.default_rng(seed)
    problem = generate(Workload(sites=15, streams=5, filters_per_stream=9, scale=scale), seed)
    problem = physical(problem, rng) if links else problem
    problem = _tabled(problem, rng) if goal else problem
    start = construct(problem, data.draw(st.sampled_from(["brush", "unfas", "qasdg"])), seed).graph.parent_array
    graph, check = Graph(problem, goal=goal), Graph(problem, goal=goal)
    net, streams = graph.net, graph.streams
    leaves = np.setdiff1d(np.arange(streams, len(net.node)), start)
    start[rng.choice(leaves, min(len(leaves), seed % 3), replace=False)] = -1  # some are outside of the graph
    graph.assign(start)
    for _ in range(30):
        nodes, parents, where = [], [], net.node["parent"].copy()
        for _ in range(int(rng.integers(1, 5))):
            node = int(rng.integers(streams, len(net.node)))
            mates = np.flatnonzero(net.node["stream"] == net.node["stream"][node])
            parent = above = int(rng.choice(mates[(mates < streams) | (where[mates] >= 0)]))
            while above >= 0 and above != node:
                above = int(where[above])
            if above == node or (links and net.link[net.node["site"][parent], net.node["site"][node]] < 0):
                continue
            where[node] = parent
            nodes.append(node)
            parents.append(parent)
        keep, before = bool(rng.random() < 0.5), (net.total.copy(), net.node["parent"].copy())
        try_by_groups(net, np.array(nodes, np.int32), np.array(parents, np.int32), keep, 1)
        if not keep:
            assert np.array_equal(net.node["parent"], before[1])
            assert net.total == pytest.approx(before[0], rel=1e-9, abs=1e-9)
        check.assign(net.node["parent"].copy())
        assert net.total == pytest.approx(check.net.total, rel=1e-9, abs=1e-6)
        kept = net.kept[net.seat["group"][net.node["seat"]]]
        assert kept == pytest.approx(check.net.node["kept"], abs=1e-9)
    end_trials(net)
    for field in ("kept", "lag", "size", "out", "score", "zeros", "depth"):
        values = check.net.node[field]
        assert net.node[field] == pytest.approx(values, abs=1e-9 * max(1.0, float(np.abs(values).max()))), field
    assert graph.statistics()["fallbacks"] == 0


@pytest.mark.parametrize("links", [False, True])
def test_sweeps_of_the_reduced_graph_end_where_node_by_node_does(links):
    swept_graphs = 0
    for seed, name in enumerate(("chain", "unfas", "qasds", "qasdg")):
        problem = generate(Workload(sites=15, streams=5, filters_per_stream=9, scale=0.3 + 0.2 * seed), seed)
        if links:
            problem = physical(problem, np.random.default_rng(seed))
        graph = construct(problem, name, seed).graph
        before = graph.statistics()["swept"]
        assert full(graph.net, True)
        swept_graphs += graph.statistics()["swept"] - before
        swept, permeable = graph.net.node.copy(), graph.net.resource["permeable"].copy()
        assert full(graph.net, False)
        assert graph.net.node["kept"] == pytest.approx(swept["kept"], abs=1e-9)
        assert graph.net.node["score"] == pytest.approx(swept["score"], abs=1e-9)
        assert graph.net.resource["permeable"] == pytest.approx(permeable, abs=1e-9)
    assert swept_graphs >= 2  # where one wave settles everything there is nothing to sweep


def test_compiled_qualities_agree_with_the_model():
    tables = [
        Quality(0.1, 0.2, 0.9),
        Quality(0.0, 5.0),
        Quality(table=QualityTable("steps", (0.1, 0.6), (0.1, 1.0), ((1.0, 0.8), (0.4, 0.2)))),
        Quality(table=QualityTable("linear", (0.0, 0.9), (0.0, 0.5, 3.0), ((1.0, 0.9, 0.3), (0.4, 0.2, 0.0)))),
    ]
    from headgate.model import Site

    universe = Universe.blocks(10)
    wants = tuple(Want(f"w{index}", quality) for index, quality in enumerate(tables))
    for upload in (10.0, 6.0, 3.0, 0.5):
        problem = Problem(
            (Site("a", upload), Site("b")),
            (Flow("s", "a", 10.0, universe),),
            (Member("s", "b", universe.everything, wants),),
            Delays(base_s=0.3),
        )
        for found, quality in zip(predict(Graph.of(problem, {("s", "b"): "a"})), tables, strict=True):
            assert found.drop == pytest.approx(max(0.0, 1 - upload / 10))
            assert found.quality == pytest.approx(quality.value(found.drop, found.delay_s))
            assert found.met == (quality.at_least is None or found.quality >= quality.at_least)


def test_columns_and_overlapping_pieces_count_once():
    from headgate.model import Site

    universe = Universe((0.5, 0.7), (4.0, 8.0), 2.0)
    members = tuple(
        Member("s", site, InterestPieces(universe, rows, columns), (Want(site),))
        for site, rows, columns in (("b", 1, 1), ("c", 2, 2))
    )
    problem = Problem(tuple(Site(x) for x in "abc"), (Flow("s", "a", 3.0, universe),), members)
    graph = Graph.of(problem, {("s", "b"): "a", ("s", "c"): "b"})
    sizes = dict(zip("bc", graph.net.node["size"][1:], strict=True))
    assert sizes["c"] == pytest.approx(3 * 0.7 * 10)
    assert sizes["b"] == pytest.approx(3 * 1.0 * 14)  # pieces weigh 1.2 together, a union at most 1


def test_zero_qualities_are_counted_first():
    problem = generate(Workload(sites=30, streams=6, filters_per_stream=6, drop_threshold=(0.0, 0.0), scale=0.9), 1)
    metrics = measure(construct(problem, "qasdg").graph)
    assert metrics.zeros > 0
    assert metrics.geometric_mean_paper == 0.0
    assert metrics.geometric_mean > 0.0
