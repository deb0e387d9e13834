"""Members who come to a plan in force: each gets the best of the most promising parents of its tree, nobody else moves.

A join as a living plan makes it (`headgate.planning.living_plan`): a few parents are tried one after the other, the
drops of the whole graph settle after each, and the one that is worth most stays. The cost of a join hardly grows with
the tree; nearly all of it is making the graph.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from headgate.model import Plan, Tree
from headgate.planning.graph import Graph
from headgate.planning.kernel.repair import place_best
from headgate.planning.measured import cautious, with_relays_of
from headgate.planning.problem import Problem, ProblemError
from headgate.planning.search import Objective
from headgate.planning.search.improve import wishes

TRIES = 12  # parents that are tried for a member


def joined(problem: Problem, plan: Plan, missing: Iterable[tuple[str, str]], seed: int = 0) -> Plan:
    """The plan with members of the problem, by stream and site, who are not in it yet.

    Sites that only relay stay, and can serve those who come. An upload that nobody knows is given little more than it
    forwards now (`cautious`). Raises `ProblemError` when nobody in its tree can serve a member.
    """
    graph = Graph.of(with_relays_of(problem, plan), plan)
    careful = cautious(graph)
    if careful is not graph.problem:
        graph = Graph.of(careful, plan)
    wish, state = wishes(graph, Objective()), np.array([2 * seed + 1], np.uint64)
    places = np.zeros(TRIES, np.int32)
    trees = {
        flow.name: dict(plan.trees[flow.name].parents) if flow.name in plan.trees else {} for flow in problem.flows
    }
    for stream, site in missing:
        node = graph.node(stream, site)
        place_best(graph.net, state, node, places, wish, -np.inf)
        parent = int(graph.net.node["parent"][node])
        if parent < 0:
            raise ProblemError(
                f"nobody in the tree of stream {stream!r} has a link to {site!r}", hint="add a link, or allow relays"
            )
        trees[stream][site] = graph.name(parent)[1]
    return Plan({flow.name: Tree(flow.name, flow.root, trees[flow.name]) for flow in problem.flows})
