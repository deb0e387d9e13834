"""Trials by groups as Python calls them: for measurements and tests; searches make theirs in their own kernels."""

from __future__ import annotations

from typing import Any

from headgate.planning.jit import entry
from headgate.planning.kernel.grouped import give_back, start, tidy, undo, weigh
from headgate.planning.kernel.grouping import make
from headgate.planning.kernel.tree import move
from headgate.planning.net import Net


@entry
def try_by_groups(net: Net, nodes: Any, parents: Any, keep: bool, times: int) -> None:
    """One trial so many times: re-parent nodes in order and weigh that; undone, but for the last if it is to be kept.

    The graph must have been evaluated. Groups are made where there are none; until `end_trials` or a full evaluation
    only totals, groups and structure are right, not the drops and scores of nodes.
    """
    if net.counter[0].grouped:
        tidy(net)
    else:
        make(net)
    for turn in range(times):
        start(net)
        for at in range(nodes.shape[0]):
            move(net, nodes[at], parents[at])
        weigh(net)
        if not keep or turn + 1 < times:
            undo(net)


@entry
def end_trials(net: Net) -> None:
    """Write to the nodes what their groups get."""
    if net.counter[0].grouped:
        give_back(net)
