"""Nodes that wait for something from above, by depth: those whose incoming link has changed."""

from __future__ import annotations

from headgate.planning.jit import inline, jit
from headgate.planning.net import BUCKET, Net


@inline
def wait(net: Net, node: int) -> None:
    """Put a node whose incoming link has changed among those of its depth."""
    record = net.node[node]
    if record.waiting == 0:
        record.waiting = 1
        record.next = net.work[BUCKET, record.depth]
        net.work[BUCKET, record.depth] = node
        net.counter[0].low = min(net.counter[0].low, record.depth)
        net.counter[0].high = max(net.counter[0].high, record.depth)


@inline
def nobody_waits(net: Net) -> None:
    """Forget the depths between which nodes waited."""
    net.counter[0].low, net.counter[0].high = net.work.shape[1], -1


@jit
def carry(net: Net, resource: int) -> None:
    """Let every node wait whose incoming link uses a resource."""
    n = net.place.shape[0]
    if resource < n:
        for at in range(net.place[resource].first, net.place[resource].last):
            child = net.node[net.site_nodes[at]].first
            while child >= 0:
                wait(net, child)
                child = net.node[child].after
    elif resource < 2 * n:
        for at in range(net.place[resource - n].first, net.place[resource - n].last):
            if net.node[net.site_nodes[at]].parent >= 0:
                wait(net, net.site_nodes[at])
    else:
        ends = net.link_ends[resource - 2 * n]
        for side in range(2):
            for at in range(net.place[ends[side]].first, net.place[ends[side]].last):
                node = net.site_nodes[at]
                parent = net.node[node].parent
                if parent >= 0 and net.node[parent].site == ends[1 - side]:
                    wait(net, node)
