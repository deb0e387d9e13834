"""What a site's part of the tuner knows of its links: figures from home, and latencies that it has measured itself.

The latency of a link is half of the least of the last round trips of small letters to the other site, measured in the
same way for links that carry rows and for those that nobody uses yet. The least is what a queue or a busy host blurs
last. A figure is replaced only by one that clearly differs: two measurements of the same link never agree, and a tree
that follows every difference never rests.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar, Final

from headgate.protocol.tuning import TuningBrief

WINDOW: Final = 8
"""Measurements of a link of which the least counts: a link that has become slower is noticed after so many."""
_CLEARLY: Final = 0.2
_AT_LEAST_S: Final = 0.002


class LinkFigures:
    """Figures of the links from one site to every other."""

    METRIC: ClassVar[str] = "link_latency"
    PINGS: ClassVar[int] = 3

    def __init__(self) -> None:
        self._known: dict[str, list[float]] = {}
        self._measured: dict[int, deque[float]] = {}
        self._measured_at: dict[int, float] = {}
        self._every_s = 0.0
        self._fixed = True
        self._number = -1

    def begin(self, brief: TuningBrief) -> None:
        """Start with what home knows; nothing is measured where the figures are given."""
        self._known = {name: list(values) for name, values in brief.links.items()}
        self._fixed = brief.fixed
        self._measured, self._measured_at = {}, {}
        self._every_s = brief.optimisation_s
        self._number = brief.number

    def between(self, name: str, other: int) -> float:
        """The figure of a link from this site to another."""
        return 0.0 if other == self._number else self._known[name][other]

    def due(self, other: int, now_s: float, *, in_use: bool = False) -> bool:
        """Whether a link has to be measured: always while it is in use, others once a period."""
        if self._fixed or other == self._number or not 0 <= other < len(self._known[self.METRIC]):
            return False
        at_s = self._measured_at.get(other)
        return in_use or at_s is None or now_s - at_s >= 0.9 * self._every_s

    def note(self, other: int, value_s: float, now_s: float) -> bool:
        """A measurement; whether the figure has become another one.

        >>> figures = LinkFigures()
        >>> figures._known = {"link_latency": [0.0, 0.030]}
        >>> figures.note(1, 0.050, 0.0), figures.note(1, 0.051, 1.0), figures.note(1, 0.020, 2.0)
        (True, False, True)
        >>> figures.note(1, 0.070, 3.0), figures.between("link_latency", 1)
        (False, 0.02)
        """
        last = self._measured.setdefault(other, deque(maxlen=WINDOW))
        first = not last
        last.append(value_s)
        self._measured_at[other] = now_s
        least, known = min(last), self._known[self.METRIC][other]
        if not first and abs(least - known) <= max(_AT_LEAST_S, _CLEARLY * known):
            return False
        self._known[self.METRIC][other] = least
        return least != known
