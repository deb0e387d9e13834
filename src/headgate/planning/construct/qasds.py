"""QASDS (Algorithm 2): quality-aware assignment with feedback by control points that know one source each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.planning.construct.algorithm import Algorithm, observed
from headgate.planning.graph import Graph
from headgate.planning.kernel.assign import qasd_all
from headgate.planning.kernel.book import open_book


def run(graph: Graph, order: npt.NDArray[np.int32]) -> float:
    """Join each member by rounds of temporary parents; the mean number of rounds."""
    rounds = np.zeros(len(graph.net.node), np.int64)
    with observed(graph):
        qasd_all(graph.net, order.copy(), open_book(graph.net, by_source=True), rounds)
    return float(rounds[order].mean()) if len(order) else 0.0


QASDS = Algorithm("qasds", "source", "informed", "adjusting", run)
