"""What came lately into the inboxes of a site, in memory: read from the log once, for all who read from it.

A question is answered from memory only where memory surely holds everything that the log would have answered with. So
whoever reads can change between memory and log at every question, in any order, and sees the same messages: a reader
that falls behind reads the log at its own place, and is served from memory again when it has caught up.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

from headgate.protocol.port import Stored

MEMORY_BYTES: Final = 64 << 20
"""What the memory of one site holds at most; the oldest messages go first."""
_EACH_BYTES: Final = 400
"""What a message takes beside its data, about."""


class SiteMemory:
    """Messages of the inboxes that somebody reads. Those of other inboxes are passed over.

    `seen` is the place in the log up to which messages were taken, None while nothing is known. For each inbox that is
    watched, memory holds every message behind its floor: those that came since it was watched and were not let go.
    """

    def __init__(self, max_bytes: int = MEMORY_BYTES) -> None:
        self.seen: int | None = None
        self.bytes = 0
        self._begun = 0
        self._max_bytes = max_bytes
        self._watched: Counter[str] = Counter()
        self._floors: dict[str, int] = {}
        self._kept: dict[str, deque[Stored]] = {}
        self._order: deque[Stored] = deque()

    def begin(self, seen: int) -> None:
        """Know nothing but that everything behind this place will come, in order."""
        self.forget()
        self.seen = seen
        self._begun += 1
        self._floors = dict.fromkeys(self._watched, seen)

    def forget(self) -> None:
        """Know nothing: everybody reads the log."""
        self.seen, self.bytes = None, 0
        self._floors.clear()
        self._kept.clear()
        self._order.clear()

    def watch(self, subject: str) -> None:
        """Hold what comes into an inbox from now on; as often as `leave` is called."""
        self._watched[subject] += 1
        if self._watched[subject] == 1 and self.seen is not None:
            self._floors[subject] = self.seen

    def leave(self, subject: str) -> None:
        """One reader of an inbox has gone."""
        self._watched[subject] -= 1
        if not self._watched[subject]:
            del self._watched[subject]
            self._floors.pop(subject, None)
            self._kept.pop(subject, None)

    def take(self, messages: Iterable[Stored]) -> list[str]:
        """Messages of the log behind what was seen, in order; returns the inboxes that got something."""
        assert self.seen is not None
        got: dict[str, None] = {}
        for stored in messages:
            if stored.sequence <= self.seen:
                continue
            self.seen = stored.sequence
            if stored.subject in self._watched:
                self._kept.setdefault(stored.subject, deque()).append(stored)
                self._order.append(stored)
                self.bytes += _size(stored)
                got[stored.subject] = None
        self._make_room()
        return list(got)

    def _make_room(self) -> None:
        while self.bytes > self._max_bytes:
            oldest = self._order.popleft()
            self.bytes -= _size(oldest)
            mine = self._kept.get(oldest.subject)
            if mine and mine[0] is oldest:  # else its inbox was left since
                mine.popleft()
                self._floors[oldest.subject] = oldest.sequence

    def read(self, subject: str, after: int, limit: int) -> list[Stored] | None:
        """The next messages of an inbox after a place; None where only the log knows."""
        floor = self._floors.get(subject)
        if floor is None or after < floor:
            return None
        mine = self._kept.get(subject)
        if not mine or mine[-1].sequence <= after:
            return []
        if mine[0].sequence > after and len(mine) <= limit:
            return list(mine)
        found = [stored for stored in mine if stored.sequence > after]
        return found[:limit]

    @property
    def mark(self) -> tuple[int, int]:
        """How often it has begun, and how much was seen: who asks the log instead remembers it, for `learn`."""
        return self._begun, -1 if self.seen is None else self.seen

    def learn(self, subject: str, after: int, mark: tuple[int, int]) -> None:
        """The log was asked at a `mark`, and had nothing of an inbox after a place.

        What comes behind the mark is taken. So there is nothing between the two, and the inbox can be read from memory
        from that place on, unless something that came meanwhile was let go again.
        """
        floor = self._floors.get(subject)
        begun, seen = mark
        if floor is not None and begun == self._begun and after < floor <= seen:
            self._floors[subject] = after


def _size(stored: Stored) -> int:
    return stored.header_bytes + _EACH_BYTES + (len(stored.data) if isinstance(stored.data, bytes) else 0)
