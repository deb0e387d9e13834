"""What trials by groups keep of nodes and groups: journals, and scores by slots.

A group values all its wants at once: they lie side by side in slots, and for the template's qualities one logarithm is
enough for all of them. A node whose group or delay changes becomes loose: its slots are emptied, and it is valued by
itself until groups are made anew. Nodes that are not loose have no score of their own in the meantime.
"""

from __future__ import annotations

import math
from typing import Any

from headgate.planning.jit import inline, jit
from headgate.planning.kernel.tree import note_node
from headgate.planning.kernel.value import want_quality, worth_of
from headgate.planning.net import (
    LOOSE_NODES,
    RECEIVER,
    SCORE,
    SEATS,
    SENDER,
    TOP,
    WIRE,
    ZEROS,
    Net,
)

IS_STALE = 4  # a bit of a resource's state: what loads it has to be listed again


@inline
def note_seat(net: Net, node: int) -> None:
    """Journal a node's group and its parent's before their first change; what loads its site has to be listed again."""
    site = net.node[node].site
    net.resource[site].state |= IS_STALE
    net.resource[net.place.shape[0] + site].state |= IS_STALE
    seat = net.seat[net.node[node].seat]
    if seat.stamp != net.counter[0].tick:
        seat.stamp = net.counter[0].tick
        seat.old_group, seat.old_above = seat.group, seat.above
        net.work[SEATS, net.counter[0].noted_seats] = node
        net.counter[0].noted_seats += 1


@inline
def note_group(net: Net, group: int) -> None:
    """Journal a group before its first change; one that the trial has made goes with it."""
    record = net.group[group]
    if record.stamp != net.counter[0].tick and group < net.counter[0].groups_before:
        record.stamp = net.counter[0].tick
        record.old_upper, record.old_up = net.path[TOP, group], net.path[SENDER, group]
        record.old_down, record.old_link = net.path[RECEIVER, group], net.path[WIRE, group]
        record.old_kept, record.old_score, record.old_zeros = record.kept, record.score, record.zeros
        net.noted[net.counter[0].noted_groups] = group
        net.counter[0].noted_groups += 1


@jit
def fill(net: Net, node: int) -> None:
    """Give a node's slots what its wants ask for. At a drop above theirs they lose the logarithm of it by weight."""
    record = net.node[node]
    at = net.seat[record.seat].slot
    for want in range(record.want_first, record.want_last):
        slot, weight = net.slot[at], net.want[want].weight
        slot.want, slot.node, slot.weight = want, node, weight
        if net.counter[0].plain:
            place = net.want[want].at
            drop = net.want_data[place]
            slot.drop = drop
            slot.met = 0.0 if record.lag <= net.want_data[place + 1] else weight * math.log(0.5)
            slot.less = weight * math.log(0.5 * drop)
        at += 1


@inline
def empty(net: Net, node: int) -> None:
    """Take a node's wants out of its group's slots."""
    first = net.seat[net.node[node].seat].slot
    for at in range(first, first + net.node[node].want_last - net.node[node].want_first):
        slot = net.slot[at]
        slot.weight, slot.less, slot.met = 0.0, 0.0, 0.0


@inline
def plain_value(slots: Any, first: int, last: int, kept: float) -> float:
    """What slots of the template contribute to the score where a fraction is kept: one logarithm for all of them.

    A hot path: a whole net is not passed on to it, which would cost more than its work.
    """
    drop, score, weight = 1.0 - kept, 0.0, 0.0
    drop = drop if drop > 1e-9 else 0.0
    for at in range(first, last):
        slot = slots[at]
        if drop <= slot.drop:
            score += slot.met
        else:
            score += slot.less
            weight += slot.weight
    return score - weight * math.log(drop) if weight > 0.0 else score


@jit
def any_value(net: Net, first: int, last: int, kept: float) -> Any:
    """What slots of any wants contribute to score and zeros; a loose node's delay counts as it was."""
    drop, score, zeros = 1.0 - kept, 0.0, 0.0
    drop = drop if drop > 1e-9 else 0.0
    for at in range(first, last):
        slot = net.slot[at]
        if slot.weight != 0.0:
            record = net.node[slot.node]
            lag = record.old_lag if record.stamp == net.counter[0].tick else record.lag
            quality = want_quality(net, slot.want, drop, lag)
            score += worth_of(net, slot.want, quality)
            zeros += slot.weight if quality <= 0.0 else 0.0
    return score, zeros


@inline
def value(net: Net, first: int, last: int, kept: float) -> Any:
    """What slots contribute to score and zeros where a fraction is kept."""
    if net.counter[0].plain:
        return plain_value(net.slot, first, last, kept), 0.0
    return any_value(net, first, last, kept)


@jit
def rescore(net: Net, group: int) -> None:
    """Bring a group's score and zeros up to date with what it gets, and the totals with them."""
    record = net.group[group]
    score, zeros = value(net, record.first, record.last, record.kept)
    net.total[SCORE] += score - record.score
    net.total[ZEROS] += zeros - record.zeros
    record.score, record.zeros = score, zeros


@jit
def score_of(net: Net, node: int) -> float:
    """What a node contributes to the score, while trials go by groups."""
    record = net.node[node]
    seat = net.seat[record.seat]
    if seat.loose:
        return float(record.score)
    score, _ = value(net, seat.slot, seat.slot + record.want_last - record.want_first, net.group[seat.group].kept)
    return float(score)


@inline
def loosen(net: Net, node: int) -> None:
    """Let a node be valued by itself from now on. Before it gets another group: its slots are its group's."""
    record = net.node[node]
    seat = net.seat[record.seat]
    if seat.loose:
        return
    seat.loose = 1
    net.work[LOOSE_NODES, net.counter[0].loose] = node
    net.counter[0].loose += 1
    note_node(net, node)
    note_group(net, seat.group)
    group = net.group[seat.group]
    score, zeros = value(net, seat.slot, seat.slot + record.want_last - record.want_first, group.kept)
    group.score -= score
    group.zeros -= zeros
    net.total[SCORE] -= score
    net.total[ZEROS] -= zeros
    record.score, record.zeros = 0.0, 0.0
    empty(net, node)
