"""How many bytes a second a link delivers, found from the messages themselves, as a congestion controller does.

The sender's server says of each message when it stored it, the receiver when it came. The two clocks need not agree:
the least time between the two, of the last minute, is that of a message that found the link empty, whatever the clocks
show. So it is known when a message could have come at the earliest. One that could have come before its predecessor did
has waited behind it, and between the two the link was busy all the time: bytes over time is then what the link can
carry. Of messages that found the link empty nothing follows but that it carries at least so much: they are limited by
their sender, and never lower what is known (an "application-limited" sample).

How fast a link is that nobody fills is seen from messages of different sizes (`SizeSlope`): a larger one takes longer.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

SPAN_S: Final = 0.25
"""A sample is taken over so much of a time in which the link was busy."""
WINDOW_S: Final = 2.0
"""Samples of so long count together: a link that has changed is known anew after it."""
LEAST_S: Final = 30.0
"""How long the quickest message counts at least, and half of how long it counts at most."""
_SLACK_S: Final = 0.002
_AT_ONCE_S: Final = 0.005
_LONGEST: Final = 4
_ENOUGH: Final = 2
_MESSAGES: Final = 256
_RECENT_S: Final = 15.0
_SMALL, _LARGE = 0.5, 0.7  # parts of the largest message
_FEW: Final = 3
_TELLING_BYTES: Final = 4096
_LEAST_S: Final = 0.003


@dataclass(slots=True)
class LeastWait:
    """The least wait of late: of this half of the time and of the half before it."""

    _began_s: float = -math.inf
    _now_s: float = math.inf
    _before_s: float = math.inf

    def note(self, wait_s: float, now: float) -> float:
        """A message took so long; the least so far."""
        if now - self._began_s >= LEAST_S:
            self._before_s = self._now_s if now - self._began_s < 2 * LEAST_S else math.inf
            self._began_s, self._now_s = now, math.inf
        self._now_s = min(self._now_s, wait_s)
        return min(self._now_s, self._before_s)


@dataclass(slots=True)
class DeliveryRate:
    """What a link can carry, and for how long messages wait for it.

    >>> link = DeliveryRate()
    >>> for tenth in range(30): link.note(1000, stored_s=tenth / 20, came_s=5 + tenth / 10)  # 20 a second, 10 come
    >>> round(link.rate_bytes_per_s), round(link.queue_s, 2)
    (10000, 1.35)
    """

    rate_bytes_per_s: float = 0.0
    """The mean of the last two seconds in which the link was busy; 0 until it was."""
    queue_s: float = 0.0
    """How long the last message waited behind others."""
    samples: int = 0
    """How many samples were taken."""
    _least: LeastWait = field(default_factory=LeastWait)
    _last_s: float = -math.inf
    _began_s: float = math.inf
    _bytes: int = 0
    _samples: deque[tuple[float, int, float]] = field(default_factory=deque)

    def note(self, size: int, stored_s: float, came_s: float) -> None:
        """A message of that size was stored at the sender's and came here, each by its own clock."""
        least_s = self._least.note(came_s - stored_s, came_s)
        waited_s = came_s - stored_s - least_s
        if stored_s + least_s > self._last_s + _SLACK_S or came_s < self._last_s:
            self._began_s, self._bytes = came_s, 0
        else:
            self._sample(came_s)
            self._bytes += size
        self._last_s = came_s
        own_s = size / self.rate_bytes_per_s if self.rate_bytes_per_s else 0.0
        self.queue_s = max(waited_s - own_s, 0.0)

    def _sample(self, now: float) -> None:
        """End a sample with the last message when it is long enough.

        Messages that a receiver took at once, as it was held up before, belong to one sample.
        """
        took_s = self._last_s - self._began_s
        if took_s < SPAN_S or (now - self._last_s < _AT_ONCE_S and took_s < _LONGEST * SPAN_S):
            return
        self.samples += 1
        self._samples.append((self._last_s, self._bytes, took_s))
        while self._last_s - self._samples[0][0] > WINDOW_S:
            self._samples.popleft()
        if len(self._samples) >= _ENOUGH:
            self.rate_bytes_per_s = sum(size for _, size, _ in self._samples) / sum(s for _, _, s in self._samples)
        self._began_s, self._bytes = self._last_s, 0


class SizeSlope:
    """How fast a link is that is never full: by how much longer large messages are on their way than small ones.

    Only the quickest of each kind count, which found the link empty and everybody awake. What disturbs makes messages
    late, so a link seems slower than it is rather than faster; below `_LEAST_S` nothing can be told.

    >>> slope = SizeSlope()
    >>> for number in range(40): slope.note(size := 9000 if number % 8 else 1000, 0.05 + size / 1e6, number / 10)
    >>> round(slope.rate(4.0))
    1000000
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, float]] = deque(maxlen=_MESSAGES)

    def note(self, size: int, wait_s: float, now: float) -> None:
        """A message of that size was on its way so long, by clocks that need not agree."""
        self._seen.append((now, size, wait_s))

    def rate(self, now: float) -> float:
        """Bytes per second that the link carries at least; 0 where nothing can be told."""
        seen = [(size, wait_s) for at_s, size, wait_s in self._seen if now - at_s < _RECENT_S]
        most = max((size for size, _ in seen), default=0)
        small = [(wait_s, size) for size, wait_s in seen if size <= _SMALL * most]
        large = [(wait_s, size) for size, wait_s in seen if size >= _LARGE * most]
        if len(small) < _FEW or len(large) < _FEW or most < _TELLING_BYTES:
            return 0.0
        (small_s, small_size), (large_s, large_size) = min(small), min(large)
        return (large_size - small_size) / max(large_s - small_s, _LEAST_S)
