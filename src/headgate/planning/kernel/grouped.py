"""Trials by groups: what a change is worth without touching the nodes that it reaches.

A trial is `start`, any number of moves, `weigh`, and `undo` if it is not wanted; `tidy` between trials makes groups
anew when too many nodes have become loose. Every node's drop is its group's and its score is told by its group's slots:
`give_back` writes both to the nodes again.
"""

from __future__ import annotations

from headgate.planning.jit import inline, jit
from headgate.planning.kernel.grouping import IS_ACTIVE, IS_DOUBTFUL, NOTHING, make, regroup, undivided
from headgate.planning.kernel.seats import IS_STALE, fill, loosen, note_group, note_seat, plain_value, rescore
from headgate.planning.kernel.sweeping import asked_of, overloaded, settle_groups
from headgate.planning.kernel.tree import begin, note_node, note_resource, rollback
from headgate.planning.kernel.value import revalue
from headgate.planning.kernel.waiting import nobody_waits, wait
from headgate.planning.net import (
    ACTIVES,
    DOUBTS,
    LOOSE_NODES,
    MASKS,
    NODES,
    OUTS,
    PASSING,
    QUEUE,
    RECEIVER,
    RESOURCES,
    SCORE,
    SEATS,
    SENDER,
    SUSPECTS,
    TOLERANCE,
    TOP,
    WIRE,
    ZEROS,
    Net,
)

PART = 1e-11  # of its drop: a smaller difference is none
MOST = 4_000  # sweeps before a cold start, and after it


@jit
def start(net: Net) -> None:
    """Start a trial with an empty journal."""
    begin(net)
    net.counter[0].noted_seats, net.counter[0].noted_groups = 0, 0
    net.counter[0].groups_before, net.counter[0].loose_before = net.counter[0].groups, net.counter[0].loose
    net.counter[0].active_before, net.counter[0].doubtful_before = net.counter[0].active, net.counter[0].doubtful


@jit
def tidy(net: Net) -> None:
    """Make groups anew when there are many loose nodes, or many more groups or active resources than needed."""
    few = 64 + net.node.shape[0] // 256
    if (
        net.counter[0].loose > few
        or net.counter[0].groups > net.counter[0].groups_made + 2 * few
        or net.counter[0].active > net.counter[0].active_made + few
    ):
        make(net)


@jit
def weigh(net: Net) -> None:
    """Finish a trial: links get their groups, drops settle, totals follow. From a cold start where they do not."""
    take_over(net)
    for turn in range(2):
        if settle_groups(net, MOST):
            break
        net.counter[0].fallbacks += 1 - turn
        for at in range(net.counter[0].active):
            net.real[PASSING, net.work[ACTIVES, at]] = 1.0
    write(net)
    net.counter[0].trials += 1
    net.counter[0].touched += net.counter[0].noted_nodes


@jit
def follow_sizes(net: Net) -> None:
    """Bring seats up to date with the sizes of links that moves have changed, or that were changed back."""
    for at in range(net.counter[0].noted_outs):
        record = net.node[net.work[OUTS, at]]
        net.seat[record.seat].out = record.out
        net.resource[record.site].state |= IS_STALE
    for at in range(net.counter[0].noted_masks):
        record = net.node[net.work[MASKS, at]]
        net.seat[record.seat].size = record.size
        net.resource[net.place.shape[0] + record.site].state |= IS_STALE


@jit
def take_over(net: Net) -> None:
    """Bring seats up to date with what the moves have changed, and find the resources that may shed from now on."""
    follow_sizes(net)
    nobody_waits(net)
    for at in range(net.counter[0].noted_nodes):  # those whose delay has changed
        loosen(net, net.work[NODES, at])
    for at in range(net.counter[0].moved):
        arrive(net, net.moved[at, 0])
    suspects, count = net.work[SUSPECTS], 0
    while net.counter[0].head != net.counter[0].tail:
        resource = net.work[QUEUE, net.counter[0].head]
        net.counter[0].head = (net.counter[0].head + 1) % net.work.shape[1]
        record = net.resource[resource]
        record.queued = 0
        if record.state & IS_ACTIVE or asked_of(net, resource) <= record.capacity:
            continue
        suspects[count] = resource
        count += 1
        if not record.state & IS_DOUBTFUL:
            record.state |= IS_DOUBTFUL
            net.work[DOUBTS, net.counter[0].doubtful] = resource
            net.counter[0].doubtful += 1
    if net.counter[0].high >= 0:
        regroup(net)
    if count > 0:
        overloaded(net, suspects, count)


