"""Small repairs of a running graph: the best place for one node, and improvements that are worth a move."""

from __future__ import annotations

import math
from typing import Any

from headgate.planning.jit import entry, jit
from headgate.planning.kernel.anneal import pick, propose, uniform, worth
from headgate.planning.kernel.flow import settle
from headgate.planning.kernel.grouped import give_back, start, tidy, undo, weigh
from headgate.planning.kernel.grouping import make
from headgate.planning.kernel.tree import begin, below, linked, move, push, rollback, within
from headgate.planning.net import TOLERANCE, Net

LOOSE = 1e-4  # tolerance of the fixed point while candidates are compared


@jit
def admissible(net: Net, node: int, parent: int) -> bool:
    """Whether a node can hang under a parent: in the tree, linked, not below it."""
    if parent == node or (parent >= net.flow.shape[0] and net.node[parent].parent < 0):
        return False
    return linked(net, net.node[parent].site, net.node[node].site) and not below(net, parent, node)


@jit
def promise(net: Net, node: int, parent: int) -> float:
    """A cheap guess of how good a parent is: room at its site, rows it has, nothing to expand, not far."""
    record = net.node[parent]
    place = net.place[record.site]
    room = 1.0 - (place.forwarded + net.node[node].size) * place.share
    guess = min(room, 0.0) + 2.0 * record.kept - 0.05 * record.lag
    if parent >= net.flow.shape[0] and not within(net.mask[node], net.mask[parent]):
        guess -= 0.5
    return float(guess)


@entry
def place_best(net: Net, state: Any, node: int, found: Any, wish: Any, margin: float) -> bool:
    """Give a node the parent with the best worth of the most promising few of its tree; kept if it gains the margin.

    `found` is room for these few. A tree of more than eight times as many members is sampled, so that the cost does not
    grow with the tree. Candidates are compared after settling loosely; the one that is taken settles as exactly as the
    rule says.
    """
    exact, tries = net.rule[TOLERANCE], found.shape[0]
    net.rule[TOLERANCE] = max(exact, LOOSE)
    stream = net.node[node].stream
    first, count = net.flow[stream].first, net.flow[stream].last - net.flow[stream].first
    looks = min(count + 1, 8 * tries)
    guesses = 0
    for look in range(looks):
        at = look if looks == count + 1 else (count if look == 0 else pick(state, count))
        parent = stream if at == count else first + at
        if not admissible(net, node, parent):
            continue
        guess = promise(net, node, parent)
        slot = guesses if guesses < tries else tries - 1
        if guesses >= tries and guess <= promise(net, node, found[slot]):
            continue
        while slot > 0 and promise(net, node, found[slot - 1]) < guess:
            found[slot] = found[slot - 1]
            slot -= 1
        found[slot] = parent
        guesses = min(guesses + 1, tries)
    here = net.node[node].parent
    best, chosen = worth(net, wish) + margin, here
    for at in range(guesses):
        parent = found[at]
        if parent == here:
            continue
        begin(net)
        move(net, node, parent)
        settle(net)
        value = worth(net, wish)
        if value > best or (chosen < 0 and at == 0):
            best, chosen = value, parent
        rollback(net)
    net.rule[TOLERANCE] = exact
    if chosen == here:
        return False
    begin(net)
    move(net, node, chosen)
    settle(net)
    return True


@jit
def strayed(net: Net, homes: Any) -> int:
    """How many more members a trial has away from their homes than there were before it."""
    change = 0
    for at in range(net.counter[0].moved):
        node, before = net.moved[at, 0], net.moved[at, 1]
        change += int(net.node[node].parent != homes[node]) - int(before != homes[node])
    return change


@jit
def suggest(net: Net, state: Any, nodes: Any, homes: Any) -> bool:
    """One random change: half of the members that are drawn away from home are tried there, else any move."""
    node = nodes[pick(state, nodes.shape[0])]
    home = homes[node]
    if home >= 0 and home != net.node[node].parent and uniform(state) < 0.5 and admissible(net, node, home):
        move(net, node, home)
        return True
    return propose(net, state, nodes)


@entry
def tend(
    net: Net, state: Any, nodes: Any, homes: Any, trials: int, heat: Any, price: float, wish: Any, parents: Any
) -> float:
    """Annealing that pays a price for every member away from its home; the best gain met, whose graph is in `parents`.

    Homes are the parents before an event: what does not bring its price goes back there, or never leaves. The heat
    falls geometrically from the first to the second of its numbers; without any it is a climb. A trial moves a node at
    most once, so its journal says who left home.
    """
    now, best = 0.0, 0.0
    make(net)
    before = worth(net, wish)
    for node in range(net.node.shape[0]):
        parents[node] = net.node[node].parent
    cooling = math.log(heat[1] / heat[0]) / max(1, trials - 1) if heat[0] > 0.0 else 0.0
    paid = 0.0
    for trial in range(trials):
        tidy(net)
        start(net)
        found = suggest(net, state, nodes, homes)
        weigh(net)
        cost = paid + price * strayed(net, homes)
        value = worth(net, wish) - before - cost
        gain = value - now
        hot = heat[0] * math.exp(cooling * trial)
        if found and (gain > 0.0 or (hot > 0.0 and uniform(state) < math.exp(gain / hot))):
            now, paid = value, cost
            if now > best:
                best = now
                for node in range(net.node.shape[0]):
                    parents[node] = net.node[node].parent
        else:
            undo(net)
    give_back(net)
    return best


@entry
def retune(net: Net, resource: int, capacity: float) -> None:
    """Change a capacity and let the drops settle."""
    begin(net)
    net.resource[resource].capacity = min(1e300, capacity)
    push(net, resource)
    settle(net)
