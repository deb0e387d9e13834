"""How long rows of an output have waited of late, and how many of the fresh ones are to be given up.

This is an output's side of shedding evenly (`headgate.relay.even_shedding`): the controllers there say which part of
what comes is kept.
"""

from __future__ import annotations

import math


class Aging:
    """One output's measure; without `shed_after_s` nothing is shed by time."""

    def __init__(self, shed_after_s: float | None) -> None:
        self._after_s = shed_after_s or 0.0
        self._offered_s = self._looked_s = -math.inf
        self._longest_s = (0.0, 0.0)
        self._fresh = 0
        self._owed = 0.0

    def offered(self, rows: int, now: float) -> float:
        """Rows came; returns the time since those before them, which is when they were made."""
        span_s = min(now - self._offered_s, self._after_s)
        self._offered_s = now
        self._fresh += rows
        return span_s

    def waited(self, oldest: float, now: float) -> float:
        """The longest wait of late, with rows that have waited since `oldest` now.

        An output that empties between two blocks has waited long only before its turn.
        """
        if now - self._looked_s > self._after_s / 2:
            self._looked_s, self._longest_s = now, (self._longest_s[1], 0.0)
        self._longest_s = (self._longest_s[0], max(self._longest_s[1], now - oldest))
        return max(self._longest_s)

    def keep(self, part: float) -> None:
        """Of what came since the last time, that part is kept: the rest is owed."""
        self._owed = self._owed + (1.0 - part) * self._fresh if part < 1.0 else 0.0
        self._fresh = 0

    def give_up(self, rows: int) -> float:
        """How many of so many rows that wait go now. What has been sent meanwhile cannot go: others go instead."""
        taken = min(self._owed, float(rows)) if self._owed >= 1.0 else 0.0
        self._owed -= taken
        return taken
