"""Any-time search: simulated annealing from a given graph, never worse than it, repeatable under a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headgate.planning.evaluation import Metrics, measure
from headgate.planning.graph import Graph
from headgate.planning.kernel.anneal import BETTER, TAKEN, TRIALS, anneal
from headgate.planning.net import EXACT, GOAL, TOLERANCE, scalar_of
from headgate.planning.search.objective import Objective


@dataclass(frozen=True, slots=True)
class Search:
    """How to search. Without a clock a run is repeatable; with one it ends after `budget_s` of it at the latest.

    `hot` and `cold` are temperatures in sums of weighted log qualities. Trials settle the fixed point loosely and
    tighter towards the end; every comparison that decides the result is made on exactly evaluated graphs.
    """

    steps: int = 400_000
    hot: float = 1.0
    cold: float = 0.04
    parts: int = 40
    patience: int = 12
    objective: Objective = field(default_factory=Objective)
    budget_s: float | None = None
    clock: Callable[[], float] | None = None


@dataclass(frozen=True, slots=True)
class Improved:
    """The best graph met, what it is worth, and how the search went."""

    graph: Graph
    metrics: Metrics
    trials: int
    taken: int
    better: int
    curve: tuple[float, ...]


def improve(
    graph: Graph, seed: int = 0, search: Search | None = None, nodes: npt.NDArray[np.int32] | None = None
) -> Improved:
    """Improve a graph in place by simulated annealing; it never ends below where it started.

    `nodes` limits what may be moved; else every member may, and relays where they are allowed.
    """
    search = search or Search()
    net = graph.net
    net.counter[GOAL] = search.objective.goal
    graph.evaluate()
    start = graph.parent_array
    nodes = movable(graph) if nodes is None else nodes
    wish = wishes(graph, search.objective)
    best, best_parents = scalar_of(net, wish), start
    if not len(nodes):
        return Improved(graph, measure(graph), 0, 0, 0, ())
    state = np.array([seed * 2 + 1], np.uint64)
    seen, curve = np.zeros(4, np.int64), []
    parents, loose = start.copy(), np.array([-np.inf])
    began = search.clock() if search.clock else 0.0
    done, stale, fraction = 0, 0, 0.0
    while fraction < 1.0 and stale < search.patience + search.parts * (fraction < 0.5):
        chunk = max(1, search.steps // search.parts)
        following = min(1.0, fraction + 1.0 / search.parts)
        heat = [search.hot * (search.cold / search.hot) ** part for part in (fraction, following)]
        net.rule[TOLERANCE] = 1e-3 if fraction < 0.6 else 1e-4 if fraction < 0.9 else 1e-5
        loose[0] = -np.inf
        anneal(net, state, nodes, chunk, heat[0], heat[1], wish, loose, parents, seen)
        done += chunk
        net.rule[TOLERANCE] = EXACT
        if fraction >= 0.5:
            current = graph.parent_array
            graph.assign(parents)
            found = scalar_of(net, wish)
            stale = 0 if found > best else stale + 1
            if found > best:
                best, best_parents = found, parents.copy()
            graph.assign(current)
        else:
            graph.evaluate()
        curve.append(measure(graph).geometric_mean)
        fraction = done / search.steps
        if search.clock and search.budget_s:
            fraction = max(fraction, (search.clock() - began) / search.budget_s)
    graph.assign(best_parents)
    return Improved(graph, measure(graph), int(seen[TRIALS]), int(seen[TAKEN]), int(seen[BETTER]), tuple(curve))


def movable(graph: Graph) -> npt.NDArray[np.int32]:
    """Nodes that a search may move: members, and relays where they are allowed."""
    return np.arange(graph.streams, len(graph.net.node), dtype=np.int32)


def wishes(graph: Graph, objective: Objective) -> npt.NDArray[np.float64]:
    """Weights as the kernel takes them: per byte per second, per unit of variance, and of the score."""
    total = float(graph.net.want["weight"].sum()) or 1.0
    least = float(own_sizes(graph)[graph.streams :].sum()) or 1.0
    return np.array([objective.bandwidth * total / least, objective.fairness * total, objective.quality])


def own_sizes(graph: Graph) -> npt.NDArray[np.float64]:
    """Bytes per second of each node's own interest: what BRUSH would send it."""
    net = graph.net
    stream, split = net.node["stream"], net.weight_table.shape[1]
    rows, columns = np.zeros(len(stream)), net.flow["base"][stream].copy()
    for position in range(split):
        rows += net.weight_table[stream, position, net.own[:, position]]
    for position in range(net.width_table.shape[1]):
        columns += net.width_table[stream, position, net.own[:, split + position]]
    return np.asarray(net.flow["rate"][stream] * np.minimum(1.0, rows) * columns)
