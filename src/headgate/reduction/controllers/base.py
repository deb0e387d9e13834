"""What a controller decides: from which level on a pack starts, and how much it should free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Pressure:
    """A queue at the moment of a packing request: `arrived` and `left` count rows since the last pack."""

    now: float
    rows: int
    arrived: int
    left: int
    levels: int


class Controller(Protocol):
    """The choice of level for one queue. Levels are counted from 1; the one after the last drops the oldest rows."""

    def start(self, pressure: Pressure) -> int:
        """The level that is applied at least."""

    def want(self, pressure: Pressure) -> float:
        """The fraction of the queue that the pack should free; levels are climbed until it does or none is left.

        A level that drops as many rows as needed frees the policy's headroom and no more.
        """

    def enough(self, pressure: Pressure) -> int:
        """The level from which on a pack that brings the queue under its limit is enough, whatever it was to free."""

    def packed(self, now: float, level: int, freed: float) -> None:
        """A pack took place at that level and freed that fraction of the queue."""
