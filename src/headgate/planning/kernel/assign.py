"""Choosing a parent for a requester: the evaluation of UNFA (Algorithm 1) and the join of QASD (Algorithm 2).

`scope` is the site whose streams the control point knows, or -1 for a control point that knows all of them.
Variances follow from running sums: a candidate changes the forwarding of the sites on its path to the root only.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headgate.planning.jit import entry, jit
from headgate.planning.kernel.flow import settle
from headgate.planning.kernel.tree import begin, bits_size, link_delay, linked, move, rollback, within
from headgate.planning.kernel.value import drop_of, want_quality
from headgate.planning.net import MEAN, Net

TIE = 1e-9  # qualities closer than this are equal; shedding below this is none; slack short by this part is enough


@jit
def forwarded(net: Net, site: int, scope: int) -> float:
    """Bytes per second a site forwards without drops, in the trees that the control point knows."""
    load = 0.0
    for at in range(net.place[site].first, net.place[site].last):
        node = net.site_nodes[at]
        if scope < 0 or net.node[net.node[node].stream].site == scope:
            load += net.node[node].out
    return load


@jit
def joined(net: Net, node: int) -> bool:
    """Whether a node is a source or has a parent."""
    return bool(node < net.flow.shape[0] or net.node[node].parent >= 0)


@jit
def tree_sums(net: Net, stream: int, scope: int, loads: Any, joining: int) -> Any:
    """Sums over a tree's members: count, load, load squared, depth, depth squared. Fills `loads` by node."""
    count, load_sum, load_squares, depth_sum, depth_squares = 1, 0.0, 0.0, 0.0, 0.0
    loads[stream] = forwarded(net, net.node[stream].site, scope)
    load_sum += loads[stream]
    load_squares += loads[stream] ** 2
    for node in range(net.flow[stream].first, net.flow[stream].last):
        if node != joining and net.node[node].parent >= 0:
            count += 1
            load = forwarded(net, net.node[node].site, scope)
            loads[node] = load
            load_sum += load
            load_squares += load * load
            depth_sum += net.node[node].depth
            depth_squares += net.node[node].depth ** 2
    return count, load_sum, load_squares, depth_sum, depth_squares


@jit
def spread_cost(net: Net, parent: int, joining: int, sums: Any, loads: Any, with_depth: bool, width: Any) -> float:
    """Var(A) * Var(D), or Var(A) alone, if `joining` went under `parent`: the smaller, the fairer."""
    count, load_sum, load_squares, depth_sum, depth_squares = sums
    stream = net.node[joining].stream
    own = net.mask[joining]
    added = net.node[joining].size
    load_sum += added
    load_squares += added * (2.0 * loads[parent] + added)
    lower = parent
    streams = net.flow.shape[0]
    while lower >= streams and not within(own, net.mask[lower]):
        for position in range(own.shape[0]):
            width[position] = net.mask[lower, position] | own[position]
        added = bits_size(net, stream, width) - net.node[lower].size
        upper = net.node[lower].parent
        load_sum += added
        load_squares += added * (2.0 * loads[upper] + added)
        lower = upper
    members = count + 1
    cost = load_squares / members - (load_sum / members) ** 2
    if cost < 1e-12 * load_squares:
        cost = 0.0
    if with_depth:
        depth = net.node[parent].depth + 1
        depth_sum += depth
        depth_squares += depth * depth
        cost *= depth_squares / members - (depth_sum / members) ** 2
    return float(cost)


@jit
def fairest(net: Net, joining: int, scope: int, with_depth: bool, loads: Any, width: Any) -> int:
    """The parent with the highest evaluation metric of UNFA (of UNFAA without depth), or -1 when none is linked."""
    stream = net.node[joining].stream
    sums = tree_sums(net, stream, scope, loads, joining)
    best, chosen = math.inf, -1
    first = net.flow[stream].first
    for at in range(net.flow[stream].last - first + 1):
        node = stream if at == 0 else first + at - 1
        if node == joining or not joined(net, node) or not linked(net, net.node[node].site, net.node[joining].site):
            continue
        cost = spread_cost(net, node, joining, sums, loads, with_depth, width)
        if chosen < 0 or cost < best * (1.0 - TIE):
            best, chosen = cost, node
    return chosen


@jit
def unfa_join(net: Net, joining: int, scope: int, with_depth: bool, loads: Any, width: Any) -> bool:
    """Assign by UNFA; False when no member of the tree is linked to the requester yet."""
    parent = fairest(net, joining, scope, with_depth, loads, width)
    if parent < 0:
        return False
    begin(net)
    move(net, joining, parent)
    settle(net)
    return True


@jit
def expected_quality(net: Net, joining: int, drop: float, delay_s: float) -> float:
    """The QoS of a requester at a drop and delay: the weighted mean over its wants, 1 for a relay."""
    value, weight = 0.0, 0.0
    for want in range(net.node[joining].want_first, net.node[joining].want_last):
        value += net.want[want].weight * want_quality(net, want, drop, delay_s)
        weight += net.want[want].weight
    return value / weight if weight > 0.0 else 1.0


