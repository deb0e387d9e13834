"""Choose the gentlest level that frees what the overload asks for.

The deficit is the part of the arriving rows that the link cannot take, measured since the last pack and smoothed. The
levels' drop fractions are measured on the queue itself, one after the other, because levels are cumulative: the first
level that frees the deficit is the level.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.reduction.controllers.base import Pressure

_ALPHA = 0.3


@dataclass(slots=True)
class Deficit:
    """`overload` is the smoothed fraction of arrivals that did not leave."""

    headroom: float = 0.1
    overload: float | None = None

    def start(self, pressure: Pressure) -> int:
        """Always try the gentlest level first."""
        if pressure.arrived > 0:
            observed = max(0.0, 1.0 - pressure.left / pressure.arrived)
            before = observed if self.overload is None else self.overload
            self.overload = (1 - _ALPHA) * before + _ALPHA * observed
        return 1

    def want(self, pressure: Pressure) -> float:
        """The overload, at least the headroom and at most half of the queue: a burst must not empty what it filled."""
        del pressure
        return max(self.headroom, min(0.5, self.overload or 0.0))

    def enough(self, pressure: Pressure) -> int:
        """None: a level that frees too little is left."""
        return pressure.levels + 1

    def packed(self, now: float, level: int, freed: float) -> None:
        """Nothing to remember: the next choice is measured afresh."""
