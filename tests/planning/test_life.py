"""Events: everybody active is served after each, moves stay few, steps lose nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.model import Plan, Tree
from headgate.planning import Pieces, ProblemError
from headgate.planning.difference import difference, moves
from headgate.planning.generate import Workload, generate
from headgate.planning.life import Life, Upkeep
from headgate.planning.problem import tree_members
from headgate.planning.search import Search


def served(life):
    net = life.graph.net
    return all(net.node["parent"][life.graph.node(*name)] >= 0 for name in life.active)


def test_a_life_of_events():
    problem = generate(Workload(sites=25, streams=5, filters_per_stream=12), 4)
    names = [(member.stream, member.site) for member in tree_members(problem)]
    rng = np.random.default_rng(4)
    roots = {flow.root for flow in problem.flows}
    life = Life(problem, names[::2], 1, Upkeep(search=Search(steps=6_000, hot=0.3)))
    counts = []
    failed: list[str] = []
    for step in range(24):
        kind = step % 6
        inactive = [name for name in names if name not in life.active and name[1] not in failed]
        if kind == 0 and inactive:
            happened = life.join(*inactive[rng.integers(len(inactive))])
        elif kind == 1:
            happened = life.leave(*life.active[rng.integers(len(life.active))])
        elif kind == 2:
            stream, site = life.active[rng.integers(len(life.active))]
            universe = problem.flows[0].universe
            happened = life.change(stream, site, Pieces(universe, int(rng.integers(1, 1 << 10))))
        elif kind == 3:
            free = [site.name for site in problem.sites if site.name not in roots and site.name not in failed]
            failed.append(free[rng.integers(len(free))])
            happened = life.fail(failed[-1])
        elif kind == 4:
            happened = life.restore(failed.pop())
        else:
            happened = life.bandwidth(f"p{rng.integers(25)}", rng.uniform(5e4, 4e5), rng.uniform(1e5, 6e5))
        assert served(life), happened.event
        kept = life.graph.net.node["kept"].copy()
        life.graph.evaluate()
        assert life.graph.net.node["kept"] == pytest.approx(kept, abs=1e-9)
        if not happened.replanned:
            counts.append(happened.moves)
    assert np.mean(counts) < 8


def test_events_that_cannot_be():
    problem = generate(Workload(sites=8, streams=2, filters_per_stream=4), 1)
    life = Life(problem, upkeep=Upkeep(search=Search(steps=200)))
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