@inline
def arrive(net: Net, node: int) -> None:
    """Let a moved node wait for its group, unless it is in its new parent's already and nothing divides them."""
    record = net.node[node]
    seat = net.seat[record.seat]
    above = net.seat[net.node[record.parent].seat].group if record.parent >= 0 else NOTHING
    if record.parent >= 0 and seat.group == above and undivided(net, node):
        note_seat(net, node)
        seat.above = above
    else:
        wait(net, node)


@jit
def write(net: Net) -> None:
    """Bring permeabilities, groups and loose nodes to what the sweeps have found, journalled where it differs."""
    for at in range(net.counter[0].active):
        resource = net.work[ACTIVES, at]
        if net.real[PASSING, resource] != net.resource[resource].permeable:
            note_resource(net, resource)
            net.resource[resource].permeable = net.real[PASSING, resource]
    tolerance, plain, gain = net.rule[TOLERANCE], net.counter[0].plain, 0.0
    for group in range(2, net.counter[0].groups):
        kept, record = net.kept[group], net.group[group]
        if abs(kept - record.kept) <= tolerance + PART * (1.0 - kept):
            net.kept[group] = record.kept
            continue
        note_group(net, group)
        record.kept = kept
        if plain:
            score = plain_value(net.slot, record.first, record.last, kept)
            gain += score - record.score
            record.score = score
        else:
            rescore(net, group)
    net.total[SCORE] += gain
    for at in range(net.counter[0].loose):
        node = net.work[LOOSE_NODES, at]
        record = net.node[node]
        kept = net.kept[net.seat[record.seat].group]
        if kept != record.kept or record.stamp == net.counter[0].tick:
            note_node(net, node)
            record.kept = kept
            revalue(net, node)


@jit
def undo(net: Net) -> None:
    """Undo the trial: the graph, its groups and everything derived are as before `start`."""
    rollback(net)
    for at in range(net.counter[0].noted_resources):
        resource = net.work[RESOURCES, at]
        net.real[PASSING, resource] = net.resource[resource].permeable
    follow_sizes(net)
    for at in range(net.counter[0].noted_seats):
        record = net.node[net.work[SEATS, at]]
        seat = net.seat[record.seat]
        seat.group, seat.above = seat.old_group, seat.old_above
        net.resource[record.site].state |= IS_STALE
        net.resource[net.place.shape[0] + record.site].state |= IS_STALE
    for at in range(net.counter[0].noted_groups):
        group = net.noted[at]
        record = net.group[group]
        net.path[TOP, group], net.path[SENDER, group] = record.old_upper, record.old_up
        net.path[RECEIVER, group], net.path[WIRE, group] = record.old_down, record.old_link
        record.kept, record.score, record.zeros = record.old_kept, record.old_score, record.old_zeros
        net.kept[group] = record.kept
    for at in range(net.counter[0].loose_before, net.counter[0].loose):
        node = net.work[LOOSE_NODES, at]
        net.seat[net.node[node].seat].loose = 0
        fill(net, node)
    for at in range(net.counter[0].active_before, net.counter[0].active):
        net.resource[net.work[ACTIVES, at]].state &= ~IS_ACTIVE
    for at in range(net.counter[0].doubtful_before, net.counter[0].doubtful):
        net.resource[net.work[DOUBTS, at]].state &= ~IS_DOUBTFUL
    net.counter[0].groups, net.counter[0].loose = net.counter[0].groups_before, net.counter[0].loose_before
    net.counter[0].active, net.counter[0].doubtful = net.counter[0].active_before, net.counter[0].doubtful_before


@jit
def give_back(net: Net) -> None:
    """Write to every node what its group gets, and value them all: the end of trials by groups."""
    net.counter[0].grouped = 0
    net.total[SCORE], net.total[ZEROS] = 0.0, 0.0
    for node in range(net.node.shape[0]):
        record = net.node[node]
        record.kept = net.kept[net.seat[record.seat].group]
        record.score, record.zeros = 0.0, 0.0
        revalue(net, node)
