"""A plan from nothing for those who take part now: what a living plan is judged by.

It knows the living graph's members, filters and bandwidths of the moment, not its parents, so nothing of what the
living graph has been through is in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headgate.planning.construct import algorithm
from headgate.planning.evaluation import measure
from headgate.planning.graph import Graph
from headgate.planning.net import ZEROS
from headgate.planning.search import Search, improve


@dataclass(frozen=True, slots=True)
class GraphWorth:
    """What a graph is worth to those who take part: the weight of zero qualities, the geometric mean of the others."""

    zeros: float
    quality: float

    def lags(self, mark: GraphWorth, loss: float) -> bool:
        """Whether this is below a mark: more zero qualities, or as many and more than a part of the mean lost.

        >>> GraphWorth(0.0, 0.94).lags(GraphWorth(0.0, 1.0), 0.05)
        True
        >>> GraphWorth(0.0, 0.5).lags(GraphWorth(1.0, 1.0), 0.05)
        False
        """
        if abs(self.zeros - mark.zeros) > 1e-9:
            return self.zeros > mark.zeros
        return self.quality < (1.0 - loss) * mark.quality


def standing_of(graph: Graph) -> GraphWorth:
    """What an evaluated graph is worth."""
    return GraphWorth(round(float(graph.net.total[ZEROS]), 9), measure(graph).geometric_mean)


class Anew:
    """Plans from nothing beside a living graph, on a graph of its own that is made once and used again."""

    def __init__(self, living: Graph) -> None:
        self._living = living
        self._graph: Graph | None = None

    def plan(self, active: npt.NDArray[np.int32], seed: int, search: Search) -> Graph:
        """The graph of a construction and a search over the active members; it is valid until the next one."""
        graph = self._graph = self._graph or Graph(self._living.problem)
        net, known = graph.net, self._living.net
        net.want["weight"] = known.want["weight"]
        net.resource["capacity"] = known.resource["capacity"]
        net.place["share"] = known.place["share"]
        net.own[:] = known.own
        graph.assign(np.full(len(net.node), -1, np.int32))
        joining = active[~graph.layout.relay[active]]
        algorithm("qasdg").run(graph, np.random.default_rng([seed, 3]).permutation(joining))
        graph.evaluate()
        improve(graph, seed, search, active)
        return graph