@jit
def pushed(net: Net, site: int, scope: int) -> float:
    """X of Algorithm 2: bytes per second a site pushes to its children in the known trees, after upstream drops."""
    load = 0.0
    for at in range(net.place[site].first, net.place[site].last):
        node = net.site_nodes[at]
        if scope < 0 or net.node[net.node[node].stream].site == scope:
            load += net.node[node].out * net.node[node].kept
    return load


@jit
def qasd_choice(net: Net, joining: int, scope: int, slack: Any, hops: Any, hop_sum: Any, loads: Any, width: Any) -> int:
    """Lines 1 to 7: the applicable parent with enough slack that promises the best quality; ties by UNFAA."""
    stream = net.node[joining].stream
    needed = net.node[joining].size
    sums = tree_sums(net, stream, scope, loads, joining)
    best, best_cost, chosen = -1.0, -1.0, -1
    first = net.flow[stream].first
    for at in range(net.flow[stream].last - first + 1):
        node = stream if at == 0 else first + at - 1
        if node == joining or not joined(net, node):
            continue
        site = net.node[node].site
        if slack[site] < net.node[node].kept * needed * (1.0 - TIE) or not within(net.mask[joining], net.own[node]):
            continue
        if not linked(net, site, net.node[joining].site):
            continue
        hop = hop_sum[site] / hops[site] if hops[site] > 0 else net.rule[MEAN]
        quality = expected_quality(net, joining, drop_of(net, node), hop + net.node[node].lag)
        if quality < best - TIE:
            continue
        if quality > best + TIE:
            best, best_cost, chosen = quality, -1.0, node
            continue
        if best_cost < 0.0:
            best_cost = spread_cost(net, chosen, joining, sums, loads, False, width)
        cost = spread_cost(net, node, joining, sums, loads, False, width)
        if cost < best_cost * (1.0 - TIE):
            best, best_cost, chosen = max(best, quality), cost, node
    return chosen


@jit
def qasd_join(net: Net, joining: int, scope: int, slack: Any, hops: Any, hop_sum: Any, loads: Any, width: Any) -> int:
    """Algorithm 2: rounds of temporary parents until one does not shed, else best effort. Rounds used; 0: no parent."""
    rounds = 0
    n = net.place.shape[0]
    while True:
        chosen = qasd_choice(net, joining, scope, slack, hops, hop_sum, loads, width)
        rounds += 1
        if chosen < 0:
            break
        site = net.node[chosen].site
        needed = net.node[chosen].kept * net.node[joining].size
        before = pushed(net, site, scope)
        begin(net)
        move(net, joining, chosen)
        settle(net)
        shed = 1.0 - net.resource[site].permeable
        if shed <= TIE:
            slack[site] -= needed
            hops[site] += 1
            hop_sum[site] += link_delay(net, site, net.node[joining].site)
            return rounds
        rollback(net)
        slack[site] = (1.0 - shed) * (before + needed) - before
    if not unfa_join(net, joining, scope, False, loads, width):
        return 0
    site = net.node[net.node[joining].parent].site
    hops[site] += 1
    hop_sum[site] += link_delay(net, site, net.node[joining].site)
    for other in range(n):
        if 1.0 - net.resource[other].permeable > TIE and (scope < 0 or known(net, other, scope)):
            slack[other] = 0.0
    return rounds


@jit
def known(net: Net, site: int, scope: int) -> bool:
    """Whether a site takes part in a tree of that source."""
    for at in range(net.place[site].first, net.place[site].last):
        node = net.site_nodes[at]
        if net.node[net.node[node].stream].site == scope and joined(net, node):
            return True
    return False


@entry
def unfa_all(net: Net, order: Any, by_source: bool) -> int:
    """Join nodes in order by UNFA; those without a linked member yet come again. Number left over."""
    loads, width = np.zeros(net.node.shape[0]), np.zeros(net.own.shape[1], np.uint8)
    waiting = order.copy()
    left = waiting.shape[0]
    while True:
        again = 0
        for at in range(left):
            node = waiting[at]
            scope = net.node[net.node[node].stream].site if by_source else -1
            if not unfa_join(net, node, scope, True, loads, width):
                waiting[again] = node
                again += 1
        if again == 0 or again == left:
            return again
        left = again


@entry
def qasd_all(net: Net, order: Any, by_source: bool, rounds: Any) -> int:
    """Join nodes in order by QASD with one slack table (one per source by source). Number left over."""
    loads, width = np.zeros(net.node.shape[0]), np.zeros(net.own.shape[1], np.uint8)
    n, streams = net.place.shape[0], net.flow.shape[0]
    table = np.zeros(n, np.int64)
    tables = 1
    if by_source:
        tables = 0
        table[:] = -1
        for source in range(streams):
            if table[net.node[source].site] < 0:
                table[net.node[source].site] = tables
                tables += 1
    slack = np.full((tables, n), np.inf)
    hops, hop_sum = np.zeros((tables, n), np.int64), np.zeros((tables, n))
    waiting = order.copy()
    left = waiting.shape[0]
    while True:
        again = 0
        for at in range(left):
            node = waiting[at]
            scope = net.node[net.node[node].stream].site if by_source else -1
            use = table[scope] if by_source else 0
            used = qasd_join(net, node, scope, slack[use], hops[use], hop_sum[use], loads, width)
            rounds[node] += used
            if used == 0:
                waiting[again] = node
                again += 1
        if again == 0 or again == left:
            return again
        left = again
