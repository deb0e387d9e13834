"""The strict order of aims: a later one counts only where all earlier ones are equal."""

from __future__ import annotations

from typing import Any

import numpy as np

from headgate.planning.jit import jit
from headgate.planning.net import BANDWIDTH, F8, GEOMETRIC, I8, LOADS, SCORE, SQUARES, ZEROS, Net

# What can stand in an order.
QUALITY, WIDTH, EVENNESS = range(3)
EQUAL = 1e-9  # parts closer than this are equal


def standing(net: Net, order: I8) -> F8:
    """Where the graph stands in each aim of the order, two places per aim, all to be made large."""
    sites, values = len(net.place), np.zeros(2 * len(order))
    for at, aim in enumerate(order):
        if aim == QUALITY:
            values[2 * at] = -net.total[ZEROS] if net.counter[0]["goal"] == GEOMETRIC else 0.0
            values[2 * at + 1] = net.total[SCORE]
        elif aim == WIDTH:
            values[2 * at] = -net.total[BANDWIDTH]
        else:
            values[2 * at] = (net.total[LOADS] / sites) ** 2 - net.total[SQUARES] / sites
    return values


@jit
def stand(net: Net, order: Any, values: Any) -> None:
    """`standing` in compiled form, into an array."""
    sites = net.place.shape[0]
    for at in range(order.shape[0]):
        values[2 * at], values[2 * at + 1] = 0.0, 0.0
        if order[at] == QUALITY:
            if net.counter[0].goal == GEOMETRIC:
                values[2 * at] = -net.total[ZEROS]
            values[2 * at + 1] = net.total[SCORE]
        elif order[at] == WIDTH:
            values[2 * at] = -net.total[BANDWIDTH]
        else:
            values[2 * at] = (net.total[LOADS] / sites) ** 2 - net.total[SQUARES] / sites


@jit
def compare(values: Any, now: Any) -> int:
    """1 when the first place that differs by more than rounding is higher, -1 when it is lower, 0 without one."""
    for at in range(values.shape[0]):
        difference = values[at] - now[at]
        if abs(difference) > EQUAL * max(1.0, abs(now[at])):
            return 1 if difference > 0.0 else -1
    return 0
