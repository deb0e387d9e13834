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
from headgate.planning.net import BANDWIDTH, CHILDREN, LOADS, PARENTS, SQUARES, Net

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
    steps = choose(net, state, nodes)
    for at in range(steps):
        move(net, net.work[CHILDREN, at], net.work[PARENTS, at])
    return steps > 0


@jit
def choose(net: Net, state: Any, nodes: Any) -> int:
    """Draw one random move: the number of nodes that get other parents, in order in the rows of `work` for them."""
    node = draw_node(net, state, nodes)
    kind = uniform(state) if net.node[node].parent >= 0 else 0.0
    if kind < 0.70:
        return step_to(net, 0, node, draw_parent(net, state, node))
    if kind < 0.85:
        return swap(net, state, node)
    if kind < 0.90:
        return promote(net, node)
    if kind < 0.96:
        return adopt(net, state, node)
    return dissolve(net, node)


@jit
def step_to(net: Net, count: int, node: int, parent: int) -> int:
    """Let a node get a parent after so many others have got theirs; how many there are then. None without a parent."""
    if parent < 0:
        return count
    net.work[CHILDREN, count] = node
    net.work[PARENTS, count] = parent
    return count + 1


@jit
def swap(net: Net, state: Any, node: int) -> int:
    """Two nodes change places, each keeping what is below it."""
    stream = net.node[node].stream
    first = net.flow[stream].first
    other = first + pick(state, net.flow[stream].last - first)
    one, two = net.node[node].parent, net.node[other].parent
    if two < 0 or one == two or below(net, other, node) or below(net, node, other):
        return 0
    if not (may_follow(net, node, two) and may_follow(net, other, one)):
        return 0
    return step_to(net, step_to(net, 0, node, two), other, one)


@jit
def promote(net: Net, node: int) -> int:
    """A node takes its parent's place, and the parent goes under it."""
    parent = net.node[node].parent
    if parent < net.flow.shape[0]:
        return 0
    grand, site = net.node[parent].parent, net.node[node].site
    if not (linked(net, net.node[grand].site, site) and linked(net, site, net.node[parent].site)):
        return 0
    return step_to(net, step_to(net, 0, node, grand), parent, node)


@jit
def adopt(net: Net, state: Any, node: int) -> int:
    """A node goes under a parent and takes over some of its children."""
    parent = draw_parent(net, state, node)
    if parent < 0:
        return 0
    steps, child = step_to(net, 0, node, parent), net.node[parent].first
    while child >= 0 and steps < 9:
        if child != node and uniform(state) < 0.4 and linked(net, net.node[node].site, net.node[child].site):
            steps = step_to(net, steps, child, node)
        child = net.node[child].after
    return steps


@jit
def dissolve(net: Net, node: int) -> int:
    """A node hands its children to its parent."""
    parent, child, steps = net.node[node].parent, net.node[node].first, 0
    while child >= 0 and steps < 32:
        if linked(net, net.node[parent].site, net.node[child].site):
            steps = step_to(net, steps, child, parent)
        child = net.node[child].after
    return steps


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
    """Search by annealing, or by climbing in a strict order of aims if one is given.

    Annealing: the temperature falls geometrically from the first to the second `heat`; the best graph met is kept in
    `parents` and what it is worth in `best`. Climbing: `best` is where the climb stands in each aim. Equal graphs are
    taken, to walk along plateaus, but compared with where the climb stood, so nothing is lost by steps too small to
    count; `values` is room for as many numbers. One loop for both, called by nothing in between: every level of calls
    is compiled once more, and that is most of the time that a first search takes.
    """
    make(net)
    now, strict = worth(net, wish), order.shape[0] > 0
    cooling = 0.0 if strict else math.log(heat[1] / heat[0]) / max(1, steps - 1)
    for step in range(steps):
        tidy(net)
        start(net)
        found = propose(net, state, nodes)
        weigh(net)
        seen[TRIALS] += 1
        if strict:
            stand(net, order, values)
            verdict = compare(values, best)
            taken, gained = found and verdict >= 0, verdict > 0
        else:
            value = worth(net, wish)
            gain = value - now
            taken = found and (gain >= 0.0 or uniform(state) < math.exp(gain / (heat[0] * math.exp(cooling * step))))
            gained = gain > 0.0
        if not taken:
            undo(net)
            continue
        seen[TAKEN] += 1
        if gained:
            seen[BETTER] += 1
        if strict and gained:
            put(best, values)
        elif not strict:
            now = value
            if now > best[0]:
                best[0] = now
                for node in range(net.node.shape[0]):
                    parents[node] = net.node[node].parent
    give_back(net)
