"""Errors while running: estimated from a seeded sample of shed or reordered rows that is matched traditionally too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headgate.matching.lists import ClassLists, Offsets

_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class ErrorEstimate:
    """An estimated number of errors and its 95 % confidence interval."""

    errors: float
    low: float
    high: float

    @property
    def variance(self) -> float:
        """The variance of the estimate; estimates of separate batches add up, and so do their variances."""
        margin = (self.high - self.errors) / _NORMAL_95
        return margin * margin if math.isfinite(margin) else 0.0

    @classmethod
    def of(cls, errors: float, variance: float) -> ErrorEstimate:
        """An estimate from sums over batches.

        >>> ErrorEstimate.of(100.0, 0.0)
        ErrorEstimate(errors=100.0, low=100.0, high=100.0)
        """
        margin = _NORMAL_95 * math.sqrt(variance)
        return cls(errors, max(0.0, errors - margin), errors + margin)


def estimate_errors(sampled: Sequence[float], population: int) -> ErrorEstimate:
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


def estimate_crossed(errors: npt.NDArray[np.bool_], classes: int, rows: int) -> ErrorEstimate:
    """Errors among so many classes and rows from those of a sample of both: a line for each class sampled.

    The variances of drawing classes and of drawing rows are added, which is a little more than there is.

    >>> estimate_crossed(np.array([[True, False], [False, False]]), 2, 2)
    ErrorEstimate(errors=1.0, low=1.0, high=1.0)
    """
    if errors.size == 0:
        return ErrorEstimate(0.0, 0.0, 0.0)
    lines, columns = errors.shape
    by_class = estimate_errors((errors.sum(axis=1) * (rows / columns)).tolist(), classes)
    by_row = estimate_errors((errors.sum(axis=0) * (classes / lines)).tolist(), rows)
    return ErrorEstimate.of(by_class.errors, by_class.variance + by_row.variance)


def compare_lists(exact: ClassLists, given: ClassLists) -> tuple[Offsets, Offsets]:
    """For each row how many classes are missing from the lists that were given, and how many are wrongly in them.

    >>> missed, wrong = compare_lists(ClassLists.of([[1, 2], [3]]), ClassLists.of([[2, 4], [3]]))
    >>> missed.tolist(), wrong.tolist()
    ([1, 0], [1, 0])
    """
    right, ours = ((lists.row_of_id() << 32) | lists.ids.astype(np.int64) for lists in (exact, given))
    missed, wrong = np.setdiff1d(right, ours, assume_unique=True), np.setdiff1d(ours, right, assume_unique=True)
    return (
        np.bincount(missed >> 32, minlength=exact.rows).astype(np.int64),
        np.bincount(wrong >> 32, minlength=exact.rows).astype(np.int64),
    )
