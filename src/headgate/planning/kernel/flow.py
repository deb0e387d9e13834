"""The drop fixed point of section 4.2, from scratch and from a change.

A resource passes min(1, capacity / load); the load counts what its senders still have (before they shed, as Eq. 2
does). Resources whose load may have changed stand in a queue; those whose permeability changes let the nodes behind
them wait, a wave from the top down brings these up to date, and so on in rounds until nothing changes. Both entries
use the same rule and end in the same fixed point to well below 1e-9.
"""

from __future__ import annotations

from typing import Any

from headgate.planning.jit import entry, jit
from headgate.planning.kernel.reduced import solve
from headgate.planning.kernel.tree import (
    begin,
    bits_size,
    edge_permeability,
    forward,
    link_delay,
    move,
    note_node,
    note_resource,
    push,
    push_edge,
    put,
    rollback,
    spread,
)
from headgate.planning.kernel.value import revalue
from headgate.planning.kernel.waiting import carry, nobody_waits, wait
from headgate.planning.net import (
    BANDWIDTH,
    BOUND,
    BUCKET,
    NODES,
    QUEUE,
    TOLERANCE,
    Net,
)


@jit
def load_of(net: Net, resource: int) -> float:
    """Bytes per second pushed through a resource now."""
    n = net.place.shape[0]
    load = 0.0
    if resource < n:
        for at in range(net.place[resource].first, net.place[resource].last):
            node = net.site_nodes[at]
            load += net.node[node].out * net.node[node].kept
    elif resource < 2 * n:
        site = resource - n
        for at in range(net.place[site].first, net.place[site].last):
            node = net.site_nodes[at]
            if net.node[node].parent >= 0:
                load += net.node[node].size * net.node[net.node[node].parent].kept
    else:
        ends = net.link_ends[resource - 2 * n]
        for side in range(2):
            for at in range(net.place[ends[side]].first, net.place[ends[side]].last):
                node = net.site_nodes[at]
                parent = net.node[node].parent
                if parent >= 0 and net.node[parent].site == ends[1 - side]:
                    load += net.node[node].size * net.node[parent].kept
    return load


@jit
def wave(net: Net) -> int:
    """Bring the waiting nodes up to date from the top down, each once, and queue the resources whose load changes.

    How many nodes were looked at.
    """
    depth, seen = net.counter[0].low, 0
    while depth <= net.counter[0].high:
        node = net.work[BUCKET, depth]
        net.work[BUCKET, depth] = -1
        while node >= 0:
            record = net.node[node]
            record.waiting = 0
            seen += 1
            upper = net.node[record.parent]
            kept = upper.kept * edge_permeability(net, upper.site, record.site)
            if abs(kept - record.kept) > net.rule[TOLERANCE]:
                note_node(net, node)
                record.kept = kept
                child = record.first
                while child >= 0:
                    push_edge(net, record.site, net.node[child].site)
                    wait(net, child)
                    child = net.node[child].after
            node = record.next
        depth += 1
    nobody_waits(net)
    return seen


@jit
def idle(net: Net, resource: int) -> bool:
    """Whether an upload sheds nothing, and would not if nothing were dropped above it: no need to sum up its load."""
    if resource >= net.place.shape[0] or net.resource[resource].permeable != 1.0:
        return False
    return bool(net.place[resource].forwarded <= 0.999 * net.resource[resource].capacity)


@jit
def run(net: Net, limit: int, patience: int) -> bool:
    """Rounds of queued resources and the waves they cause, until none is queued; False when `limit` rounds are over.

    A resource whose change turns back goes only 0.7 of the way, later all go half of it or less: plain iteration
    swings around the fixed point for hundreds of rounds where sites feed each other. After `patience` visits of nodes
    the rest is left to sweeps of the reduced graph, where a change that reaches far costs less; negative: never.
    """
    ring, rounds, visits = net.work.shape[1], 0, 0
    nobody_waits(net)
    while net.counter[0].head != net.counter[0].tail:
        rounds += 1
        end = net.counter[0].tail
        while net.counter[0].head != end:
            resource = net.work[QUEUE, net.counter[0].head]
            net.counter[0].head = (net.counter[0].head + 1) % ring
            record = net.resource[resource]
            record.queued = 0
            if rounds > limit or idle(net, resource):
                continue
            load, old = load_of(net, resource), record.permeable
            step = (1.0 if load <= record.capacity * (1.0 + 1e-12) else record.capacity / load) - old
            if abs(step) <= net.rule[TOLERANCE]:
                continue
            note_resource(net, resource)
            if rounds > 60 or step * record.step < 0.0:
                step *= 0.7 if rounds <= 60 else 0.5 if rounds <= 300 else 0.25
                push(net, resource)
            record.step = step
            record.permeable = old + step
            carry(net, resource)
        visits += wave(net)
        if 0 <= patience < visits and net.counter[0].head != net.counter[0].tail:
            clear(net)
            net.counter[0].rounds += rounds
            net.counter[0].reduced += 1
            return solve(net, 2_000)
    net.counter[0].rounds += rounds
    return rounds <= limit


@jit
def clear(net: Net) -> None:
    """Empty the queue of resources."""
    while net.counter[0].head != net.counter[0].tail:
        net.resource[net.work[QUEUE, net.counter[0].head]].queued = 0
        net.counter[0].head = (net.counter[0].head + 1) % net.work.shape[1]


