"""What one identity may take at the gate beside requests: bytes a second, and connections at a time.

Time comes in as an argument.
"""

from __future__ import annotations

from typing import Final

from headgate.model import RequestLimits

BURST_S: Final = 2.0
"""For how long bytes may be taken ahead."""
IDLE_S: Final = 30.0
"""After how long a connection that asks for nothing counts no more; readers ask every ten seconds."""


class ByteAllowances:
    """Bytes that users have read, at a rate each. Whoever has taken too many waits before it gets more."""

    def __init__(self, bytes_per_s: float | None) -> None:
        self._rate = bytes_per_s
        self._owed: dict[str, tuple[float, float]] = {}

    def most(self, wanted: int) -> int:
        """How many bytes one answer may have."""
        return wanted if self._rate is None else max(min(wanted, int(self._rate * BURST_S)), 1)

    def wait_s(self, user: str, now_s: float) -> float:
        """How long a user has to wait for more.

        >>> allowed = ByteAllowances(100.0)
        >>> allowed.took("ada", 500, 0.0)
        >>> allowed.wait_s("ada", 0.0), allowed.wait_s("ada", 3.0), allowed.wait_s("bob", 0.0)
        (3.0, 0.0, 0.0)
        """
        if self._rate is None:
            return 0.0
        owed, at_s = self._owed.get(user, (0.0, now_s))
        return max(0.0, (owed - (now_s - at_s) * self._rate) / self._rate - BURST_S)

    def took(self, user: str, count: int, now_s: float) -> None:
        """A user has read so many bytes."""
        if self._rate is not None:
            owed, at_s = self._owed.get(user, (0.0, now_s))
            self._owed[user] = max(0.0, owed - (now_s - at_s) * self._rate) + count, now_s


class Connections:
    """The connections of users that have asked for something lately, up to a number for each.

    NATS itself has no limit for one user. A connection above the limit gets no answers, so it can be had and not used.
    """

    def __init__(self, limits: RequestLimits) -> None:
        self._most = limits.connections
        self._seen: dict[str, dict[str, float]] = {}

    def admits(self, user: str, connection: str, now_s: float) -> bool:
        """Whether a connection may ask.

        >>> known = Connections(RequestLimits(connections=1))
        >>> known.admits("ada", "a", 0.0), known.admits("ada", "b", 1.0), known.admits("ada", "b", 40.0)
        (True, False, True)
        """
        mine = self._seen.setdefault(user, {})
        if connection not in mine and len(mine) >= self._most:
            for each in [other for other, at_s in mine.items() if now_s - at_s > IDLE_S]:
                del mine[each]
            if len(mine) >= self._most:
                return False
        mine[connection] = now_s
        return True
