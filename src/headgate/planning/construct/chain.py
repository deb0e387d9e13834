"""CHAIN (section 5.2): each member serves the next. Even forwarding, the longest delays, much useless traffic."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headgate.planning.construct.algorithm import Algorithm
from headgate.planning.graph import Graph


def run(graph: Graph, order: npt.NDArray[np.int32]) -> float:
    """Append each member to the last one that it is linked to, in the order of joins."""
    net = graph.net
    if not graph.problem.physical:
        stream = net.node["stream"][order]
        chain = order[np.argsort(stream, kind="stable")]
        begins = np.append(True, np.diff(net.node["stream"][chain]) != 0)[: len(chain)]
        net.node["parent"][chain] = np.where(begins, net.node["stream"][chain], np.roll(chain, 1))
        return 1.0
    last = np.arange(graph.streams)
    waiting = list(order)
    while waiting:
        again = []
        for node in waiting:
            stream = net.node["stream"][node]
            end = last[stream]
            if net.link[net.node["site"][end], net.node["site"][node]] < 0:
                again.append(node)
                continue
            net.node["parent"][node] = end
            last[stream] = node
        if len(again) == len(waiting):
            break
        waiting = again
    return 1.0


CHAIN = Algorithm("chain", "none", "uninformed", "non-adjusting", run)
