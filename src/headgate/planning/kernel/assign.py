"""Choosing a parent for a requester: the evaluation of UNFA (Algorithm 1) and the join of QASD (Algorithm 2).

Control points know what is in their `Book`: the trees of one source, or all of them. Variances follow from running
sums: a candidate changes the forwarding of the sites on its path to the root only.
"""

from __future__ import annotations

import math
from typing import Any

from headgate.planning.jit import entry, jit
from headgate.planning.kernel.book import (
    COUNT,
    DEPTH,
    DEPTH_SQUARES,
    LOAD,
    LOAD_SQUARES,
    TIE,
    Book,
    enrol,
    exhaust,
    strike_off,
)
from headgate.planning.kernel.flow import settle
from headgate.planning.kernel.tree import begin, bits_size, link_delay, linked, move, rollback, within
from headgate.planning.kernel.value import drop_of, want_quality
from headgate.planning.net import MEAN, Net


@jit
def spread_cost(net: Net, book: Book, parent: int, joining: int, with_depth: bool) -> float:
    """Var(A) * Var(D), or Var(A) alone, if `joining` went under `parent`: the smaller, the fairer."""
    stream = net.node[joining].stream
    sums, loads = book.sums[stream], book.load[book.table[stream]]
    own, added = net.mask[joining], net.node[joining].size
    load_sum = sums[LOAD] + added
    load_squares = sums[LOAD_SQUARES] + added * (2.0 * loads[net.node[parent].site] + added)
    lower = parent
    streams = net.flow.shape[0]
    while lower >= streams and not within(own, net.mask[lower]):
        for position in range(own.shape[0]):
            book.width[position] = net.mask[lower, position] | own[position]
        added = bits_size(net, lower, book.width) - net.node[lower].size
        upper = net.node[lower].parent
        load_sum += added
        load_squares += added * (2.0 * loads[net.node[upper].site] + added)
        lower = upper
    members = sums[COUNT] + 1.0
    cost = load_squares / members - (load_sum / members) ** 2
    if cost < 1e-12 * load_squares:
        cost = 0.0
    if with_depth:
        depth = net.node[parent].depth + 1
        mean = (sums[DEPTH] + depth) / members
        cost *= (sums[DEPTH_SQUARES] + depth * depth) / members - mean * mean
    return float(cost)


@jit
def fairest(net: Net, book: Book, joining: int, with_depth: bool) -> int:
    """The parent with the highest evaluation metric of UNFA (of UNFAA without depth), or -1 when none is linked.

    Of equals the one that joined first.
    """
    stream = net.node[joining].stream
    best, chosen = math.inf, -1
    first = net.flow[stream].first - net.flow.shape[0]
    for at in range(int(book.sums[stream, COUNT])):
        node = stream if at == 0 else book.joined[first + at - 1]
        if not linked(net, net.node[node].site, net.node[joining].site):
            continue
        cost = spread_cost(net, book, node, joining, with_depth)
        if chosen < 0 or cost < best * (1.0 - TIE):
            best, chosen = cost, node
    return chosen


@jit
def unfa_join(net: Net, book: Book, joining: int, with_depth: bool) -> bool:
    """Assign by UNFA; False when no member of the tree is linked to the requester yet."""
    parent = fairest(net, book, joining, with_depth)
    if parent < 0:
        return False
    begin(net)
    move(net, joining, parent)
    settle(net)
    enrol(net, book, joining)
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
def pushed(net: Net, book: Book, table: int, site: int) -> float:
    """X of Algorithm 2: bytes per second a site pushes to its children in the known trees, after upstream drops."""
    load = 0.0
    for at in range(net.place[site].first, net.place[site].last):
        node = net.site_nodes[at]
        if book.table[net.node[node].stream] == table:
            load += net.node[node].out * net.node[node].kept
    return load


