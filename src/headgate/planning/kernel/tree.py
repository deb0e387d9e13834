"""Changes of a delivery graph with everything that follows from structure: link filters, sizes, delays, depths.

A trial is `begin`, any number of `move`, `settle` (in `flow`), and `rollback` if it is not wanted. Only what a trial
touches is recomputed; link filters shrink again when a subtree leaves (section 5, expansion and its inverse).
"""

from __future__ import annotations

import math
from typing import Any

from headgate.planning.jit import jit
from headgate.planning.net import (
    BANDWIDTH,
    BASE,
    LOADS,
    MASKS,
    NODES,
    OUTS,
    PER_UNIT,
    QUEUE,
    RESOURCES,
    SQUARES,
    STACK,
    TOLERANCE,
    Net,
)


@jit
def put(target: Any, source: Any) -> None:
    """Copy one row to another; an assignment of slices would first allocate, in case they overlap."""
    for at in range(target.shape[0]):
        target[at] = source[at]


@jit
def bits_size(net: Net, node: int, bits: Any) -> float:
    """Bytes per second of the link into a node under a filter: rate times amortised size times its bulk."""
    stream = net.node[node].stream
    rows, width = 0.0, net.flow[stream].base
    split = net.counter[0].row_bytes
    for position in range(split):
        rows += net.weight_table[stream, position, bits[position]]
    for position in range(split, bits.shape[0]):
        width += net.width_table[stream, position - split, bits[position]]
    return float(net.flow[stream].rate * min(1.0, rows) * width * net.node[node].bulk)


@jit
def within(small: Any, large: Any) -> bool:
    """Whether one bit set is inside another: the filter is applicable over the other."""
    for position in range(small.shape[0]):  # noqa: SIM110  # the compiler has no generators
        if small[position] & ~large[position]:
            return False
    return True


@jit
def link_delay(net: Net, one: int, other: int) -> float:
    """Seconds between two sites."""
    if net.delay.shape[0] > 0:
        return float(net.delay[one, other])
    if net.rule[PER_UNIT] > 0.0:
        dx, dy = net.place[one].x - net.place[other].x, net.place[one].y - net.place[other].y
        return float(net.rule[BASE] + net.rule[PER_UNIT] * math.sqrt(dx * dx + dy * dy))
    return float(net.rule[BASE])


@jit
def linked(net: Net, one: int, other: int) -> bool:
    """Whether a site can forward to another one."""
    return one != other and (net.counter[0].physical == 0 or net.link[one, other] >= 0)


@jit
def push(net: Net, resource: int) -> None:
    """Queue a resource whose load may have changed; unlimited ones never shed."""
    if net.resource[resource].queued or math.isinf(net.resource[resource].capacity):
        return
    net.resource[resource].queued = 1
    net.work[QUEUE, net.counter[0].tail] = resource
    net.counter[0].tail += 1
    if net.counter[0].tail == net.work.shape[1]:
        net.counter[0].tail = 0


@jit
def push_edge(net: Net, upper: int, lower: int) -> None:
    """Queue what the link between two sites uses: the upload, the download, the link's own capacity."""
    n = net.place.shape[0]
    push(net, upper)
    push(net, n + lower)
    if net.link.shape[0] > 0 and net.link[upper, lower] >= 0:
        push(net, 2 * n + net.link[upper, lower])


@jit
def edge_permeability(net: Net, upper: int, lower: int) -> float:
    """The fraction that passes from one site to another: the smallest of the bounds (Eq. 1 and 2)."""
    n = net.place.shape[0]
    passing = min(net.resource[upper].permeable, net.resource[n + lower].permeable)
    if net.link.shape[0] > 0 and net.link[upper, lower] >= 0:
        passing = min(passing, net.resource[2 * n + net.link[upper, lower]].permeable)
    return float(passing)


@jit
def begin(net: Net) -> None:
    """Start a trial with an empty journal."""
    net.counter[0].tick += 1
    net.counter[0].noted_nodes = 0
    net.counter[0].noted_resources = 0
    net.counter[0].noted_masks = 0
    net.counter[0].noted_outs = 0
    net.counter[0].moved = 0
    put(net.old_total, net.total)


