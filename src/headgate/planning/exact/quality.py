"""The best quality that any graph of a small problem has, by branch and bound, proved."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.planning.evaluation import Metrics, measure
from headgate.planning.graph import Graph
from headgate.planning.kernel.branch import branch
from headgate.planning.net import LOG_ZERO, SCORE, ZEROS
from headgate.planning.problem import Problem


@dataclass(frozen=True, slots=True)
class QualityOptimum:
    """The best graph found; `proven` when no graph is better, with the size of the search tree."""

    graph: Graph
    metrics: Metrics
    proven: bool
    visited: int


def best_quality(problem: Problem, start: Graph | None = None, limit: int = 20_000_000) -> QualityOptimum:
    """Search all graphs of a problem, from the value of a start graph if one is given (it only saves time)."""
    graph = Graph(problem)
    net, streams = graph.net, graph.streams
    order = np.flatnonzero(~graph.layout.relay)[streams:].astype(np.int32)
    parents = graph.parent_array if start is None else start.parent_array
    best = np.array([-np.inf])
    if start is not None:
        start.evaluate()
        best[0] = start.net.total[SCORE] + LOG_ZERO * start.net.total[ZEROS]
    passing, choice = np.zeros(2 * len(net.place)), np.full(len(order) + 1, -1, np.int64)
    visited = branch(net, order, fastest_delays(problem), best, parents, limit, passing, choice)
    graph.assign(parents)
    return QualityOptimum(graph, measure(graph), visited >= 0, abs(visited))


def fastest_delays(problem: Problem) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Seconds of the fastest chain of links from each stream's source to each site: no graph is faster."""
    n = len(problem.sites)
    hop = np.array([[problem.delays.between(i, j) for j in range(n)] for i in range(n)])
    hop += np.array([site.processing_delay_s for site in problem.sites])[:, None]
    for i, one in enumerate(problem.sites):
        for j, other in enumerate(problem.sites):
            if i != j and not problem.linked(one.name, other.name):
                hop[i, j] = np.inf
    np.fill_diagonal(hop, 0.0)
    for middle in range(n):
        hop = np.minimum(hop, hop[:, middle : middle + 1] + hop[middle : middle + 1, :])
    index = problem.site_index
    return np.asarray(hop[[index[flow.root] for flow in problem.flows]])
