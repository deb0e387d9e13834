"""BRUSH (section 5.2): the source serves every member itself. Least total bandwidth, most load on the source."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.planning.construct.algorithm import Algorithm
from headgate.planning.graph import Graph


def run(graph: Graph, order: npt.NDArray[np.int32]) -> float:
    """Every member that is linked to the source goes under it."""
    net = graph.net
    source = net.node["stream"][order]
    if graph.problem.physical:
        reachable = net.link[net.node["site"][source], net.node["site"][order]] >= 0
        order, source = order[reachable], source[reachable]
    net.node["parent"][order] = source
    return 1.0


BRUSH = Algorithm("brush", "none", "uninformed", "non-adjusting", run)
