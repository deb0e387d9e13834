"""The drop fixed point by sweeps over the active resources, for trials by groups.

From the sources on, each resource uses what the ones before it have just found, so a graph in which no sites feed each
other takes one sweep, and others about one for every digit. Flat lists of what loads whom are kept by resource, listed
again where a trial has changed something, and packed side by side for the sweeps, the hottest loop of a search.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headgate.planning.jit import inline, jit
from headgate.planning.kernel.grouping import IS_ACTIVE, NOTHING, WHOLE, activate, pull, regroup
from headgate.planning.kernel.seats import IS_STALE
from headgate.planning.net import (
    ACTIVES,
    BOUND,
    DOUBTS,
    LIMIT,
    PASSING,
    START,
    TOLERANCE,
    Net,
)


@inline
def asked_of(net: Net, resource: int) -> float:
    """Bytes per second that would go through a resource if nothing were dropped."""
    n, load = net.place.shape[0], 0.0
    if resource < n:
        return float(net.place[resource].forwarded)
    if resource < 2 * n:
        for at in range(net.place[resource - n].first, net.place[resource - n].last):
            if net.node[net.site_nodes[at]].parent >= 0:
                load += net.seat[at].size
        return load
    ends = net.link_ends[resource - 2 * n]
    for side in range(2):
        for at in range(net.place[ends[side]].first, net.place[ends[side]].last):
            parent = net.node[net.site_nodes[at]].parent
            if parent >= 0 and net.node[parent].site == ends[1 - side]:
                load += net.seat[at].size
    return load


@jit
def list_entries(net: Net, resource: int) -> None:
    """List what loads an upload or download: so much from sources, which never changes in a sweep, and by group."""
    n, fixed, groups, loads = net.place.shape[0], 0.0, net.entry_group, net.entry_load
    record, up = net.resource[resource], resource < n
    place = net.place[resource if up else resource - n]
    to = place.first if up else place.first + net.node.shape[0]
    record.first = to
    for at in range(place.first, place.last):
        seat = net.seat[at]
        load, group = (seat.out, seat.group) if up else (seat.size, seat.above)
        if group == WHOLE:
            fixed += load
        elif group != NOTHING and load > 0.0:
            known = record.first
            while known < to and groups[known] != group:
                known += 1
            if known == to:
                groups[to], loads[to] = group, 0.0
                net.group[group].inner |= record.state & IS_ACTIVE
                to += 1
            loads[known] += load
    record.fixed, record.last = fixed, to
    record.state &= ~IS_STALE


@inline
def load_of(record: Any, groups: Any, loads: Any, kept: Any) -> float:
    """Bytes per second that go through an upload or download by what groups get now. A hot path, see `pull`."""
    load = record.fixed
    for at in range(np.uint64(record.first), np.uint64(record.last)):
        load += loads[at] * kept[np.uint32(groups[at])]
    return float(load)


@jit
def carried(net: Net, ends: Any) -> float:
    """Bytes per second that are sent through a link, in both directions."""
    load = 0.0
    for side in range(2):
        for at in range(net.place[ends[side]].first, net.place[ends[side]].last):
            parent = net.node[net.site_nodes[at]].parent
            if parent >= 0 and net.node[parent].site == ends[1 - side]:
                load += net.seat[at].size * net.kept[net.seat[at].above]
    return load


@jit
def overloaded(net: Net, resources: Any, count: int) -> bool:
    """Let those resources that get more than they can pass be active, and regroup; whether there was one."""
    found, simple = False, 2 * net.place.shape[0]
    groups, loads, kept = net.entry_group, net.entry_load, net.kept
    for at in range(count):
        resource = resources[at]
        record = net.resource[resource]
        if record.state & IS_ACTIVE:
            continue
        if resource >= simple:
            load = carried(net, net.link_ends[resource - simple])
        else:
            if record.state & IS_STALE:
                list_entries(net, resource)
            load = load_of(record, groups, loads, kept)
        if load > record.capacity * (1.0 + 1e-12):
            activate(net, resource)
            found = True
    if found:
        regroup(net)
    return found


@jit
def settle_groups(net: Net, limit: int) -> bool:
    """Sweep until nothing moves and no doubtful resource is overloaded; False when the limit is over."""
    while True:
        if net.counter[0].active == 0 and net.counter[0].doubtful == 0:
            return True
        pack(net)
        done = sweep(
            net.work[ACTIVES],
            net.plane[START],
            net.real[BOUND],
            net.real[LIMIT],
            net.packed_group,
            net.packed_load,
            net.path,
            net.kept,
            net.real[PASSING],
            net.counter[0].active,
            net.rule[TOLERANCE],
            limit,
        )
        net.counter[0].sweeps += done
        if done >= limit:
            return False
        if refreshed(net) and not overloaded(net, net.work[DOUBTS], net.counter[0].doubtful):
            return True


@jit
def pack(net: Net) -> None:
    """Put what loads the active resources side by side, in the order of the sweeps."""
    start, to, simple = net.plane[START], 0, 2 * net.place.shape[0]
    for at in range(net.counter[0].active):
        resource = net.work[ACTIVES, at]
        record = net.resource[resource]
        start[at], net.real[LIMIT, at] = to, record.capacity
        if resource >= simple:
            to = pack_link(net, net.link_ends[resource - simple], at, to)
            continue
        if record.state & IS_STALE:
            list_entries(net, resource)
        net.real[BOUND, at] = record.fixed
        for entry in range(record.first, record.last):
            net.packed_group[to], net.packed_load[to] = net.entry_group[entry], net.entry_load[entry]
            to += 1
    start[net.counter[0].active] = to


@jit
def pack_link(net: Net, ends: Any, number: int, to: int) -> int:
    """Pack what loads a link, in both directions."""
    net.real[BOUND, number] = 0.0
    for side in range(2):
        for at in range(net.place[ends[side]].first, net.place[ends[side]].last):
            parent, seat = net.node[net.site_nodes[at]].parent, net.seat[at]
            if parent >= 0 and net.node[parent].site == ends[1 - side]:
                net.packed_group[to], net.packed_load[to] = seat.above, seat.size
                net.group[seat.above].inner = 1
                to += 1
    return to


@jit
def sweep(
    active: Any,
    start: Any,
    fixed: Any,
    limits: Any,
    groups: Any,
    loads: Any,
    path: Any,
    kept: Any,
    passing: Any,
    count: int,
    tolerance: float,
    limit: int,
) -> int:
    """Sweep the active resources until none moves by more than the tolerance; how many sweeps that took, or the limit.

    After thirty sweeps a resource goes only part of the way: sites that feed each other may swing.
    """
    for turn in range(1, limit):
        moving, at, part = 0, start[0], 1.0 if turn <= 30 else 0.7 if turn <= 60 else 0.5 if turn <= 300 else 0.25
        for number in range(count):
            load, end = fixed[number], start[number + 1]
            while at < end:
                load += loads[at] * pull(path, kept, passing, groups[at])
                at += 1
            resource, capacity = active[number], limits[number]
            step = (1.0 if load <= capacity * (1.0 + 1e-12) else capacity / load) - passing[resource]
            if abs(step) > tolerance:
                passing[resource] += part * step
                moving += 1
        if moving == 0:
            return turn
    return limit


@jit
def refreshed(net: Net) -> bool:
    """Bring all groups up to date, from the top down as far as they are in order; whether nothing changed much.

    A change may have been on its way down to a resource when the last sweep had passed that.
    """
    path, kept, passing, tolerance = net.path, net.kept, net.real[PASSING], net.rule[TOLERANCE]
    calm = True
    for group in range(2, net.counter[0].groups):
        before = kept[group]
        changed = abs(pull(path, kept, passing, group) - before) > tolerance
        calm &= not (changed and net.group[group].inner)
    return calm