@jit
def settle(net: Net) -> None:
    """Finish a trial: drops settle, then the scores of all touched nodes. Falls back to a cold start when it must."""
    if not run(net, 600, net.node.shape[0] // 16 + 32):
        net.counter[0].fallbacks += 1
        cold(net)
    for index in range(net.counter[0].noted_nodes):
        revalue(net, net.work[NODES, index])
    net.counter[0].trials += 1
    net.counter[0].touched += net.counter[0].noted_nodes


@jit
def cold(net: Net) -> None:
    """Start the fixed point again from nothing dropped, inside the running trial."""
    for resource in range(net.resource.shape[0]):
        note_resource(net, resource)
        net.resource[resource].permeable = 1.0
    for source in range(net.flow.shape[0]):
        child = net.node[source].first
        while child >= 0:
            spread(net, child, True)
            child = net.node[child].after
    for resource in range(net.resource.shape[0]):
        push(net, resource)
    run(net, 4000, -1)


@jit
def link_all(net: Net) -> int:
    """Make the sibling lists from the parents and list what is joined, tree by tree, parents first. Their number."""
    for node in range(net.node.shape[0]):
        net.node[node].first = -1
        net.node[node].after = -1
        net.node[node].before = -1
    for node in range(net.node.shape[0]):
        parent = net.node[node].parent
        if parent >= 0:
            head = net.node[parent].first
            net.node[node].after = head
            if head >= 0:
                net.node[head].before = node
            net.node[parent].first = node
    reached, at = 0, 0
    for source in range(net.flow.shape[0]):
        net.work[NODES, reached] = source
        reached += 1
        while at < reached:
            child = net.node[net.work[NODES, at]].first
            while child >= 0:
                net.work[NODES, reached] = child
                reached += 1
                child = net.node[child].after
            at += 1
    return int(reached)


@jit
def size_all(net: Net, reached: int) -> None:
    """Link filters and sizes from the leaves up, for the nodes that `link_all` has listed."""
    streams = net.flow.shape[0]
    for site in range(net.place.shape[0]):
        net.place[site].forwarded = 0.0
    for node in range(net.node.shape[0]):
        record = net.node[node]
        put(net.mask[node], net.own[node])
        record.out, record.score, record.zeros = 0.0, 0.0, 0.0
        record.kept = 1.0 if node < streams else 0.0
        record.size = bits_size(net, node, net.mask[node])
    for at in range(reached - 1, -1, -1):
        node = net.work[NODES, at]
        record = net.node[node]
        if record.parent < 0:
            continue
        record.size = bits_size(net, node, net.mask[node])
        net.node[record.parent].out += record.size
        forward(net, net.node[record.parent].site, record.size)
        net.total[BANDWIDTH] += record.size
        if record.parent >= streams:
            for position in range(net.mask.shape[1]):
                net.mask[record.parent, position] |= net.mask[node, position]


@jit
def descend(net: Net, reached: int) -> None:
    """Delays and depths from the top down without drops, and queue the resources that need too much then."""
    bound, n, limited = net.real[BOUND], net.place.shape[0], net.link.shape[0] > 0
    bound[:] = 0.0
    for at in range(reached):
        record = net.node[net.work[NODES, at]]
        if record.parent < 0:
            continue
        upper = net.node[record.parent]
        record.lag = upper.lag + net.place[upper.site].processing + link_delay(net, upper.site, record.site)
        record.depth = upper.depth + 1
        record.kept = 1.0
        bound[upper.site] += record.size
        bound[n + record.site] += record.size
        if limited and net.link[upper.site, record.site] >= 0:
            bound[2 * n + net.link[upper.site, record.site]] += record.size
    for resource in range(net.resource.shape[0]):
        net.resource[resource].permeable = 1.0
        if bound[resource] > net.resource[resource].capacity:
            push(net, resource)


@entry
def evaluate(net: Net, swept: bool) -> bool:
    """Everything from the parents alone: filters and sizes bottom up, delays top down, the fixed point, the scores.

    The fixed point by sweeps of the reduced graph, or node by node, which is the slower and independent way. False
    when it did not settle within the limit of rounds.
    """
    begin(net)
    net.total[:] = 0.0
    net.counter[0].grouped = 0
    reached = link_all(net)
    size_all(net, reached)
    descend(net, reached)
    settled = run(net, 4000, 0 if swept else -1)
    for node in range(net.node.shape[0]):
        revalue(net, node)
    return settled


@entry
def time_moves(net: Net, node: int, parent: int, times: int) -> int:
    """Move one node, settle and undo it, so many times; how many nodes that touched. For measurements."""
    touched = 0
    for _ in range(times):
        begin(net)
        move(net, node, parent)
        settle(net)
        touched = net.counter[0].noted_nodes
        rollback(net)
    return touched


@entry
def try_moves(net: Net, nodes: Any, parents: Any, keep: bool) -> None:
    """One trial: re-parent nodes in order and settle; undone at once unless it is to be kept."""
    begin(net)
    for at in range(nodes.shape[0]):
        move(net, nodes[at], parents[at])
    settle(net)
    if not keep:
        rollback(net)
