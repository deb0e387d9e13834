"""Cost changes of several transformations put together at the root (XPORT, section 4.2.2, as ERRATA corrects it).

Benefits of holistic functions (variance, product, percentiles) do not add. A proposal therefore says which costs go
and which come; where the changed subtrees are apart, the root exchanges them in its own picture and aggregates again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headgate.tuning.aggregate import system_cost
from headgate.tuning.overlay import Floats, Ints

CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class TreeChange:
    """Costs that a transformation takes away (negative weights) and brings (positive), without those it leaves."""

    costs: Floats
    weights: Ints

    def __len__(self) -> int:
        return len(self.costs)


def change_of(before: tuple[Floats, Ints], after: tuple[Floats, Ints]) -> TreeChange:
    """The difference of two multisets of costs; sites without a cost (NaN) are in neither.

    >>> change = change_of((np.array([1.0, 2.0]), np.array([1, 1])), (np.array([1.0, 5.0]), np.array([1, 1])))
    >>> change.costs.tolist(), change.weights.tolist()
    ([2.0, 5.0], [-1, 1])
    """
    costs = np.concatenate([before[0], after[0]])
    weights = np.concatenate([-before[1], after[1]])
    known = ~np.isnan(costs)
    values, place = np.unique(costs[known], return_inverse=True)
    net = np.bincount(place, weights[known], minlength=len(values)).astype(np.int64)
    return TreeChange(values[net != 0], net[net != 0])


def superposed(function: str, total: tuple[Floats, Ints], changes: Iterable[TreeChange]) -> float | None:
    """The system cost after changes of disjoint subtrees; None when the root's picture does not hold what they take.

    A cost that goes is matched with the nearest one at the root: both sides add up the same path in another order, so
    they differ by rounding only. Anything further apart means that statistics are out of date.
    """
    found = list(changes)
    known = ~np.isnan(total[0]) & (total[1] > 0)
    costs = np.concatenate([total[0][known], *(change.costs[change.weights > 0] for change in found)])
    weights = np.concatenate([total[1][known], *(change.weights[change.weights > 0] for change in found)])
    order = np.argsort(costs, kind="stable")
    costs, weights = costs[order], weights[order].copy()
    for change in found:
        gone = change.weights < 0
        for cost, weight in zip(change.costs[gone].tolist(), (-change.weights[gone]).tolist(), strict=True):
            if not _take(costs, weights, cost, weight):
                return None
    return system_cost(function, costs, weights)


def _take(costs: Floats, weights: Ints, cost: float, weight: int) -> bool:
    """Take `weight` away at the nearest costs that still have some."""
    reach = CLOSE * max(1.0, abs(cost))
    first, last = (int(place) for place in np.searchsorted(costs, (cost - reach, cost + reach), ("left")))
    near: Sequence[int] = sorted(range(first, min(last + 1, len(costs))), key=lambda place: abs(costs[place] - cost))
    for place in near:
        if abs(costs[place] - cost) > reach:
            break
        taken = min(weight, int(weights[place]))
        weights[place] -= taken
        weight -= taken
        if weight == 0:
            return True
    return False
