"""Nodes in groups that get the same fraction: made from scratch, and kept up to date while links and resources change.

Only a link through an active resource, one that sheds, divides what is above it from what is below; nodes between such
links are one group, and so are all whose links lead from the same group through the same resources. A resource that
nobody asks for more than it has never sheds; one that is asked for more and gets less, because of drops above it, is
doubtful and is looked at after every change. Finer groups than needed are never wrong: within a trial, and until groups
are made again, every node whose link has changed owns a group.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headgate.planning.jit import inline, jit
from headgate.planning.kernel.seats import IS_STALE, fill, loosen, note_group, note_seat, rescore
from headgate.planning.kernel.tree import edge_permeability
from headgate.planning.kernel.waiting import carry, nobody_waits
from headgate.planning.net import (
    ACTIVES,
    ASKED,
    BOUND,
    BUCKET,
    DOUBTS,
    GEOMETRIC,
    LIMIT,
    ORDER,
    PASSING,
    RECEIVER,
    SCORE,
    SENDER,
    SHARED,
    STACK,
    TOP,
    WIRE,
    ZEROS,
    Net,
)

WHOLE, NOTHING = 0, 1  # the groups of sources and of nodes outside of the graph
IS_ACTIVE, IS_DOUBTFUL = 1, 2  # bits of a resource's state


@jit
def list_tree(net: Net) -> int:
    """List what is joined, parents first, with the fraction each node gets and what it asks of resources."""
    order, asked, bound = net.plane[ORDER], net.real[ASKED], net.real[BOUND]
    n, limited = net.place.shape[0], net.link.shape[0] > 0
    for resource in range(net.resource.shape[0]):
        asked[resource], bound[resource] = 0.0, 0.0
    count, at = 0, 0
    for source in range(net.flow.shape[0]):  # tree by tree, which stays in the processor's cache
        order[count] = source
        count += 1
        while at < count:
            upper = net.node[order[at]]
            child = upper.first
            while child >= 0:
                record = net.node[child]
                order[count] = child
                count += 1
                record.kept = upper.kept * edge_permeability(net, upper.site, record.site)
                asked[upper.site] += record.size
                asked[n + record.site] += record.size
                bound[upper.site] += record.size * upper.kept
                bound[n + record.site] += record.size * upper.kept
                if limited and net.link[upper.site, record.site] >= 0:
                    link = 2 * n + net.link[upper.site, record.site]
                    asked[link] += record.size
                    bound[link] += record.size * upper.kept
                child = record.after
            at += 1
    return int(count)


@jit
def sort_out(net: Net) -> None:
    """Say which resources are active and which doubtful; the active ones from the sources on, by how deep they lie."""
    asked, bound, key = net.real[ASKED], net.real[BOUND], net.real[LIMIT]
    net.counter[0].active, net.counter[0].doubtful = 0, 0
    for resource in range(net.resource.shape[0]):
        record = net.resource[resource]
        net.real[PASSING, resource] = record.permeable
        record.state = 0
        if record.permeable < 1.0 or bound[resource] > record.capacity:
            record.state = IS_ACTIVE
        elif asked[resource] > record.capacity:
            record.state = IS_DOUBTFUL
        state, record.state = record.state, record.state | IS_STALE
        if state == IS_ACTIVE:
            key[resource] = depth_of(net, resource)
            net.work[ACTIVES, net.counter[0].active] = resource
            net.counter[0].active += 1
        elif state == IS_DOUBTFUL:
            net.work[DOUBTS, net.counter[0].doubtful] = resource
            net.counter[0].doubtful += 1
    net.real[PASSING, net.resource.shape[0]] = 1.0
    sort_by(net.work[ACTIVES], key, net.counter[0].active)


@jit
def depth_of(net: Net, resource: int) -> float:
    """How far below the sources the traffic of a resource is sent, on average by bytes."""
    n, load, deep = net.place.shape[0], 0.0, 0.0
    if resource < n:
        for at in range(net.place[resource].first, net.place[resource].last):
            record = net.node[net.site_nodes[at]]
            load += record.out
            deep += record.out * (record.depth + 0.5)
    elif resource < 2 * n:
        for at in range(net.place[resource - n].first, net.place[resource - n].last):
            record = net.node[net.site_nodes[at]]
            load += record.size
            deep += record.size * record.depth
    return float(deep / load) if load > 0.0 else 0.0


@jit
def sort_by(places: Any, key: Any, count: int) -> None:
    """Sort places by their keys, in place (Shell's way: no memory, and there are few)."""
    gap = count // 2
    while gap > 0:
        for last in range(gap, count):
            place, at = places[last], last
            while at >= gap and key[places[at - gap]] > key[place]:
                places[at] = places[at - gap]
                at -= gap
            places[at] = place
        gap //= 2


@inline
def divides(net: Net, resource: int) -> int:
    """A resource if it is active, else the number that stands for all others, through which everything passes."""
    return resource if net.resource[resource].state & IS_ACTIVE else net.resource.shape[0]


@inline
def link_through(net: Net, upper: int, lower: int) -> int:
    """The capacity of the link between two sites where that is active, as `divides` tells it."""
    if net.link.shape[0] > 0 and net.link[upper, lower] >= 0:
        return divides(net, 2 * net.place.shape[0] + net.link[upper, lower])
    return int(net.resource.shape[0])


@inline
def open_group(net: Net, owner: int) -> int:
    """A new group, of nobody yet."""
    group = net.counter[0].groups
    net.counter[0].groups += 1
    record = net.group[group]
    record.owner, record.stamp, record.first, record.last, record.inner = owner, 0, 0, 0, 0
    record.kept, record.score, record.zeros = 0.0, 0.0, 0.0
    net.kept[group] = 0.0
    return int(group)


@inline
def lead(net: Net, group: int, node: int) -> None:
    """Let a group begin with the link into a node."""
    parent = net.node[node].parent
    upper, lower = net.node[parent].site, net.node[node].site
    net.path[TOP, group] = net.seat[net.node[parent].seat].group
    net.path[SENDER, group] = divides(net, upper)
    net.path[RECEIVER, group] = divides(net, net.place.shape[0] + lower)
    net.path[WIRE, group] = link_through(net, upper, lower)


@inline
def undivided(net: Net, node: int) -> bool:
    """Whether no active resource is on the link into a node."""
    upper, lower = net.node[net.node[node].parent].site, net.node[node].site
    none = net.resource.shape[0]
    return bool(
        divides(net, upper) == none
        and divides(net, net.place.shape[0] + lower) == none
        and link_through(net, upper, lower) == none
    )


@jit
def make(net: Net) -> None:
    """Make groups from scratch for the graph and the permeabilities as they stand, and value them."""
    none = net.resource.shape[0]
    count = list_tree(net)
    sort_out(net)
    net.counter[0].grouped, net.counter[0].groups, net.counter[0].loose = 1, 0, 0
    for group in range(2):
        open_group(net, -1)
        net.path[TOP, group] = group
        net.path[SENDER, group], net.path[RECEIVER, group], net.path[WIRE, group] = none, none, none
    net.kept[WHOLE], net.kept[NOTHING] = 1.0, 0.0
    for node in range(net.node.shape[0]):
        seat = net.seat[net.node[node].seat]
        seat.group = WHOLE if node < net.flow.shape[0] else NOTHING
        seat.above, seat.loose, seat.out, seat.size = NOTHING, 0, net.node[node].out, net.node[node].size
    net.plane[SHARED, :] = -1
    for at in range(count):
        join_group(net, net.plane[ORDER, at])
    lay_slots(net)
    net.total[SCORE], net.total[ZEROS] = 0.0, 0.0
    for group in range(net.counter[0].groups):
        net.group[group].kept = net.kept[group]
        rescore(net, group)
    net.counter[0].groups_made, net.counter[0].active_made = net.counter[0].groups, net.counter[0].active
    net.counter[0].groups_before = net.counter[0].groups


@jit
def join_group(net: Net, node: int) -> None:
    """Give a node its group when its parent has one: the parent's, or that of all whose links lead the same way."""
    record = net.node[node]
    if record.parent < 0:
        return
    seat = net.seat[record.seat]
    seat.above = net.seat[net.node[record.parent].seat].group
    if undivided(net, node):
        seat.group = seat.above
        return
    group = open_group(net, -1)
    lead(net, group, node)
    seat.group = find_group(net, group)
    if seat.group == group:
        pull(net.path, net.kept, net.real[PASSING], group)
    else:
        net.counter[0].groups -= 1


@jit
def find_group(net: Net, group: int) -> int:
    """The first group with the same path as a new one, which is listed if there is none."""
    path, listed = net.path, net.plane[SHARED]
    word = path[TOP, group] * 31 + path[SENDER, group]
    word = word * 31 + path[RECEIVER, group]
    at = (word * 31 + path[WIRE, group]) % listed.shape[0]
    while listed[at] >= 0:
        known = listed[at]
        if (
            path[TOP, known] == path[TOP, group]
            and path[SENDER, known] == path[SENDER, group]
            and path[RECEIVER, known] == path[RECEIVER, group]
            and path[WIRE, known] == path[WIRE, group]
        ):
            return int(known)
        at = at + 1 if at + 1 < listed.shape[0] else 0
    listed[at] = group
    return group


@inline
def pull(path: Any, kept: Any, passing: Any, group: Any) -> float:
    """Bring what a group gets up to date with the group above it and the resources on its link.

    A hot path: a whole net is not passed on to it, which would cost more than its work.
    """
    at = np.uint64(group)
    part = min(passing[path[SENDER, at]], passing[path[RECEIVER, at]])
    part = kept[path[TOP, at]] * min(part, passing[path[WIRE, at]])
    kept[at] = part
    return float(part)


@jit
def lay_slots(net: Net) -> None:
    """Lay the slots of all nodes group after group."""
    net.counter[0].plain = 1 if net.counter[0].goal == GEOMETRIC else 0
    for want in range(net.want.shape[0]):
        if net.want[want].kind != 0 or net.want_data[net.want[want].at] <= 0.0:
            net.counter[0].plain = 0
    for group in range(net.counter[0].groups):
        net.group[group].first = 0
    for node in range(net.node.shape[0]):
        record = net.node[node]
        net.group[net.seat[record.seat].group].first += record.want_last - record.want_first
    at = 0
    for group in range(net.counter[0].groups):
        record = net.group[group]
        wants, record.first, record.last = record.first, at, at
        at += wants
    for node in range(net.node.shape[0]):
        record = net.node[node]
        seat = net.seat[record.seat]
        group = net.group[seat.group]
        seat.slot = group.last
        group.last += record.want_last - record.want_first
        fill(net, node)


@jit
def activate(net: Net, resource: int) -> None:
    """Let a resource divide what is above it from what is below, and those below wait for their groups."""
    net.resource[resource].state |= IS_ACTIVE | IS_STALE
    net.work[ACTIVES, net.counter[0].active] = resource
    net.counter[0].active += 1
    carry(net, resource)


@jit
def regroup(net: Net) -> None:
    """Give those who wait their groups, from the top down, and all below them that are in the same group."""
    for depth in range(net.counter[0].low, net.counter[0].high + 1):  # first of all each one owns a group
        node = net.work[BUCKET, depth]
        while node >= 0:
            seat = net.seat[net.node[node].seat]
            if net.group[seat.group].owner != node:
                loosen(net, node)
                note_seat(net, node)
                seat.group = open_group(net, node)
            node = net.node[node].next
    for depth in range(net.counter[0].low, net.counter[0].high + 1):
        node = net.work[BUCKET, depth]
        net.work[BUCKET, depth] = -1
        while node >= 0:
            net.node[node].waiting = 0
            place(net, node)
            node = net.node[node].next
    nobody_waits(net)


@inline
def place(net: Net, node: int) -> None:
    """Hang a node that owns a group under its parent's group, or take it into that one where nothing divides them."""
    record = net.node[node]
    seat = net.seat[record.seat]
    note_seat(net, node)
    seat.above = NOTHING if record.parent < 0 else net.seat[net.node[record.parent].seat].group
    if record.parent < 0 or undivided(net, node):
        loosen(net, node)
        seat.group = seat.above
    else:
        note_group(net, seat.group)
        lead(net, seat.group, node)
        pull(net.path, net.kept, net.real[PASSING], seat.group)
    net.work[STACK, 0] = node
    height = 1
    while height > 0:
        height -= 1
        upper = net.work[STACK, height]
        above = net.seat[net.node[upper].seat].group
        child = net.node[upper].first
        while child >= 0:
            if follow(net, child, above):
                net.work[STACK, height] = child
                height += 1
            child = net.node[child].after


@inline
def follow(net: Net, node: int, above: int) -> bool:
    """Let a node know its parent's group; whether its own is another one now."""
    seat = net.seat[net.node[node].seat]
    note_seat(net, node)
    seat.above = above
    if seat.group == above:
        return False
    if net.group[seat.group].owner == node:
        note_group(net, seat.group)
        net.path[TOP, seat.group] = above
        pull(net.path, net.kept, net.real[PASSING], seat.group)
        return False
    loosen(net, node)
    if undivided(net, node):
        seat.group = above
    else:
        seat.group = open_group(net, node)
        lead(net, seat.group, node)
        pull(net.path, net.kept, net.real[PASSING], seat.group)
    return True
