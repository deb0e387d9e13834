"""A number that was estimated, with the interval that holds the true one and where it came from."""

from __future__ import annotations

import math
from dataclasses import dataclass

_Z = 1.959964  # 95 % of a normal distribution


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value, the bounds of its 95 % confidence interval, and what it was estimated from."""

    value: float
    low: float
    high: float
    source: str

    @property
    def error(self) -> float:
        """The larger distance from the value to a bound."""
        return max(self.value - self.low, self.high - self.value)

    def times(self, other: Estimate) -> Estimate:
        """The product of two estimates of positive numbers; its bounds hold whenever both factors' do."""
        return Estimate(
            self.value * other.value, self.low * other.low, self.high * other.high, f"{self.source} x {other.source}"
        )


def proportion(hits: int, sample: int, source: str, *, whole: bool = False) -> Estimate:
    """A fraction from a sample, with Wilson's interval; from the whole population there is no error.

    >>> proportion(5, 100, "reservoir").value
    0.05
    """
    if sample == 0:
        return Estimate(0.5, 0.0, 1.0, "nothing seen yet")
    share = hits / sample
    if whole:
        return Estimate(share, share, share, source)
    spread = _Z * _Z / sample
    middle = (share + spread / 2) / (1 + spread)
    half = _Z / (1 + spread) * math.sqrt(share * (1 - share) / sample + spread / (4 * sample))
    return Estimate(share, max(0.0, middle - half), min(1.0, middle + half), source)
