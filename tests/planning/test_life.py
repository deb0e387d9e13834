"""Events: everybody active is served after each, moves stay few, steps lose nothing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import Plan, Site, Tree
from headgate.planning import Graph, InterestPieces, ProblemError, construct, measure
from headgate.planning.difference import difference, moves
from headgate.planning.generate import Workload, generate
from headgate.planning.kernel.repair import tend
from headgate.planning.living_plan import EventWork, Life
from headgate.planning.net import ZEROS, scalar_of
from headgate.planning.problem import tree_members
from headgate.planning.search import Objective, Search
from headgate.planning.search.improve import wishes
from headgate.planning.validity import require_valid


def moment(life, problem):
    """Who takes part now, as a problem that knows nothing of the living graph's arrays."""
    active = set(life.active)
    members = tuple(member for member in problem.members if (member.stream, member.site) in active)
    return replace(problem, members=members)


@pytest.mark.slow
def test_a_life_of_events():
    problem = generate(Workload(sites=25, streams=5, filters_per_stream=12), 4)
    names = [(member.stream, member.site) for member in tree_members(problem)]
    rng = np.random.default_rng(4)
    roots = {flow.root for flow in problem.flows}
    upkeep = EventWork(wide=300, steps=3_000, judge_every=3, search=Search(steps=6_000))
    life = Life(problem, names[::2], 1, upkeep)
    counts, judged = [], 0
    failed: list[str] = []
    for step in range(36):
        kind, before = step % 6, life.plan
        inactive = [name for name in names if name not in life.active and name[1] not in failed]
        if kind == 0 and inactive:
            happened = life.join(*inactive[rng.integers(len(inactive))])
        elif kind == 1:
            happened = life.leave(*life.active[rng.integers(len(life.active))])
        elif kind == 2:
            stream, site = life.active[rng.integers(len(life.active))]
            universe = problem.flows[0].universe
            pieces = InterestPieces(universe, int(rng.integers(1, 1 << 10)))
            happened = life.change(stream, site, pieces)
            members = (
                replace(m, interest=pieces) if (m.stream, m.site) == (stream, site) else m for m in problem.members
            )
            problem = replace(problem, members=tuple(members))
        elif kind == 3:
            free = [site.name for site in problem.sites if site.name not in roots and site.name not in failed]
            failed.append(free[rng.integers(len(free))])
            happened = life.fail(failed[-1])
        elif kind == 4:
            happened = life.restore(failed.pop())
        else:
            up, down, name = rng.uniform(5e4, 4e5), rng.uniform(1e5, 6e5), f"p{rng.integers(25)}"
            happened = life.bandwidth(name, up, down)
            sites = (Site(name, up, down) if site.name == name else site for site in problem.sites)
            problem = replace(problem, sites=tuple(sites))
        now = moment(life, problem)
        require_valid(now, life.graph.parents())  # everybody active is served by a path from the root
        kept = life.graph.net.node["kept"].copy()
        life.graph.evaluate()
        assert life.graph.net.node["kept"] == pytest.approx(kept, abs=1e-9)
        # The same plan judged from nothing, on a problem of only those who are there.
        alone = measure(Graph.of(now, life.plan)).geometric_mean
        assert happened.metrics.geometric_mean == pytest.approx(alone, rel=1e-9)
        assert happened.moves == parents_changed(before, life.plan)
        if happened.fresh is not None:
            judged += 1
            assert happened.fresh.zeros == 0
            assert alone >= (1 - upkeep.loss) * happened.fresh.quality
        if not happened.replanned:
            counts.append(happened.moves)
    assert judged == 12
    assert np.mean(counts) < 8


def parents_changed(old, new):
    """Members with another parent, come or gone, by comparing plans name by name."""
    pairs = [
        {(name, site, parent) for name, tree in plan.trees.items() for site, parent in tree.parents.items()}
        for plan in (old, new)
    ]
    return len({(name, site) for name, site, _ in pairs[0] ^ pairs[1]})


