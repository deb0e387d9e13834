"""Virtual time, links and clocks: what lies between the processes of a simulated deployment.

The network does not carry anything itself. `send` says when something would arrive, or that it never does; the caller
puts what happens then into the queue of events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Any


class Scheduled:
    """Something that will happen at a time, once, unless it is cancelled."""

    __slots__ = ("_action", "_arguments", "time_s")

    def __init__(self, time_s: float, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.time_s = time_s
        self._action: Callable[..., None] | None = action
        self._arguments = arguments

    @property
    def open(self) -> bool:
        """Whether it is still to happen."""
        return self._action is not None

    def cancel(self) -> None:
        """Let it never happen; what has happened stays so."""
        self._action = None

    def happen(self) -> None:
        """Call the action, the first time only."""
        action, self._action = self._action, None
        if action is not None:
            action(*self._arguments)


class EventQueue:
    """What happens when, in virtual seconds. Events of the same time happen in the order in which they were put in."""

    __slots__ = ("_count", "_heap", "now")

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._heap: list[tuple[float, int, Scheduled]] = []
        self._count = 0

    def at(self, time_s: float, action: Callable[..., None], *arguments: Any) -> Scheduled:
        """Call an action at a time, never before now."""
        if time_s < self.now:
            time_s = self.now
        self._count += 1
        event = Scheduled(time_s, action, arguments)
        heappush(self._heap, (time_s, self._count, event))
        return event

    def skip(self, seconds: float) -> None:
        """Let time pass in which nothing happens: all that is planned happens so much later."""
        self.now += seconds
        self._heap = [(time_s + seconds, number, event) for time_s, number, event in self._heap]

    @property
    def next_s(self) -> float | None:
        """When the next event happens, None when there is none."""
        heap = self._heap
        while heap and not heap[0][2].open:
            heappop(heap)
        return heap[0][0] if heap else None

    def step(self) -> bool:
        """Let the next event happen; False when there is none."""
        if self.next_s is None:
            return False
        self.now, _, event = heappop(self._heap)
        event.happen()
        return True

    def run(self, until_s: float, most: float | None = None) -> int:
        """Let everything happen up to a time (with it), at most so many events; returns how many happened."""
        happened, heap, most = 0, self._heap, inf if most is None else most
        while happened < most:
            if not heap or heap[0][0] > until_s:
                self.now = max(self.now, until_s)
                break
            time_s, _, event = heappop(heap)
            action = event._action  # noqa: SLF001 # the queue owns its events, and most of a run is here
            if action is not None:
                self.now, event._action = time_s, None  # noqa: SLF001
                action(*event._arguments)  # noqa: SLF001
                happened += 1
        return happened


@dataclass(slots=True)
class SimulatedLink:
    """One direction between two places. Messages share its bandwidth.

    `loss` is the probability that a message never arrives, `cut` a partition. With `in_order`, as on a TCP connection,
    no message overtakes another, whatever `jitter_s` says. `busy_until_s` is when everything that was sent so far has
    left, `arrived_s` when the last of it arrives.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    rate_bytes_per_s: float = inf
    cut: bool = False
    in_order: bool = True
    busy_until_s: float = 0.0
    arrived_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SimulatedClock:
    """What a process takes for the time: ahead of true time by `offset_s`, and gaining `drift` seconds a second.

    >>> clock = SimulatedClock(offset_s=2.0, drift=0.01)
    >>> clock.time_s(100.0), clock.true_s(103.0)
    (103.0, 100.0)
    """

    offset_s: float = 0.0
    drift: float = 0.0

    def time_s(self, now: float) -> float:
        """What the clock shows at a true time."""
        return now + self.offset_s + now * self.drift

    def true_s(self, shown_s: float) -> float:
        """The true time at which the clock shows this."""
        return (shown_s - self.offset_s) / (1.0 + self.drift)


class SimulatedNetwork:
    """Links by pair of places, and a clock per process; all chances come from one seeded generator."""

    def __init__(self, random: Random, *, default: SimulatedLink | None = None) -> None:
        self._random = random
        self._default = default or SimulatedLink()
        self._links: dict[tuple[str, str], SimulatedLink] = {}
        self.clocks: dict[str, SimulatedClock] = {}
        self._exact = SimulatedClock()

    def link(self, sender: str, receiver: str) -> SimulatedLink:
        """The link from one place to another: change its fields to change it."""
        found = self._links.get((sender, receiver))
        if found is None:
            found = self._links[sender, receiver] = replace(self._default)
        return found

    def between(self, one: str, other: str) -> tuple[SimulatedLink, SimulatedLink]:
        """The links of both directions."""
        return self.link(one, other), self.link(other, one)

    def partition(self, group: set[str], others: set[str], cut: bool = True) -> None:
        """Cut, or mend, every link between two groups of places, in both directions."""
        for one in sorted(group):
            for other in sorted(others - group):
                for link in self.between(one, other):
                    link.cut = cut

    def heal(self) -> None:
        """Mend every link: no cut and no loss. Delays and bandwidths stay."""
        for link in self._links.values():
            link.cut, link.loss = False, 0.0

    def set_rate(self, link: SimulatedLink, rate_bytes_per_s: float, now: float) -> None:
        """Let a link carry so much from now on: what waits to leave takes more or less time, what has left comes."""
        waiting = max(link.busy_until_s - now, 0.0) * link.rate_bytes_per_s if link.rate_bytes_per_s < inf else 0.0
        link.rate_bytes_per_s, link.busy_until_s = rate_bytes_per_s, now + waiting / rate_bytes_per_s

    def widen(self, now: float) -> float:
        """Let every link carry everything from now on; returns how long what is under way still takes to arrive."""
        for link in self._links.values():
            self.set_rate(link, inf, now)
        return max((link.arrived_s - now for link in self._links.values()), default=0.0)

    def send(self, sender: str, receiver: str, size: int, now: float) -> float | None:
        """When a message of `size` bytes arrives that is sent now, None when it is lost."""
        link = self._links.get((sender, receiver)) or self.link(sender, receiver)
        if link.cut:
            return None
        if link.rate_bytes_per_s < inf:  # a lost message takes its share of the bandwidth too
            now = link.busy_until_s = max(now, link.busy_until_s) + size / link.rate_bytes_per_s
        if link.loss and self._random.random() < link.loss:
            return None
        arrives_s = now + link.delay_s + (self._random.random() * link.jitter_s if link.jitter_s else 0.0)
        if link.in_order:
            link.arrived_s = arrives_s = max(arrives_s, link.arrived_s)
        return arrives_s

    def set_clock(self, process: str, clock: SimulatedClock) -> None:
        """Give a process a clock."""
        self.clocks[process] = clock

    def clock(self, process: str) -> SimulatedClock:
        """The clock of a process: exact unless it was given another."""
        return self.clocks.get(process, self._exact)
