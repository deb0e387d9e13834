"""Where a crowd of queries is heading: a straight line through the places and times of recent ones.

Beyond the paper, which names moving hot spots as future work: a site that sees its crowd move asks for replicas of the
regions that lie ahead, before the crowd is there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from headgate.grid.space import DzSpace

_LEAST = 8


@dataclass(slots=True)
class Motion:
    """Places of recent queries, each with its time; older ones than `window_s` are forgotten."""

    window_s: float
    seen: deque[tuple[float, float, float]] = field(default_factory=deque)

    def add(self, at: float, place: tuple[float, float]) -> None:
        """A query at a place, in fractions of the field."""
        self.seen.append((at, *place))
        while self.seen[0][0] < at - self.window_s:
            self.seen.popleft()

    def predict(self, now: float, ahead_s: float) -> tuple[float, float] | None:
        """Where the middle of the crowd will be after `ahead_s`; None while there is too little to tell.

        >>> motion = Motion(10.0)
        >>> for t in range(10):
        ...     motion.add(float(t), (0.1 + 0.02 * t, 0.5))
        >>> [round(place, 3) for place in motion.predict(10.0, 5.0)]
        [0.4, 0.5]
        """
        recent = np.array([row for row in self.seen if row[0] >= now - self.window_s])
        if len(recent) < _LEAST or np.ptp(recent[:, 0]) <= 0:
            return None
        middle = recent.mean(axis=0)
        time = recent[:, 0] - middle[0]
        speed = time @ (recent[:, 1:] - middle[1:]) / (time @ time)
        x, y = middle[1:] + speed * (now + ahead_s - middle[0])
        return float(x), float(y)


def moved(space: DzSpace, code: int, length: int, place: tuple[float, float]) -> tuple[int, int] | None:
    """The expression like another one around a place; None when it is the same one or outside of the field."""
    cell = space.decode([code])[0]
    for d, size in enumerate(space.shape[:2]):
        if not 0 <= place[d] < 1:
            return None
        cell[d] = int(place[d] * size)
    found = int(space.encode([cell])[0]) >> (space.digits - length) << (space.digits - length)
    return None if found == code else (found, length)
