"""Climbing in lexicographic order: a later aim counts only where all earlier ones are equal."""

from __future__ import annotations

from typing import Any

from headgate.planning.jit import entry, jit
from headgate.planning.kernel.anneal import BETTER, TAKEN, TRIALS, propose
from headgate.planning.kernel.flow import settle
from headgate.planning.kernel.tree import begin, rollback
from headgate.planning.net import BANDWIDTH, GEOMETRIC, GOAL, LOADS, SCORE, SQUARES, ZEROS, Net

# What can stand in an order.
QUALITY, WIDTH, EVENNESS = range(3)
EQUAL = 1e-9  # parts closer than this are equal


@jit
def stand(net: Net, order: Any, values: Any) -> None:
    """Where the graph stands in each aim of the order, two places per aim, all to be made large."""
    sites = net.place.shape[0]
    for at in range(order.shape[0]):
        values[2 * at], values[2 * at + 1] = 0.0, 0.0
        if order[at] == QUALITY:
            if net.counter[GOAL] == GEOMETRIC:
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


@entry
def standing(net: Net, order: Any, values: Any) -> None:
    """`stand` for Python."""
    stand(net, order, values)


@entry
def climb(net: Net, state: Any, nodes: Any, steps: int, order: Any, now: Any, seen: Any) -> None:
    """Random moves that are kept unless they make the graph worse in the order; `now` follows what was reached.

    Equal graphs are kept, to walk along plateaus, but compared with where the climb stood, so nothing is lost by steps
    too small to count.
    """
    values = now.copy()
    for _ in range(steps):
        begin(net)
        found = propose(net, state, nodes)
        settle(net)
        stand(net, order, values)
        verdict = compare(values, now) if found else -1
        seen[TRIALS] += 1
        if verdict < 0:
            rollback(net)
            continue
        seen[TAKEN] += 1
        if verdict > 0:
            seen[BETTER] += 1
            now[:] = values
