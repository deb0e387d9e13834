"""Small repairs of a running graph: the best place for one node, and improvements that are worth a move."""

from __future__ import annotations

from typing import Any

from headgate.planning.jit import entry, jit
from headgate.planning.kernel.anneal import pick, propose, worth
from headgate.planning.kernel.flow import settle
from headgate.planning.kernel.tree import begin, below, linked, move, push, rollback, within
from headgate.planning.net import N_MOVED, TOLERANCE, Net

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


@entry
def repair(net: Net, state: Any, nodes: Any, trials: int, margin: float, wish: Any) -> int:
    """Random moves of the given nodes that gain at least the margin per moved node. How many were taken."""
    taken = 0
    now = worth(net, wish)
    for _ in range(trials):
        begin(net)
        found = propose(net, state, nodes)
        settle(net)
        value = worth(net, wish)
        if found and value - now >= margin * net.counter[N_MOVED]:
            now = value
            taken += 1
        else:
            rollback(net)
    return taken


@entry
def retune(net: Net, resource: int, capacity: float) -> None:
    """Change a capacity and let the drops settle."""
    begin(net)
    net.resource[resource].capacity = min(1e300, capacity)
    push(net, resource)
    settle(net)
