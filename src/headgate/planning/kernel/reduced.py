"""The drop fixed point on a reduced graph, for changes that reach far.

Most nodes get exactly what their parents get: only a link through a resource that sheds makes a difference. Nodes
between such links have one fraction in common, a group; the children of a node that only its upload divides are one
group too. The reduced graph lists groups, parents first, with the resources on the link into each, and for every
resource that sheds or nearly does the groups that load it and how much. Sweeps over these flat arrays start from the
permeabilities as they stand, cost a few nanoseconds per group where visiting a node costs a hundred, and end in the
same fixed point. A resource that was left out and turns out to shed comes in, and the sweeps go on.
"""

from __future__ import annotations

from typing import Any

from headgate.planning.jit import jit
from headgate.planning.kernel.tree import note_node, note_resource
from headgate.planning.net import (
    BOUND,
    CANDIDATE,
    GROUP,
    INDEX,
    KEPT,
    LIMIT,
    LINK,
    LOWER,
    ORDER,
    PASSING,
    SHARED,
    START,
    STEP,
    TOLERANCE,
    UPPER,
    USES,
    Net,
)

PART = 1e-11  # of its drop: a smaller difference is none
NEAR = 0.9  # of its capacity: a resource that is loaded more may have to shed after a change
TURNS = 50  # how often resources that were left out may come in
WHOLE, NOTHING = 0, 1  # the groups of sources and of nodes outside of the graph


@jit
def list_nodes(net: Net) -> int:
    """List all nodes that are joined, parents first, and what loads each resource now. How many there are."""
    order, bound, n = net.plane[ORDER], net.real[BOUND], net.place.shape[0]
    bound[:] = 0.0
    count, at, limited = 0, 0, net.link.shape[0] > 0
    for source in range(net.flow.shape[0]):  # tree by tree: a tree fits the processor's cache, all of them do not
        order[count] = source
        count += 1
        while at < count:
            upper = net.node[order[at]]
            bound[upper.site] += upper.out * upper.kept
            child = upper.first
            while child >= 0:
                record = net.node[child]
                order[count] = child
                count += 1
                bound[n + record.site] += record.size * upper.kept
                if limited and net.link[upper.site, record.site] >= 0:
                    bound[2 * n + net.link[upper.site, record.site]] += record.size * upper.kept
                child = record.after
            at += 1
    return int(count)


@jit
def list_candidates(net: Net, again: bool) -> int:
    """Number the resources that shed or nearly do, from 1; number 0 stands for all others and passes everything.

    Once more with those that were left out and shed: whatever had a number keeps one.
    """
    index, chosen, bound = net.plane[INDEX], net.plane[CANDIDATE], net.real[BOUND]
    count = 1
    net.real[PASSING, 0] = 1.0
    for resource in range(net.resource.shape[0]):
        record = net.resource[resource]
        listed = again and index[resource] > 0
        index[resource] = 0
        if listed or record.permeable < 1.0 or bound[resource] > NEAR * record.capacity:
            index[resource] = count
            chosen[count] = resource
            net.real[PASSING, count] = record.permeable
            net.real[LIMIT, count] = record.capacity
            net.real[STEP, count] = 0.0
            count += 1
    return count


@jit
def list_groups(net: Net, count: int) -> int:
    """Give every node its group, every group the group above it and what its link uses. How many groups there are."""
    order, group, shared = net.plane[ORDER], net.plane[GROUP], net.plane[SHARED]
    index, n, limited = net.plane[INDEX], net.place.shape[0], net.link.shape[0] > 0
    group[: net.node.shape[0]] = NOTHING
    shared[: net.node.shape[0]] = -1
    for source in range(net.flow.shape[0]):
        group[source] = WHOLE
    groups = 2
    for at in range(count):
        node = order[at]
        record = net.node[node]
        parent = record.parent
        if parent < 0:
            continue
        upper = net.node[parent].site
        up, down, link = index[upper], index[n + record.site], 0
        if limited and net.link[upper, record.site] >= 0:
            link = index[2 * n + net.link[upper, record.site]]
        if down == 0 and link == 0:
            if up == 0:
                group[node] = group[parent]
                continue
            if shared[parent] >= 0:
                group[node] = shared[parent]
                continue
            shared[parent] = groups
        group[node] = groups
        net.plane[UPPER, groups] = group[parent]
        net.plane[USES, groups] = up
        net.plane[LOWER, groups] = down
        net.plane[LINK, groups] = link
        groups += 1
    return groups