@jit
def note_node(net: Net, node: int) -> None:
    """Journal a node's drop, delay and score before their first change."""
    record = net.node[node]
    if record.stamp != net.counter[0].tick:
        record.stamp = net.counter[0].tick
        record.old_kept = record.kept
        record.old_lag = record.lag
        record.old_score = record.score
        record.old_zeros = record.zeros
        record.old_depth = record.depth
        net.work[NODES, net.counter[0].noted_nodes] = node
        net.counter[0].noted_nodes += 1


@jit
def note_mask(net: Net, node: int) -> None:
    """Journal the filter and size of the link into a node before their first change."""
    record = net.node[node]
    if record.stamp_mask != net.counter[0].tick:
        record.stamp_mask = net.counter[0].tick
        record.old_size = record.size
        put(net.old_mask[node], net.mask[node])
        net.work[MASKS, net.counter[0].noted_masks] = node
        net.counter[0].noted_masks += 1


@jit
def note_resource(net: Net, resource: int) -> None:
    """Journal a resource's permeability before its first change."""
    record = net.resource[resource]
    if record.stamp != net.counter[0].tick:
        record.stamp = net.counter[0].tick
        record.old = record.permeable
        record.step = 0.0
        net.work[RESOURCES, net.counter[0].noted_resources] = resource
        net.counter[0].noted_resources += 1


@jit
def forward(net: Net, site: int, change: float) -> None:
    """Change what a site forwards, and the sums behind the fairness of forwarding."""
    place = net.place[site]
    before = place.forwarded * place.share
    place.forwarded += change
    now = place.forwarded * place.share
    net.total[LOADS] += now - before
    net.total[SQUARES] += now * now - before * before


@jit
def add_out(net: Net, node: int, change: float) -> None:
    """Change what a node forwards, journalled; a node without children forwards exactly nothing."""
    record = net.node[node]
    if record.stamp_out != net.counter[0].tick:
        record.stamp_out = net.counter[0].tick
        record.old_out = record.out
        net.work[OUTS, net.counter[0].noted_outs] = node
        net.counter[0].noted_outs += 1
    net.total[BANDWIDTH] += change
    before = record.out
    record.out = before + change if record.first >= 0 else 0.0
    forward(net, record.site, record.out - before)


@jit
def relink(net: Net, node: int, parent: int) -> None:
    """Hang a node with all below it under another parent (-1: under none), sibling lists only."""
    old = net.node[node].parent
    if old >= 0:
        left, right = net.node[node].before, net.node[node].after
        if left >= 0:
            net.node[left].after = right
        else:
            net.node[old].first = right
        if right >= 0:
            net.node[right].before = left
    net.node[node].parent = parent
    net.node[node].before = -1
    net.node[node].after = -1
    if parent >= 0:
        head = net.node[parent].first
        net.node[node].after = head
        if head >= 0:
            net.node[head].before = node
        net.node[parent].first = node


@jit
def resize(net: Net, node: int) -> None:
    """Give the link into a node the size of its filter, and its parent the changed load."""
    size = bits_size(net, node, net.mask[node])
    parent = net.node[node].parent
    if parent >= 0:
        add_out(net, parent, size - net.node[node].size)
        push_edge(net, net.node[parent].site, net.node[node].site)
    net.node[node].size = size


@jit
def shrink(net: Net, node: int) -> None:
    """Take out of the link filters from a node upwards what nobody below wants any more."""
    while node >= net.flow.shape[0]:
        changed = False
        for position in range(net.own.shape[1]):
            byte = net.own[node, position]
            child = net.node[node].first
            while child >= 0:
                byte |= net.mask[child, position]
                child = net.node[child].after
            if byte != net.mask[node, position]:
                if not changed:
                    note_mask(net, node)
                    changed = True
                net.mask[node, position] = byte
        if not changed:
            return
        resize(net, node)
        node = net.node[node].parent


