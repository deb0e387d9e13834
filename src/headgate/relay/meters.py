"""What a relay measures of itself and of its links: CPU per block, latency and rate of links in use.

A link's latency is taken in two parts, each with one clock, so that clocks of sites need not agree: the sender times
its publication and takes half of the way there and back, the receiver times a message from the site log to its hands.
Both keep the least of the last second, which a queue in the way does not blur.

The rate of a link is seen by its receiver: what comes while the link is busy is what it can carry
(`headgate.relay.delivery_rate`). Otherwise it can carry at least what has come.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from headgate.protocol.port import Stored
from headgate.protocol.reports import ArrivalReport
from headgate.relay.delivery_rate import DeliveryRate, SizeSlope
from headgate.relay.link_bound import LinkPace

WINDOW_S: Final = 1.0
_IDLE: Final = 5
_BUSY_S: Final = 10.0  # so long after a link was busy nothing else is believed


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

    >>> meter = LinkMeter()
    >>> for tenth in range(35): meter.note(1000, stored_s=tenth / 10, came_s=9 + tenth / 10, now=tenth / 10)
    >>> said = meter.report(now=3.5); said.bytes, said.used_bytes_per_s, said.rate_bytes_per_s, said.busy
    (35000, 10000.0, 10000.0, False)
    >>> meter.report(now=60.0).used_bytes_per_s
    0.0
    """

    bytes: int = 0
    used_bytes_per_s: float = 0.0
    delivery: DeliveryRate = field(default_factory=DeliveryRate)
    slope: SizeSlope = field(default_factory=SizeSlope)
    last_s: float = -1e9
    _best: float = 0.0
    _samples: int = 0
    _busy_s: float = -math.inf
    _began_s: float | None = None
    _window_bytes: int = 0

    def note(self, size: int, stored_s: float, came_s: float, now: float, *, real: bool = True) -> None:
        """A message of that size was stored at its sender's and came here, each by its own clock, and is taken in."""
        if self._began_s is None:
            self._began_s = now
        elif now - self._began_s >= WINDOW_S:
            self.used_bytes_per_s = self._window_bytes / (now - self._began_s)
            self._best = max(self._best, self.used_bytes_per_s)
            self._began_s, self._window_bytes = now, 0
        self.bytes += size
        self._window_bytes += size
        self.last_s = now
        self.delivery.note(size, stored_s, came_s)
        if real:
            self.slope.note(size, came_s - stored_s, now)
        if self.delivery.samples != self._samples:  # it was busy: what came before that counts no more
            self._samples, self._best, self._busy_s = self.delivery.samples, 0.0, now

    def pace(self, now: float) -> LinkPace:
        """What the sender is told."""
        said = self.report(now)
        return LinkPace(self.delivery.rate_bytes_per_s, said.used_bytes_per_s, self.delivery.queue_s)

    def report(self, now: float) -> ArrivalReport:
        """All bytes so far, how many came a second lately, and how many a second the link can carry."""
        known, least = self.delivery.rate_bytes_per_s, self._best
        if now - self._busy_s > _BUSY_S:
            least = max(least, self.slope.rate(now))
        idle = self._began_s is None or now - self._began_s > _IDLE * WINDOW_S
        return ArrivalReport(
            bytes=self.bytes,
            used_bytes_per_s=0.0 if idle else round(self.used_bytes_per_s, 1),
            rate_bytes_per_s=round(max(known, least), 1),
            queue_s=0.0 if idle else round(self.delivery.queue_s, 3),
            busy=known > least,
        )


@dataclass(slots=True)
class Meters:
    """One relay's measurements: blocks since the start, and the figures of links by neighbour."""

    blocks: int = 0
    sent: Least = field(default_factory=Least)
    arrived: Least = field(default_factory=Least)
    links: dict[str, LinkMeter] = field(default_factory=dict)

    def took(self, parent: str, stored: Stored, wall_s: float, now: float, *, real: bool) -> None:
        """A message of a parent was taken in, over a link that is `real` or only a budget in one process."""
        self.arrived.note(parent, max(wall_s - stored.time_s, 0.0))
        link = self.links.setdefault(parent, LinkMeter())
        link.note(stored.size, stored.time_s, stored.came_s or wall_s, now, real=real)
