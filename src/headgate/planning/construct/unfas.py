"""UNFAS (Algorithm 1): fair assignment without feedback by control points that know one source each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.planning.construct.algorithm import Algorithm, observed
from headgate.planning.graph import Graph
from headgate.planning.kernel.assign import unfa_all
from headgate.planning.kernel.book import open_book


def run(graph: Graph, order: npt.NDArray[np.int32]) -> float:
    """Join each member where the variances of forwarding and of depth have the smallest product."""
    with observed(graph):
        unfa_all(graph.net, order.copy(), open_book(graph.net, by_source=True))
    return 1.0


UNFAS = Algorithm("unfas", "source", "uninformed", "non-adjusting", run)
