"""Weighted max-min fair shares of a capacity, strict between priorities."""

from __future__ import annotations

import numpy as np

from headgate.reduction.rows import Floats, Ints


def max_min(demand: Floats, weight: Floats, capacity: float) -> Floats:
    """What each gets: nobody more than asked, and nobody could get more without taking from one with less per weight.

    >>> max_min(np.array([1.0, 5.0, 9.0]), np.ones(3), 9.0).tolist()
    [1.0, 4.0, 4.0]
    """
    if demand.sum() <= capacity:
        return demand.copy()
    order = np.argsort(demand / weight)
    asked, heavy = demand[order], weight[order]
    left = capacity - np.concatenate([[0.0], np.cumsum(asked)[:-1]])
    level = left / np.cumsum(heavy[::-1])[::-1]
    share = np.empty(len(demand))
    full = asked <= level * heavy
    cut = int(np.argmin(full)) if not full.all() else len(full)
    share[order[:cut]] = asked[:cut]
    share[order[cut:]] = max(0.0, level[cut]) * heavy[cut:]
    return share


def by_priority(demand: Floats, weight: Floats, priority: Ints, capacity: float) -> Floats:
    """Max-min shares where a higher priority is served in full before a lower one gets anything."""
    share = np.zeros(len(demand))
    for level in np.unique(priority)[::-1]:
        members = priority == level
        share[members] = max_min(demand[members], weight[members], max(0.0, capacity))
        capacity -= float(share[members].sum())
    return share
