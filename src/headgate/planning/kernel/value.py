"""QoS functions in compiled form, as `Quality.value` tells them, and what a node's wants contribute to the score."""

from __future__ import annotations

import math
from typing import Any

from headgate.planning.jit import entry, jit
from headgate.planning.net import ARITHMETIC, CONTRACTS, GEOMETRIC, LOG_ZERO, SCORE, ZEROS, Net


@jit
def locate(data: Any, start: Any, count: Any, at: Any) -> Any:
    """The point at or before a place among rising points, and how far the place is towards the next."""
    if at <= data[start]:
        return 0, 0.0
    if at >= data[start + count - 1]:
        return count - 1, 0.0
    index = 0
    while data[start + index + 1] < at:
        index += 1
    return index, (at - data[start + index]) / (data[start + index + 1] - data[start + index])


@jit
def want_quality(net: Net, want: int, drop: float, delay_s: float) -> float:
    """The quality of one want, as `Quality.value` tells it."""
    data, at, kind = net.want_data, net.want[want].at, net.want[want].kind
    if kind == 0:
        if drop <= data[at]:
            return 1.0 if delay_s <= data[at + 1] else 0.5
        return float(0.5 * data[at] / drop)
    drops, delays = int(data[at]), int(data[at + 1])
    first_drop, first_delay = at + 2, at + 2 + drops
    values = first_delay + delays
    if kind == 1:
        i, j = 0, 0
        while i < drops and data[first_drop + i] < drop:
            i += 1
        while j < delays and data[first_delay + j] < delay_s:
            j += 1
        return float(data[values + i * delays + j]) if i < drops and j < delays else 0.0
    i, x = locate(data, first_drop, drops, drop)
    j, y = locate(data, first_delay, delays, delay_s)
    i2, j2 = min(i + 1, drops - 1), min(j + 1, delays - 1)
    low = (1 - y) * data[values + i * delays + j] + y * data[values + i * delays + j2]
    high = (1 - y) * data[values + i2 * delays + j] + y * data[values + i2 * delays + j2]
    return float((1 - x) * low + x * high)


@jit
def drop_of(net: Net, node: int) -> float:
    """The fraction of a node's rows that do not arrive; what is only rounding counts as none."""
    drop = 1.0 - net.node[node].kept
    return float(drop) if drop > 1e-9 else 0.0


@jit
def worth_of(net: Net, want: int, quality: float) -> float:
    """What a want contributes to the score by its quality."""
    weight, goal = net.want[want].weight, net.counter[0].goal
    if goal == GEOMETRIC:
        return float(weight * math.log(quality)) if quality > 0.0 else 0.0
    if goal == ARITHMETIC:
        return float(weight * quality)
    if goal == CONTRACTS:
        return float(weight * ((1.0 if quality >= net.want[want].floor else 0.0) + 1e-3 * quality))
    return float(-weight / (quality + 0.02) ** 2)


@jit
def revalue(net: Net, node: int) -> None:
    """Bring a node's score and zeros up to date with its drop and delay, and the totals with them."""
    score, zeros = 0.0, 0.0
    drop = drop_of(net, node)
    for want in range(net.node[node].want_first, net.node[node].want_last):
        quality = want_quality(net, want, drop, net.node[node].lag)
        score += worth_of(net, want, quality)
        if quality <= 0.0:
            zeros += net.want[want].weight
    net.total[SCORE] += score - net.node[node].score
    net.total[ZEROS] += zeros - net.node[node].zeros
    net.node[node].score = score
    net.node[node].zeros = zeros


@jit
def scalar(net: Net) -> float:
    """The totals as one number to be made large, zero qualities counting far below any other."""
    if net.counter[0].goal == GEOMETRIC:
        return float(net.total[SCORE] + LOG_ZERO * net.total[ZEROS])
    return float(net.total[SCORE])


@entry
def quality_all(net: Net, found: Any) -> None:
    """Drop, delay and quality of every want, into one row each."""
    for node in range(net.node.shape[0]):
        drop = drop_of(net, node)
        for want in range(net.node[node].want_first, net.node[node].want_last):
            found[want, 0] = drop
            found[want, 1] = net.node[node].lag
            found[want, 2] = want_quality(net, want, drop, net.node[node].lag)
