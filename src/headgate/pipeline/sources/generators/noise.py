"""Noise that is a pure function of a seed and a counter, so that any range of rows can be made again.

A counter is hashed with SplitMix64's finaliser; there is no state to carry from one row to the next.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_LANE = np.uint64(0xD6E8FEB86659FD93)


def bits(seed: int, lane: int, counter: ArrayLike) -> NDArray[np.uint64]:
    """64 well-mixed bits for each counter; each `lane` of a seed is an independent sequence."""
    with np.errstate(over="ignore"):
        key = _mix(np.atleast_1d(np.uint64(seed % 2**64) + _LANE * np.uint64(lane + 1)))
        return _mix(np.asarray(counter).astype(np.uint64) * _GOLDEN + key)


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return value ^ (value >> np.uint64(31))


def uniform(seed: int, lane: int, counter: ArrayLike) -> NDArray[np.float64]:
    """Uniform on [0, 1).

    >>> bool(0.49 < uniform(7, 0, np.arange(100_000)).mean() < 0.51)
    True
    """
    return (bits(seed, lane, counter) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(seed: int, lane: int, counter: ArrayLike) -> NDArray[np.float64]:
    """Standard normal, by Box and Muller from two lanes."""
    radius = np.sqrt(-2.0 * np.log1p(-uniform(seed, 2 * lane + 1_000, counter)))
    return radius * np.cos(2.0 * np.pi * uniform(seed, 2 * lane + 1_001, counter))


def choice(seed: int, lane: int, counter: ArrayLike, count: int) -> NDArray[np.int64]:
    """An index below `count` for each counter."""
    return (uniform(seed, lane, counter) * count).astype(np.int64)