@jit
def promise(net: Net, book: Book, joining: int, node: int, slack: Any) -> float:
    """The quality that a candidate promises, -1 when its slack is too small or nothing links it."""
    site, table = net.node[node].site, book.table[net.node[node].stream]
    if slack[site] < net.node[node].kept * net.node[joining].size * (1.0 - TIE):
        return -1.0
    if not linked(net, site, net.node[joining].site):
        return -1.0
    hop = book.hop_sum[table, site] / book.hops[table, site] if book.hops[table, site] > 0.0 else net.rule[MEAN]
    return expected_quality(net, joining, drop_of(net, node), hop + net.node[node].lag)


@jit
def qasd_choice(net: Net, book: Book, joining: int, slack: Any) -> int:
    """Lines 1 to 7: the applicable parent with enough slack that promises the best quality; ties by UNFAA."""
    stream = net.node[joining].stream
    best, cost, chosen = promise(net, book, joining, stream, slack), -1.0, stream
    if best < 0.0 or slack[net.node[stream].site] <= 0.0:
        best, chosen = -1.0, -1
    for kind in range(book.kinds[stream], book.kinds[stream + 1]):
        if book.live[kind] == 0 or not within(net.mask[joining], net.own[book.sample[kind]]):
            continue
        strike_off(net, book, kind, slack)
        for at in range(book.start[kind], book.start[kind] + book.live[kind]):
            node = book.listed[at]
            quality = promise(net, book, joining, node, slack)
            if quality < 0.0 or quality < best - TIE:
                continue
            if quality > best + TIE:
                best, cost, chosen = quality, -1.0, node
                continue
            if cost < 0.0:
                cost = spread_cost(net, book, chosen, joining, False)
            other = spread_cost(net, book, node, joining, False)
            first = other <= cost * (1.0 + TIE) and book.rank[node] < book.rank[chosen]
            if other < cost * (1.0 - TIE) or first:
                best, cost, chosen = max(best, quality), other, node
    return int(chosen)


@jit
def serve(net: Net, book: Book, table: int, joining: int) -> None:
    """Remember the delay of the link that a join has made."""
    site = net.node[net.node[joining].parent].site
    book.hops[table, site] += 1.0
    book.hop_sum[table, site] += link_delay(net, site, net.node[joining].site)


@jit
def qasd_join(net: Net, book: Book, joining: int) -> int:
    """Algorithm 2: rounds of temporary parents until one does not shed, else best effort. Rounds used; 0: no parent."""
    rounds, table = 0, book.table[net.node[joining].stream]
    slack = book.slack[table]
    while True:
        chosen = qasd_choice(net, book, joining, slack)
        rounds += 1
        if chosen < 0:
            break
        site = net.node[chosen].site
        needed = net.node[chosen].kept * net.node[joining].size
        before = pushed(net, book, table, site)
        begin(net)
        move(net, joining, chosen)
        settle(net)
        shed = 1.0 - net.resource[site].permeable
        if shed <= TIE:
            slack[site] -= needed
            serve(net, book, table, joining)
            enrol(net, book, joining)
            return rounds
        rollback(net)
        slack[site] = (1.0 - shed) * (before + needed) - before
    if not unfa_join(net, book, joining, False):
        return 0
    serve(net, book, table, joining)
    exhaust(net, book, table)
    return rounds


@entry
def unfa_all(net: Net, waiting: Any, book: Book) -> int:
    """Join nodes in order by UNFA; those without a linked member yet come again. Number left over.

    They stand at the front of `waiting` afterwards.
    """
    left = waiting.shape[0]
    while True:
        again = 0
        for at in range(left):
            if not unfa_join(net, book, waiting[at], True):
                waiting[again] = waiting[at]
                again += 1
        if again == 0 or again == left:
            return again
        left = again


@entry
def qasd_all(net: Net, waiting: Any, book: Book, rounds: Any) -> int:
    """Join nodes in order by QASD, each by the control point of its stream. Number left over, at the front."""
    left = waiting.shape[0]
    while True:
        again = 0
        for at in range(left):
            node = waiting[at]
            used = qasd_join(net, book, node)
            rounds[node] += used
            if used == 0:
                waiting[again] = node
                again += 1
        if again == 0 or again == left:
            return again
        left = again
