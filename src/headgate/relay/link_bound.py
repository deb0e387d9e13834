"""What a sender may put on a link by what the receiver has measured: as much as arrives, now and then a little more.

The receiver says twice a second what the link delivers while it is busy and how long messages wait for it. Where they
wait long, more was sent than the link carries: the bound becomes what it delivers, and less for as long as something
waits, so that rows wait in the sender's queue, where policies decide about them, and not on the link, where nobody can.
Where they hardly wait and the bound is used, the link may have become faster: the bound rises step by step. One
that has come up to what is declared ends.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

LATE_S: Final = 0.3
"""Messages that wait so long for a link say that it carries no more."""
EASY_S: Final = 0.1
"""Messages that wait less say that it may carry more."""
RISE: Final = 1.25
DRAIN_S: Final = 2.0
"""What waits on a link is to be gone after about so long."""
_REMEMBERED_S: Final = 20.0
_LEAST: Final = 0.25
_USED: Final = 0.7


@dataclass(frozen=True, slots=True)
class LinkPace:
    """What a receiver says of a link: bytes a second that it delivers, that came lately, and how long messages wait."""

    rate_bytes_per_s: float
    used_bytes_per_s: float
    queue_s: float


@dataclass(slots=True)
class LinkBound:
    """The bound of one link in one direction, in bytes per second; infinite while nothing says that there is one.

    A message that has waited tells of the past: what was sent since it was stored is what waits now.

    >>> bound = LinkBound(); bound.sent(400, 0.0)
    >>> bound.heard(LinkPace(1000.0, 1000.0, queue_s=0.3), declared=4000.0, now=0.1)
    >>> bound.rate_bytes_per_s, bound.heard(LinkPace(1000.0, 900.0, queue_s=0.0), declared=4000.0, now=0.5)
    (850.0, None)
    >>> bound.rate_bytes_per_s
    1000.0
    """

    rate_bytes_per_s: float = math.inf
    _sent: deque[tuple[float, float]] = field(default_factory=deque)

    def sent(self, size: float, now: float) -> None:
        """So many bytes were put on the link."""
        self._sent.append((now, size))
        while now - self._sent[0][0] > _REMEMBERED_S:
            self._sent.popleft()

    def heard(self, pace: LinkPace, declared: float, now: float, *, follow: bool = False) -> None:
        """Take in what the receiver says. `declared` is infinite where nothing is; with `follow` it is no limit."""
        rate, limit = pace.rate_bytes_per_s, self.limit(declared, follow=follow)
        waits_s = self._waiting(pace.queue_s, now) / rate if rate > 0 else 0.0
        if waits_s >= LATE_S:
            self.rate_bytes_per_s = rate * max(1.0 - (waits_s - EASY_S) / DRAIN_S, _LEAST)
        elif waits_s >= EASY_S:  # all that it carries is used: stay there
            self.rate_bytes_per_s = min(self.rate_bytes_per_s, rate)
        elif pace.used_bytes_per_s > _USED * limit:
            self.rate_bytes_per_s = rate if limit < rate < RISE * limit else limit * RISE
        if self.rate_bytes_per_s >= declared and not follow:
            self.rate_bytes_per_s = math.inf

    def _waiting(self, queue_s: float, now: float) -> float:
        """Bytes that were sent since the message was that has just come after such a wait."""
        return sum(size for at_s, size in self._sent if at_s > now - queue_s)

    def limit(self, declared: float, *, follow: bool = False) -> float:
        """What may be sent: the smaller of both, or with `follow` what was measured once anything was."""
        if follow and self.rate_bytes_per_s < math.inf:
            return self.rate_bytes_per_s
        return min(declared, self.rate_bytes_per_s)
