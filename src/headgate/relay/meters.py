"""What a relay measures of itself and of its links: CPU per block, latency and rate of links in use.

A link's latency is taken in two parts, each with one clock, so that clocks of sites need not agree: the sender times
its publication and takes half of the way there and back, the receiver times a message from the site log to its hands.
Both keep the least of the last second, which a queue in the way does not blur.

The rate of a link is seen by its receiver: in a second in which every message came late, something was waiting all the
time, so what has come is what the link can carry. In other seconds it can carry at least what has come.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

LATE_S: Final = 0.15
"""A message is late that took so much longer than the quickest one from the same neighbour."""
WINDOW_S: Final = 1.0
_IDLE: Final = 5


class Least:
    """The least value by name since the last report; what was not seen since then keeps its last one."""

    def __init__(self) -> None:
        self._known: dict[str, float] = {}
        self._seen: dict[str, float] = {}

    def note(self, name: str, value: float) -> None:
        """One measurement."""
        self._seen[name] = min(value, self._seen.get(name, value))

    def report(self) -> dict[str, float]:
        """What is known now; a new window begins."""
        self._known |= self._seen
        self._seen = {}
        return {name: round(value, 6) for name, value in self._known.items()}


@dataclass(slots=True)
class LinkMeter:
    """What came over a link in the last second that had anything, and what the link can carry as far as is known.

    Waits are from the site log's clock to the relay's, so only their differences count.

    >>> meter = LinkMeter()
    >>> for tenth in range(35): meter.note(1000, wait_s=0.5 if tenth > 12 else 0.1, now=tenth / 10)
    >>> meter.report(now=3.5), meter.report(now=60.0)
    ((35000, 10000.0, 10000.0), (35000, 0.0, 10000.0))
    """

    bytes: int = 0
    used_bytes_per_s: float = 0.0
    rate_bytes_per_s: float = 0.0
    _began_s: float | None = None
    _window_bytes: int = 0
    _window_s: float = math.inf
    _least_s: float = math.inf

    def note(self, size: int, wait_s: float, now: float) -> None:
        """A message of that size was taken in, so long after it was stored."""
        if self._began_s is None:
            self._began_s = now
        elif now - self._began_s >= WINDOW_S:
            self._close(now)
        self.bytes += size
        self._window_bytes += size
        self._window_s = min(self._window_s, wait_s)

    def report(self, now: float) -> tuple[int, float, float]:
        """All bytes so far, how many came a second lately, and how many a second the link can carry."""
        idle = self._began_s is None or now - self._began_s > _IDLE * WINDOW_S
        return self.bytes, 0.0 if idle else round(self.used_bytes_per_s, 1), round(self.rate_bytes_per_s, 1)

    def _close(self, now: float) -> None:
        assert self._began_s is not None
        rate = self._window_bytes / (now - self._began_s)
        late = self._window_s > self._least_s + LATE_S
        self.used_bytes_per_s = rate
        self.rate_bytes_per_s = rate if late else max(rate, self.rate_bytes_per_s)
        self._least_s = min(self._least_s, self._window_s)
        self._began_s, self._window_bytes, self._window_s = now, 0, math.inf


@dataclass(slots=True)
class Meters:
    """One relay's measurements: blocks since the start, and the figures of links by neighbour."""

    blocks: int = 0
    sent: Least = field(default_factory=Least)
    arrived: Least = field(default_factory=Least)
    links: dict[str, LinkMeter] = field(default_factory=dict)

    def took(self, parent: str, size: int, wait_s: float, now: float) -> None:
        """A message of a parent was taken in."""
        self.arrived.note(parent, wait_s)
        self.links.setdefault(parent, LinkMeter()).note(size, wait_s, now)
