"""Any-time search: simulated annealing from a given graph, never worse than it, repeatable under a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headgate.planning.evaluation import Metrics, measure
from headgate.planning.graph import Graph
from headgate.planning.kernel.anneal import BETTER, TAKEN, TRIALS, anneal
from headgate.planning.kernel.strict import EQUAL, standing
from headgate.planning.net import EXACT, TOLERANCE, scalar_of
from headgate.planning.search.objective import Objective

NONE = np.zeros(0, np.int64)  # no order: annealing


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


def usual_steps(members: int) -> int:
    """How many steps a search takes that is given none: as many as help, by the number of members.

    >>> usual_steps(2), usual_steps(600), usual_steps(100_000)
    (4000, 300000, 400000)
    """
    return min(400_000, max(4_000, 500 * members))


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

    `nodes` limits what may be moved; else every member may, and relays where they are allowed. With a strict order of
    aims the last fifth of the steps climbs in that order from the best graph met.
    """
    search = search or Search()
    net = graph.net
    net.counter[0]["goal"] = search.objective.goal
    graph.evaluate()
    nodes = movable(graph) if nodes is None else nodes
    if not len(nodes):
        return Improved(graph, measure(graph), 0, 0, 0, ())
    run = _Run(graph, search, nodes, seed)
    run.anneal(0.8 if search.objective.order else 1.0)
    graph.assign(run.best_parents)
    if search.objective.order:
        run.climb()
    seen = run.seen
    return Improved(graph, measure(graph), int(seen[TRIALS]), int(seen[TAKEN]), int(seen[BETTER]), tuple(run.curve))


class _Run:
    """One search while it runs: the best graph so far, the generator, the clock."""

    def __init__(self, graph: Graph, search: Search, nodes: npt.NDArray[np.int32], seed: int) -> None:
        self.graph, self.search, self.nodes = graph, search, nodes
        self.wish = wishes(graph, search.objective)
        self.order = np.array(search.objective.codes, np.int64)
        self.best, self.best_parents = self.value(), graph.parent_array
        self.state = np.array([seed * 2 + 1], np.uint64)
        self.seen = np.zeros(4, np.int64)
        self.curve: list[float] = []
        self.began = search.clock() if search.clock else 0.0

    def value(self) -> tuple[float, ...]:
        """What the graph is worth, to be compared in order."""
        if not len(self.order):
            return scalar_of(self.graph.net, self.wish)
        return tuple(float(value) for value in standing(self.graph.net, self.order))

    def used(self) -> float:
        """The part of the clock's budget that is used up."""
        if not (self.search.clock and self.search.budget_s):
            return 0.0
        return (self.search.clock() - self.began) / self.search.budget_s

    def anneal(self, part: float) -> None:
        """Annealing for a part of the steps (and of the budget), keeping the best graph that was evaluated exactly."""
        search, graph, net = self.search, self.graph, self.graph.net
        parents, loose = graph.parent_array, np.array([-np.inf])
        steps, done, stale, fraction = max(1, int(part * search.steps)), 0, 0, 0.0
        while fraction < 1.0 and stale < search.patience + search.parts * (fraction < 0.5):
            chunk = max(1, steps // search.parts)
            following = min(1.0, fraction + 1.0 / search.parts)
            heat = np.array([search.hot * (search.cold / search.hot) ** at for at in (fraction, following)])
            net.rule[TOLERANCE] = 1e-3 if fraction < 0.6 else 1e-4 if fraction < 0.9 else 1e-5
            loose[0] = -np.inf
            anneal(net, self.state, self.nodes, chunk, heat, self.wish, loose, loose, parents, NONE, self.seen)
            done += chunk
            net.rule[TOLERANCE] = EXACT
            if fraction >= 0.5:
                current = graph.parent_array
                graph.assign(parents)
                found = self.value()
                stale = 0 if better(found, self.best) else stale + 1
                if better(found, self.best):
                    self.best, self.best_parents = found, parents.copy()
                graph.assign(current)
            else:
                graph.evaluate()
            self.curve.append(measure(graph).geometric_mean)
            fraction = max(done / steps, self.used() / part)

    def climb(self) -> None:
        """From where the graph stands, climb in the strict order of aims."""
        search, graph = self.search, self.graph
        parts, now = max(1, search.parts // 5), standing(graph.net, self.order)
        steps, parents, values = max(1, search.steps // 5 // parts), graph.parent_array, np.zeros_like(now)
        for _ in range(parts):
            anneal(
                graph.net, self.state, self.nodes, steps, np.ones(2), self.wish, now, values, parents, self.order,
                self.seen,
            )  # fmt: skip
            self.curve.append(measure(graph).geometric_mean)
            if self.used() >= 1.0:
                break
        graph.evaluate()


def better(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether the first place in which two values differ by more than rounding is higher in the first."""
    for mine, theirs in zip(one, other, strict=True):
        if abs(mine - theirs) > EQUAL * max(1.0, abs(theirs)):
            return mine > theirs
    return False


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
