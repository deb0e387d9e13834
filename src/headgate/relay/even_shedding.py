"""Shedding evenly: every link of a site and every class on it loses the same part, as the planner's model says.

In the model (QASD section 4.2) a site whose links need more than its upload passes upload / need of every row. Relays
get there without knowing any need: of what comes in, every output behind one bottleneck gives up the same part, and a
controller moves that part so that rows wait for `shed_after_s`. Outputs that share a budget send the rows that have
waited longest, so one wait stands for all of them; an output that its own link or its receiver's download holds up
more than the upload does has a controller of its own. How much a single output waits does not matter for what it
loses: a small one, which empties between two blocks, gives up the same part as a large one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")

# Controllers move each quarter of `shed_after_s`. They work on the logarithm of what is kept: the wait then answers
# alike to a change at every overload. The gains give a damping of 0.9 for waits that are seen without delay.
EVERY = 0.25
NOW, SUM = 0.5, 0.08
MOST = math.log(50.0)
# Below so much of `shed_after_s` nothing is shed and what was learned is forgotten by halves.
LITTLE = 0.5
# What would take longer than so many times `shed_after_s` to send is cut at once: a controller of what comes could only
# wait until it is sent.
MUCH = 4.0
# An output with a bottleneck of its own waits for so much longer than the others, and lacks its own budget so often.
NEAR = 1.2
OFTEN = 0.3


@dataclass(frozen=True, slots=True)
class Queue:
    """An output as it stands: its longest wait of late in seconds, the rows that wait, how many it has ever sent.

    `lacking` says how often, of late, it was a budget of its own that it lacked and not the site's upload.
    """

    wait_s: float
    rows: int = 0
    went: int = 0
    lacking: float = 0.0


@dataclass(slots=True)
class EvenShedding:
    """What a bottleneck keeps of the rows that come, by how long they wait (1 is the wait that is aimed at).

    >>> control = EvenShedding()
    >>> for _ in range(8): control.move(1.5)
    >>> round(control.kept, 2)
    0.72
    """

    learned: float = 0.0
    kept: float = 1.0
    rate: float = 0.0

    def move(self, wait: float) -> None:
        """One step."""
        if wait < LITTLE:
            self.learned, self.kept = self.learned / 2, 1.0
            return
        self.learned = min(max(self.learned + SUM * EVERY * min(wait - 1.0, 1.0), 0.0), MOST)
        self.kept = math.exp(-min(max(self.learned + NOW * (wait - 1.0), 0.0), MOST))

    def cut(self, wait: float, rows: int, went: float) -> float:
        """What may stay of the rows that wait, where `went` are sent in the time that is aimed at.

        While nothing is sent nothing is cut: NATS may be away, and that says nothing about the bandwidth.

        >>> EvenShedding(rate=10.0).cut(3.0, 100, 12.0), EvenShedding(rate=10.0).cut(3.0, 100, 0.0)
        (0.48, 1.0)
        """
        self.rate += (went - self.rate) * EVERY
        return min(1.0, MUCH * max(self.rate, went) / rows) if wait > 1.0 and rows and went else 1.0

    @property
    def idle(self) -> bool:
        """Whether there is nothing to remember."""
        return self.learned < 1e-3 and self.kept == 1.0


class Evenly(Generic[K]):
    """What part of the rows that come now each output of a site keeps.

    >>> evenly = Evenly[str](2.0)
    >>> queues = {"a": Queue(3.0, 100, 0), "b": Queue(2.9, 50, 0), "c": Queue(1.0, 2, 0)}
    >>> for step in range(8): parts = evenly.look(queues, now=0.5 * step)
    >>> round(evenly.kept("a"), 2) == round(evenly.kept("c"), 2) < 0.8
    True
    """

    def __init__(self, shed_after_s: float) -> None:
        self._after_s = shed_after_s
        self._next_s = -math.inf
        self._site = EvenShedding()
        self._own: dict[K, EvenShedding] = {}
        self._went: dict[K, int] = {}

    def due(self, now: float) -> bool:
        """Whether it is time to look again."""
        return now >= self._next_s

    def look(self, queues: Mapping[K, Queue], now: float) -> dict[K, float]:
        """Move the controllers by the queues of all outputs, also of those that hold nothing now.

        Returns what may stay of what some of them hold.
        """
        self._next_s = now + self._after_s * EVERY
        went = {key: (each.went - self._went.get(key, each.went)) / EVERY for key, each in queues.items()}
        self._went = {key: each.went for key, each in queues.items()}
        common, apart = level(queues)
        for key in apart:
            self._own.setdefault(key, EvenShedding())
        parts: dict[K, float] = {}
        for key, control in list(self._own.items()):
            queue = queues.get(key, Queue(0.0))
            wait = queue.wait_s / self._after_s
            control.move(wait if queue.lacking > OFTEN / 2 else min(wait, LITTLE))
            parts[key] = control.cut(wait, queue.rows, went.get(key, 0.0))
            if control.idle:
                del self._own[key]
        self._site.move(common / self._after_s)
        rest = [key for key in queues if key not in parts]
        rows, sent = sum(queues[key].rows for key in rest), sum(went[key] for key in rest)
        part = self._site.cut(common / self._after_s, rows, sent)
        return {key: each for key, each in {**parts, **dict.fromkeys(rest, part)}.items() if each < 1.0}

    def kept(self, key: K) -> float:
        """The part that an output keeps: its own bottleneck's or the site's, whichever is less."""
        own = self._own.get(key)
        return self._site.kept if own is None else min(own.kept, self._site.kept)


def level(queues: Mapping[K, Queue]) -> tuple[float, Collection[K]]:
    """The wait that the site's upload makes, and the outputs with a narrower bottleneck of their own.

    >>> level({"a": Queue(2.0), "b": Queue(6.0, lacking=0.6), "c": Queue(2.2, lacking=0.5)})
    (2.2, {'b'})
    """
    suspects = {key for key, each in queues.items() if each.lacking > OFTEN}
    others = [each.wait_s for key, each in queues.items() if key not in suspects]
    common = max(others) if others else min((each.wait_s for each in queues.values()), default=0.0)
    apart = {key for key in suspects if queues[key].wait_s > NEAR * common}
    return max((each.wait_s for key, each in queues.items() if key not in apart), default=0.0), apart
