"""Means with 95 % intervals over seeds: Student's t, the bootstrap, and paired differences. Deterministic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """A mean (or another statistic), the ends of its interval, and how many values it rests on."""

    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.3g} [{self.low:.3g}, {self.high:.3g}]"


def mean_interval(values: ArrayLike, level: float = 0.95) -> ConfidenceInterval:
    """The mean of independent values with Student's t interval; NaN ends where there are fewer than two.

    >>> print(mean_interval([1.0, 2.0, 3.0, 4.0, 5.0]))
    3 [1.04, 4.96]
    """
    found = np.asarray(values, dtype=np.float64)
    count = found.size
    mean = float(found.mean()) if count else math.nan
    if count < 2:
        return ConfidenceInterval(mean, math.nan, math.nan, count)
    half = t_quantile(0.5 + level / 2.0, count - 1) * float(found.std(ddof=1)) / math.sqrt(count)
    return ConfidenceInterval(mean, mean - half, mean + half, count)


def paired_interval(ours: ArrayLike, other: ArrayLike, level: float = 0.95) -> ConfidenceInterval:
    """The mean difference of two arrays that belong together seed by seed, which noise between seeds does not blur."""
    return mean_interval(np.asarray(ours, dtype=np.float64) - np.asarray(other, dtype=np.float64), level)


def bootstrap_interval(
    values: ArrayLike,
    statistic: Callable[[NDArray[np.float64]], float] = lambda sample: float(np.mean(sample)),
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> ConfidenceInterval:
    """Any statistic with its percentile bootstrap interval, for what is far from normal: medians, ratios, maxima."""
    found = np.asarray(values, dtype=np.float64)
    if found.size < 2:
        only = statistic(found) if found.size else math.nan
        return ConfidenceInterval(only, math.nan, math.nan, found.size)
    draws = np.random.default_rng(seed).integers(0, found.size, (resamples, found.size))
    drawn = np.array([statistic(found[draw]) for draw in draws])
    low, high = np.quantile(drawn, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return ConfidenceInterval(statistic(found), float(low), float(high), found.size)


def band(results: pd.DataFrame, by: str | Sequence[str], value: str, level: float = 0.95) -> pd.DataFrame:
    """Columns `mean`, `low`, `high` and `count` of a value over the rows of each group, in the groups' order."""
    import pandas as pd

    names = [by] if isinstance(by, str) else list(by)
    rows = []
    for key, group in results.groupby(names, sort=True):
        found = mean_interval(group[value].to_numpy(), level)
        rows.append((*key, found.mean, found.low, found.high, found.count))
    return pd.DataFrame(rows, columns=[*names, "mean", "low", "high", "count"])


def t_quantile(probability: float, freedom: int) -> float:
    """A quantile of Student's t: exact for one and two degrees of freedom, else Fisher's expansion (error below 0.5 %).

    >>> [round(t_quantile(0.975, freedom), 2) for freedom in (1, 2, 4, 9, 19)]
    [12.71, 4.3, 2.78, 2.26, 2.09]
    """
    if freedom == 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        return (2.0 * probability - 1.0) * math.sqrt(2.0 / (4.0 * probability * (1.0 - probability)))
    z, v = NormalDist().inv_cdf(probability), float(freedom)
    terms = (
        z,
        (z**3 + z) / 4.0,
        (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0,
        (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0,
        (79.0 * z**9 + 776.0 * z**7 + 1482.0 * z**5 - 1920.0 * z**3 - 945.0 * z) / 92160.0,
    )
    return sum(term / v**power for power, term in enumerate(terms))