def test_a_graph_that_is_too_far_behind_takes_the_fresh_plan_over():
    problem = generate(Workload(sites=20, streams=4, filters_per_stream=10, scale=2.0), 2)
    members = tree_members(problem)
    upkeep = EventWork(trials=0, wide=0, steps=0, judge_every=1, search=Search(steps=4_000))
    life = Life(problem, seed=3, upkeep=upkeep)
    star = np.array([life.graph.net.node["stream"][node] for node in range(len(life.graph.net.node))], np.int32)
    star[: life.graph.streams] = -1
    life.adopt(star)
    behind = life.mark.quality
    happened = life.bandwidth(problem.sites[0].name, 1e5, 1e5)
    assert happened.fresh is not None
    assert behind < 0.9 * happened.fresh.quality
    assert happened.replanned
    assert happened.metrics.geometric_mean == pytest.approx(happened.fresh.quality)
    assert 0 < happened.moves <= len(members)


@pytest.mark.parametrize("hot", [0.0, 0.3])
def test_every_move_brings_its_price(hot):
    problem = generate(Workload(sites=20, streams=4, filters_per_stream=10), 2)
    counts = []
    for price in (0.0, 0.5, 1e9):
        graph = construct(problem, "qasdg", 3).graph
        wish, homes, parents = wishes(graph, Objective()), graph.parent_array, graph.parent_array
        before = scalar_of(graph.net, wish)[1]
        nodes, heat = np.arange(graph.streams, len(homes), dtype=np.int32), np.array([hot, 0.04])
        gain = tend(graph.net, np.array([7], np.uint64), nodes, homes, 1_500, heat, price, wish, parents)
        graph.assign(parents)
        counts.append(int((parents != homes).sum()))
        assert graph.net.total[ZEROS] == 0
        assert gain == pytest.approx(scalar_of(graph.net, wish)[1] - before - price * counts[-1], abs=1e-6)
        assert gain >= 0.0
    assert counts[0] > counts[1] > counts[2] == 0


def test_events_that_cannot_be():
    problem = generate(Workload(sites=8, streams=2, filters_per_stream=4), 1)
    life = Life(problem, upkeep=EventWork(search=Search(steps=200)))
    with pytest.raises(ProblemError, match="already a member"):
        life.join(*life.active[0])
    with pytest.raises(ProblemError, match="root of a stream"):
        life.fail(problem.flows[0].root)


@st.composite
def trees(draw, size=6):
    order = draw(st.permutations([f"n{i}" for i in range(size)]))
    kept = order[: draw(st.integers(0, size))]
    parents = {}
    for index, site in enumerate(kept):
        parents[site] = draw(st.sampled_from(["root", *kept[:index]]))
    return Plan({"s": Tree("s", "root", parents)})


@settings(max_examples=60, deadline=None)
@given(trees(), trees())
def test_every_graph_between_two_plans_serves_those_in_both(old, new):
    both = set(old.trees["s"].parents) & set(new.trees["s"].parents)
    links = {(parent, child) for child, parent in old.trees["s"].parents.items()}
    for step in difference(old, new):
        if step.action == "serve":
            links.add((step.parent, step.child))
        elif step.action == "stop":
            links.discard((step.parent, step.child))
        reached, pending = {"root"}, ["root"]
        while pending:
            at = pending.pop()
            for parent, child in links:
                if parent == at and child not in reached:
                    reached.add(child)
                    pending.append(child)
        assert both <= reached
    assert links == {(parent, child) for child, parent in new.trees["s"].parents.items()}
    assert (moves(old, new) == 0) == (difference(old, new) == ())


def test_a_plan_is_taken_over_by_those_who_are_left():
    problem = generate(Workload(sites=25, streams=5, filters_per_stream=12), 4)
    before = construct(problem, "qasdg", 4).graph
    plan = before.plan()
    site = max(
        (site.name for site in problem.sites if site.name not in {flow.root for flow in problem.flows}),
        key=lambda name: sum(name == parent for tree in plan.trees.values() for parent in tree.parents.values()),
    )
    left = replace(problem, members=tuple(member for member in problem.members if member.site != site))
    life = Life(left, plan=plan)
    taken = {(name, child): parent for name, tree in life.plan.trees.items() for child, parent in tree.parents.items()}
    for (stream, child), parent in taken.items():
        was = plan.trees[stream].parents[child]
        while was == site:
            was = plan.trees[stream].parents[was]
        assert parent == was
    happened = life.settle(plan)
    require_valid(left, life.graph.parents())
    assert 0 <= happened.moves < len(taken)