@jit
def list_loads(net: Net, candidates: int) -> None:
    """For every numbered resource the groups that load it and how much they do while nothing is dropped."""
    start, chosen, group, n = net.plane[START], net.plane[CANDIDATE], net.plane[GROUP], net.place.shape[0]
    at = 0
    for number in range(1, candidates):
        start[number] = at
        resource = chosen[number]
        if resource < n:
            for position in range(net.place[resource].first, net.place[resource].last):
                node = net.site_nodes[position]
                if net.node[node].first >= 0:
                    net.entry_group[at], net.entry_load[at] = group[node], net.node[node].out
                    at += 1
        elif resource < 2 * n:
            for position in range(net.place[resource - n].first, net.place[resource - n].last):
                node = net.site_nodes[position]
                if net.node[node].parent >= 0:
                    net.entry_group[at], net.entry_load[at] = group[net.node[node].parent], net.node[node].size
                    at += 1
        else:
            at = list_link(net, net.link_ends[resource - 2 * n], at)
    start[candidates] = at


@jit
def list_link(net: Net, ends: Any, at: int) -> int:
    """The groups that load a link, in both directions."""
    for side in range(2):
        for position in range(net.place[ends[side]].first, net.place[ends[side]].last):
            node = net.site_nodes[position]
            parent = net.node[node].parent
            if parent >= 0 and net.node[parent].site == ends[1 - side]:
                net.entry_group[at], net.entry_load[at] = net.plane[GROUP, parent], net.node[node].size
                at += 1
    return at


@jit
def keep_all(net: Net, groups: int) -> None:
    """The fraction that each group gets, from the top down."""
    kept, passing = net.real[KEPT], net.real[PASSING]
    upper, up, down, link = net.plane[UPPER], net.plane[USES], net.plane[LOWER], net.plane[LINK]
    kept[WHOLE], kept[NOTHING] = 1.0, 0.0
    for group in range(2, groups):
        part = min(passing[up[group]], passing[down[group]])
        kept[group] = kept[upper[group]] * min(part, passing[link[group]])


@jit
def sweep(net: Net, groups: int, candidates: int, limit: int) -> bool:
    """Sweep groups and resources until no permeability changes by more than the tolerance; damped as in `flow.run`."""
    kept, passing, steps, limits = net.real[KEPT], net.real[PASSING], net.real[STEP], net.real[LIMIT]
    start, tolerance = net.plane[START], net.rule[TOLERANCE]
    for turn in range(1, limit + 1):
        keep_all(net, groups)
        largest = 0.0
        for number in range(1, candidates):
            load = 0.0
            for at in range(start[number], start[number + 1]):
                load += net.entry_load[at] * kept[net.entry_group[at]]
            step = (1.0 if load <= limits[number] * (1.0 + 1e-12) else limits[number] / load) - passing[number]
            largest = max(largest, abs(step))
            if turn > 60 or step * steps[number] < 0.0:
                step *= 0.7 if turn <= 60 else 0.5 if turn <= 300 else 0.25
            steps[number] = step
            passing[number] += step
        net.counter[0].sweeps += 1
        if largest <= tolerance:
            return True
    return False


@jit
def write_back(net: Net, count: int) -> bool:
    """Bring resources and nodes to what the sweeps have found, journalled where it differs.

    A node whose drop differs by less than a part of 1e-11 stays as it is: always measured from what is right now, so
    this never adds up. False when a resource that was left out has to shed.
    """
    index, order, group, n = net.plane[INDEX], net.plane[ORDER], net.plane[GROUP], net.place.shape[0]
    bound, limited = net.real[BOUND], net.link.shape[0] > 0
    for resource in range(net.resource.shape[0]):
        bound[resource] = 0.0
        found = net.real[PASSING, index[resource]]
        if found != net.resource[resource].permeable:
            note_resource(net, resource)
            net.resource[resource].permeable = found
    kept, tolerance = net.real[KEPT], net.rule[TOLERANCE]
    for at in range(count):
        node, found = order[at], kept[group[order[at]]]
        record = net.node[node]
        if abs(found - record.kept) > tolerance + PART * (1.0 - found):
            note_node(net, node)
            record.kept = found
        bound[record.site] += record.out * found
        if record.parent >= 0:
            load = record.size * kept[group[record.parent]]
            bound[n + record.site] += load
            if limited and net.link[net.node[record.parent].site, record.site] >= 0:
                bound[2 * n + net.link[net.node[record.parent].site, record.site]] += load
    for resource in range(net.resource.shape[0]):
        if index[resource] == 0 and bound[resource] > net.resource[resource].capacity * (1.0 + 1e-12):
            return False
    return True


@jit
def solve(net: Net, limit: int) -> bool:
    """Settle the whole graph by sweeps of its reduced form; False when the limit of sweeps is over."""
    count = list_nodes(net)
    for turn in range(TURNS):
        candidates = list_candidates(net, turn > 0)
        groups = list_groups(net, count)
        list_loads(net, candidates)
        if not sweep(net, groups, candidates, limit):
            return False
        keep_all(net, groups)
        if write_back(net, count):
            return True
    return False
