"""The second level: one number from the costs of the sites, each counted as often as its weight says.

A site without a cost (NaN: the root on a path of links, a leaf's minimum over no children) is left out. The variance
divides by the number counted less one, as in the paper; a percentile is the smallest cost that at least that share
does not exceed.
"""

from __future__ import annotations

import math

import numpy as np

from headgate.tuning.overlay import Floats, Ints


def system_cost(function: str, costs: Floats, weights: Ints | Floats) -> float:
    """Aggregate costs; of nothing, sum is 0, product 1, and the others are NaN.

    >>> system_cost("p50", np.array([3.0, 1.0, 2.0]), np.array([1, 1, 1]))
    2.0
    """
    counted = (weights > 0) & ~np.isnan(costs)
    costs, weights = costs[counted], weights[counted].astype(np.float64)
    if function == "sum":
        return float(costs @ weights)
    if function == "product":
        return float(np.prod(costs**weights))
    if not len(costs):
        return math.nan
    if function == "min":
        return float(costs.min())
    if function == "max":
        return float(costs.max())
    total = float(weights.sum())
    if function == "average":
        return float(costs @ weights) / total
    if function in ("variance", "std"):
        if total <= 1:
            return 0.0
        mean = float(costs @ weights) / total
        variance = float(((costs - mean) ** 2) @ weights) / (total - 1)
        return math.sqrt(variance) if function == "std" else variance
    order = np.argsort(costs, kind="stable")
    reached = np.cumsum(weights[order])
    rank = math.ceil(float(function[1:]) / 100 * total - 1e-9)
    return float(costs[order][int(np.searchsorted(reached, rank))])
