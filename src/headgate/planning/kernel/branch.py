"""Branch and bound over the parents of all members, for the quality objective on small problems.

A partial graph is bounded from above by what holds in every completion. Link filters only grow, and a source always has
all of its rows, so the load that sources put on their own uploads and on their children's downloads only grows: these
give an upper bound of each permeability. Where a member hangs on the source already, its delay is final; elsewhere the
fastest chain of links bounds it. Everything else is taken as perfect.
"""

from __future__ import annotations

import math
from typing import Any

from headgate.planning.jit import entry, jit
from headgate.planning.kernel.flow import settle
from headgate.planning.kernel.tree import begin, below, linked, move
from headgate.planning.kernel.value import revalue, scalar, want_quality
from headgate.planning.net import GEOMETRIC, LOG_ZERO, SCORE, ZEROS, Net


@jit
def node_bound(net: Net, node: int, drop: float, delay_s: float) -> float:
    """The most that a node's wants can contribute at no less than that drop and delay."""
    value = 0.0
    for want in range(net.node[node].want_first, net.node[node].want_last):
        quality, weight = want_quality(net, want, drop, delay_s), net.want[want].weight
        if net.counter[0].goal == GEOMETRIC:
            value += weight * (math.log(quality) if quality > 0.0 else LOG_ZERO)
        else:
            value += weight * quality
    return value


@jit
def upper_bound(net: Net, fastest: Any, passing: Any) -> float:
    """An upper bound of the score of every completion of the graph as it stands."""
    n, streams = net.place.shape[0], net.flow.shape[0]
    passing[:] = 0.0
    for source in range(streams):
        passing[net.node[source].site] += net.node[source].out
        child = net.node[source].first
        while child >= 0:
            passing[n + net.node[child].site] += net.node[child].size
            child = net.node[child].after
    for resource in range(2 * n):
        load, capacity = passing[resource], net.resource[resource].capacity
        passing[resource] = 1.0 if load <= capacity else capacity / load
    value = 0.0
    for node in range(net.node.shape[0]):
        record = net.node[node]
        kept, at, delay_s = 1.0, node, 0.0
        while net.node[at].parent >= 0:
            upper = net.node[net.node[at].parent].site
            kept *= min(passing[upper], passing[n + net.node[at].site])
            at = net.node[at].parent
        delay_s = record.lag if at < streams else fastest[record.stream, record.site]
        value += node_bound(net, node, 1.0 - kept if kept < 1.0 - 1e-9 else 0.0, delay_s)
    return value


@entry
def branch(net: Net, order: Any, fastest: Any, best: Any, parents: Any, limit: int, passing: Any, choice: Any) -> int:
    """Search all graphs; improves `best` and `parents`. Nodes of the search tree, negative when the limit ended it.

    `passing` is room for a number per upload and download, `choice` holds -1 for every member and one more.
    """
    depth, visited, members = 0, 0, order.shape[0]
    while depth >= 0:
        if depth == members:
            begin(net)
            settle(net)
            net.total[SCORE] = 0.0
            net.total[ZEROS] = 0.0
            for node in range(net.node.shape[0]):
                net.node[node].score = 0.0
                net.node[node].zeros = 0.0
                revalue(net, node)
            if scalar(net) > best[0] + 1e-12:
                best[0] = scalar(net)
                for node in range(net.node.shape[0]):
                    parents[node] = net.node[node].parent
            depth -= 1
            continue
        node = order[depth]
        stream = net.node[node].stream
        first = net.flow[stream].first
        if net.node[node].parent >= 0:
            begin(net)
            move(net, node, -1)
        choice[depth] += 1
        if choice[depth] > net.flow[stream].last - first:
            choice[depth] = -1
            depth -= 1
            continue
        parent = stream if choice[depth] == 0 else first + choice[depth] - 1
        if below(net, parent, node) or not linked(net, net.node[parent].site, net.node[node].site):
            continue
        visited += 1
        if visited > limit:
            return -visited
        begin(net)
        move(net, node, parent)
        if upper_bound(net, fastest, passing) > best[0] + 1e-9:
            depth += 1
    return visited
