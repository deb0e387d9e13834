"""A small mergeable histogram of delays: log-spaced bins, so that quantiles are right to about 6 % at any scale."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from headgate.wire.record import Count

_BINS_PER_DOUBLING = 8
_FLOOR_MS = 0.125


def upper_ms(place: int) -> float:
    """Where a bin ends.

    >>> h = Histogram(); h.add(100); [place] = h.bins; upper_ms(place - 1) <= 100 < upper_ms(place)
    True
    """
    return _FLOOR_MS * 2 ** (place / _BINS_PER_DOUBLING)


@dataclass(slots=True)
class Histogram:
    """Counts of delays in milliseconds by bin, and their exact sum.

    >>> h = Histogram(); h.add(100, 99); h.add(5000, 1); h.count, h.mean(), round(h.quantile(0.5))
    (100, 149.0, 103)
    """

    count: Count = 0
    total_ms: float = 0.0
    bins: dict[int, Count] = field(default_factory=dict)

    def add(self, delay_ms: float, weight: int = 1) -> None:
        """Count `weight` rows of one delay; a delay below zero is a clock's fault and counts as zero."""
        if weight <= 0:
            return
        delay_ms = max(delay_ms, 0.0)
        place = 0 if delay_ms < _FLOOR_MS else 1 + int(_BINS_PER_DOUBLING * math.log2(delay_ms / _FLOOR_MS))
        self.bins[place] = self.bins.get(place, 0) + weight
        self.count += weight
        self.total_ms += delay_ms * weight

    def mean(self) -> float | None:
        """The exact mean, None when nothing was counted."""
        return self.total_ms / self.count if self.count else None

    def quantile(self, fraction: float) -> float | None:
        """The middle of the bin in which the quantile lies, None when nothing was counted."""
        if not self.count:
            return None
        seen, wanted = 0, fraction * self.count
        for place in sorted(self.bins):
            seen += self.bins[place]
            if seen >= wanted:
                break
        return 0.0 if place == 0 else _FLOOR_MS * 2 ** ((place - 0.5) / _BINS_PER_DOUBLING)