@jit
def grow(net: Net, node: int, child: int) -> None:
    """Expand the link filters from a node upwards to what a new child brings."""
    bits = net.mask[child]
    while node >= net.flow.shape[0] and not within(bits, net.mask[node]):
        note_mask(net, node)
        for position in range(bits.shape[0]):
            net.mask[node, position] |= bits[position]
        resize(net, node)
        node = net.node[node].parent


@jit
def spread(net: Net, top: int, with_delay: bool) -> None:
    """Carry a changed permeability (and delay) from the link into a node to all below it."""
    net.work[STACK, 0] = top
    height = 1
    while height > 0:
        height -= 1
        node = net.work[STACK, height]
        parent = net.node[node].parent
        kept = 0.0
        if parent >= 0:
            kept = net.node[parent].kept * edge_permeability(net, net.node[parent].site, net.node[node].site)
        differs = abs(kept - net.node[node].kept) > net.rule[TOLERANCE]
        if not differs and not with_delay:
            continue
        note_node(net, node)
        if with_delay and parent >= 0:
            upper = net.node[parent].site
            net.node[node].lag = (
                net.node[parent].lag + net.place[upper].processing + link_delay(net, upper, net.node[node].site)
            )
            net.node[node].depth = net.node[parent].depth + 1
        if differs:
            net.node[node].kept = kept
        child = net.node[node].first
        while child >= 0:
            if differs:
                push_edge(net, net.node[node].site, net.node[child].site)
            net.work[STACK, height] = child
            height += 1
            child = net.node[child].after


@jit
def delay(net: Net, top: int) -> None:
    """Carry a changed delay from the link into a node to all below it; who gets how much is told by groups."""
    net.work[STACK, 0] = top
    height = 1
    while height > 0:
        height -= 1
        node = net.work[STACK, height]
        note_node(net, node)
        record = net.node[node]
        if record.parent >= 0:
            upper = net.node[record.parent]
            record.lag = upper.lag + net.place[upper.site].processing + link_delay(net, upper.site, record.site)
            record.depth = upper.depth + 1
        child = record.first
        while child >= 0:
            net.work[STACK, height] = child
            height += 1
            child = net.node[child].after


@jit
def move(net: Net, node: int, parent: int) -> None:
    """Re-parent a node with all below it. The new parent must not be below it; -1 takes it out of the graph."""
    old = net.node[node].parent
    if old == parent:
        return
    at = net.counter[0].moved
    net.moved[at, 0] = node
    net.moved[at, 1] = old
    net.counter[0].moved = at + 1
    relink(net, node, parent)
    if old >= 0:
        add_out(net, old, -net.node[node].size)
        push_edge(net, net.node[old].site, net.node[node].site)
        shrink(net, old)
    if parent >= 0:
        add_out(net, parent, net.node[node].size)
        push_edge(net, net.node[parent].site, net.node[node].site)
        grow(net, parent, node)
    if net.counter[0].grouped:
        delay(net, node)
    else:
        spread(net, node, True)


@jit
def below(net: Net, node: int, top: int) -> bool:
    """Whether a node is another one or hangs below it."""
    while node >= 0:
        if node == top:
            return True
        node = net.node[node].parent
    return False


@jit
def rollback(net: Net) -> None:
    """Undo the trial: the graph and everything derived are as before `begin`."""
    for index in range(net.counter[0].moved - 1, -1, -1):
        relink(net, net.moved[index, 0], net.moved[index, 1])
    for index in range(net.counter[0].noted_nodes):
        record = net.node[net.work[NODES, index]]
        record.kept = record.old_kept
        record.lag = record.old_lag
        record.score = record.old_score
        record.zeros = record.old_zeros
        record.depth = record.old_depth
    for index in range(net.counter[0].noted_resources):
        net.resource[net.work[RESOURCES, index]].permeable = net.resource[net.work[RESOURCES, index]].old
    for index in range(net.counter[0].noted_masks):
        node = net.work[MASKS, index]
        put(net.mask[node], net.old_mask[node])
        net.node[node].size = net.node[node].old_size
    for index in range(net.counter[0].noted_outs):
        node = net.work[OUTS, index]
        record = net.node[node]
        net.place[record.site].forwarded += record.old_out - record.out
        record.out = record.old_out
    put(net.total, net.old_total)
