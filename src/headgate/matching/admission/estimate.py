"""Errors while running: estimated from a seeded sample of shed or reordered rows that is matched traditionally too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class ErrorEstimate:
    """An estimated number of errors and its 95 % confidence interval."""

    errors: float
    low: float
    high: float


def estimate_errors(sampled: Sequence[int], population: int) -> ErrorEstimate:
    """Errors among `population` rows from the errors of a random sample of them.

    The normal interval with the finite-population correction: a sample of everything is exact.

    >>> estimate_errors([2, 0, 4, 2], 4)
    ErrorEstimate(errors=8.0, low=8.0, high=8.0)
    """
    count = len(sampled)
    if count == 0:
        return ErrorEstimate(0.0, 0.0, math.inf if population else 0.0)
    values = np.asarray(sampled, np.float64)
    mean = float(values.mean())
    spread = float(values.std(ddof=1)) if count > 1 else mean
    rest = math.sqrt(max(0.0, 1 - count / population)) if population else 0.0
    margin = _NORMAL_95 * spread / math.sqrt(count) * rest * population
    total = mean * population
    return ErrorEstimate(total, max(0.0, total - margin), total + margin)
