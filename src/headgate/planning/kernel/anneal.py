"""Simulated annealing over delivery graphs: trials with incremental evaluation, undone when they are not taken.

Moves: re-parent a subtree; swap two places; promote a node above its parent; adopt (a node goes under a parent and
takes over some of its children, which splits a fan-out); dissolve (a node hands its children to its parent).
Half of the nodes are drawn by how badly they fare, and parents are drawn with a look at who can carry the load.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headgate.planning.jit import entry, jit
from headgate.planning.kernel.grouped import give_back, start, tidy, undo, weigh
from headgate.planning.kernel.grouping import make
from headgate.planning.kernel.seats import score_of
from headgate.planning.kernel.strict import compare, stand
from headgate.planning.kernel.tree import below, linked, move, put, within
from headgate.planning.kernel.value import scalar
from headgate.planning.net import BANDWIDTH, LOADS, SQUARES, Net

# Places in the statistics array.
TRIALS, TAKEN, BETTER, WORSE = range(4)


@jit
def uniform(state: Any) -> float:
    """A number in [0, 1) from a generator whose state is one word (splitmix64): the same on every machine."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    word = state[0]
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word = word ^ (word >> np.uint64(31))
    return float(word >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@jit
def pick(state: Any, count: int) -> int:
    """A whole number below `count`."""
    return int(uniform(state) * count)


@jit
def worth(net: Net, wish: Any) -> float:
    """The number to be made large: quality first, less total bandwidth and unfairness by their weights."""
    value = wish[2] * scalar(net)
    if wish[0] > 0.0:
        value -= wish[0] * net.total[BANDWIDTH]
    if wish[1] > 0.0:
        count = net.place.shape[0]
        value -= wish[1] * (net.total[SQUARES] / count - (net.total[LOADS] / count) ** 2)
    return float(value)


@jit
def draw_node(net: Net, state: Any, nodes: Any) -> int:
    """A member of some tree; in half of the cases the worse of two by score."""
    node = nodes[pick(state, nodes.shape[0])]
    if uniform(state) < 0.5:
        other = nodes[pick(state, nodes.shape[0])]
        if score_of(net, other) < score_of(net, node):
            node = other
    return int(node)


@jit
def draw_parent(net: Net, state: Any, node: int) -> int:
    """A node of the same tree that can take another one, or -1. Of a few drawn, one that covers and has room."""
    stream = net.node[node].stream
    first, count = net.flow[stream].first, net.flow[stream].last - net.flow[stream].first
    best, chosen = -1.0e300, -1
    for _ in range(1 + pick(state, 4)):
        at = pick(state, count + 1)
        found = stream if at == count else first + at
        record = net.node[found]
        if found == node or found == net.node[node].parent or (found >= first and record.parent < 0):
            continue
        if not linked(net, record.site, net.node[node].site) or below(net, found, node):
            continue
        room = 1.0 - (net.place[record.site].forwarded + net.node[node].size) * net.place[record.site].share
        # A site that sheds much already has little left to lose: those who cannot be served well gather there.
        grade = uniform(state) + (0.0 if net.resource[record.site].permeable < 0.7 else 3.0 * min(room, 0.0))
        if found >= net.flow.shape[0] and not within(net.mask[node], net.mask[found]):
            grade -= 0.5
        if grade > best:
            best, chosen = grade, found
    return chosen


@jit
def may_follow(net: Net, node: int, parent: int) -> bool:
    """Whether a node could be moved under a parent."""
    return linked(net, net.node[parent].site, net.node[node].site) and not below(net, parent, node)


@jit
def propose(net: Net, state: Any, nodes: Any) -> bool:
    """Carry out one random move inside a trial; False when the draw led to none."""
    node = draw_node(net, state, nodes)
    old = net.node[node].parent
    if old < 0:
        parent = draw_parent(net, state, node)
        if parent >= 0:
            move(net, node, parent)
        return bool(parent >= 0)
    kind = uniform(state)
    if kind < 0.70:
        parent = draw_parent(net, state, node)
        if parent < 0:
            return False
        move(net, node, parent)
        return True
    if kind < 0.85:
        return swap(net, state, node)
    if kind < 0.90:
        return promote(net, node)
    if kind < 0.96:
        return adopt(net, state, node)
    return dissolve(net, node)


@jit
def swap(net: Net, state: Any, node: int) -> bool:
    """Two nodes change places, each keeping what is below it."""
    stream = net.node[node].stream
    first = net.flow[stream].first
    other = first + pick(state, net.flow[stream].last - first)
    one, two = net.node[node].parent, net.node[other].parent
    if two < 0 or one == two or below(net, other, node) or below(net, node, other):
        return False
    if not (may_follow(net, node, two) and may_follow(net, other, one)):
        return False
    move(net, node, two)
    move(net, other, one)
    return True


@jit
def promote(net: Net, node: int) -> bool:
    """A node takes its parent's place, and the parent goes under it."""
    parent = net.node[node].parent
    if parent < net.flow.shape[0]:
        return False
    grand = net.node[parent].parent
    if not linked(net, net.node[grand].site, net.node[node].site):
        return False
    move(net, node, grand)
    move(net, parent, node)
    return True


@jit
def adopt(net: Net, state: Any, node: int) -> bool:
    """A node goes under a parent and takes over some of its children."""
    parent = draw_parent(net, state, node)
    if parent < 0:
        return False
    taken = 0
    child = net.node[parent].first
    move(net, node, parent)
    while child >= 0 and taken < 8:
        following = net.node[child].after
        if child != node and uniform(state) < 0.4 and linked(net, net.node[node].site, net.node[child].site):
            move(net, child, node)
            taken += 1
        child = following
    return True


@jit
def dissolve(net: Net, node: int) -> bool:
    """A node hands its children to its parent."""
    parent, child, taken = net.node[node].parent, net.node[node].first, 0
    while child >= 0 and taken < 32:
        following = net.node[child].after
        if linked(net, net.node[parent].site, net.node[child].site):
            move(net, child, parent)
            taken += 1
        child = following
    return taken > 0


@jit
def attempt(net: Net, state: Any, nodes: Any) -> bool:
    """One random move, tried; False when the draw led to none."""
    tidy(net)
    start(net)
    found = propose(net, state, nodes)
    weigh(net)
    return found


@jit
def climb(net: Net, state: Any, nodes: Any, steps: int, order: Any, now: Any, values: Any, seen: Any) -> None:
    """Random moves that are kept unless they make the graph worse in a strict order; `now` follows what was reached.

    Equal graphs are kept, to walk along plateaus, but compared with where the climb stood, so nothing is lost by steps
    too small to count. `values` is room for as many numbers as `now` has.
    """
    for _ in range(steps):
        found = attempt(net, state, nodes)
        stand(net, order, values)
        verdict = compare(values, now) if found else -1
        seen[TRIALS] += 1
        if verdict < 0:
            undo(net)
            continue
        seen[TAKEN] += 1
        if verdict > 0:
            seen[BETTER] += 1
            put(now, values)


@jit
def cool(
    net: Net, state: Any, nodes: Any, steps: int, heat: Any, wish: Any, best: Any, parents: Any, seen: Any
) -> None:
    """Trials while the temperature falls geometrically from hot to cold. Keeps the best graph met in `parents`."""
    now = worth(net, wish)
    cooling = math.log(heat[1] / heat[0]) / max(1, steps - 1)
    for step in range(steps):
        found = attempt(net, state, nodes)
        seen[TRIALS] += 1
        value = worth(net, wish)
        gain = value - now
        if found and (gain >= 0.0 or uniform(state) < math.exp(gain / (heat[0] * math.exp(cooling * step)))):
            now = value
            seen[TAKEN] += 1
            if gain > 0.0:
                seen[BETTER] += 1
            if now > best[0]:
                best[0] = now
                for node in range(net.node.shape[0]):
                    parents[node] = net.node[node].parent
        else:
            undo(net)


@entry
def anneal(
    net: Net,
    state: Any,
    nodes: Any,
    steps: int,
    heat: Any,
    wish: Any,
    best: Any,
    values: Any,
    parents: Any,
    order: Any,
    seen: Any,
) -> None:
    """Search by annealing from a hot to a cold `heat`, or by climbing from `best` in an order of aims if one is given.

    One entry for both: compiling it takes most of the time that a first search needs.
    """
    make(net)
    if order.shape[0] > 0:
        climb(net, state, nodes, steps, order, best, values, seen)
    else:
        cool(net, state, nodes, steps, heat, wish, best, parents, seen)
    give_back(net)
