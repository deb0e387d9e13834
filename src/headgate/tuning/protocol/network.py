"""A virtual-time network: delivers messages after a delay, loses some, runs timers, and counts everything."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from headgate.tuning.protocol.messages import HEADER, MAINTENANCE, Proposal, TuningMessage


@dataclass(frozen=True, slots=True)
class TuningSend:
    """Send a message to a site; to its core for another stream's tree where `stream` says so."""

    to: int
    message: TuningMessage
    stream: int | None = None


@dataclass(frozen=True, slots=True)
class Timer:
    """Wake me at a time, with this note."""

    at: float
    note: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """A link was measured: one question and one answer."""

    to: int


@dataclass(frozen=True, slots=True)
class PutInForce:
    """Put a change in force before anybody moves; `SiteAgent.put_in_force` hears whether that was done."""

    proposal: Proposal
    moves: tuple[tuple[int, int, int], ...]
    """Site, new parent and old parent, in the order in which the tree is a tree after each."""


Action: TypeAlias = TuningSend | Timer | Probe | PutInForce


class Core(Protocol):
    """A site as the network sees it."""

    def receive(self, now: float, sender: int, message: TuningMessage) -> list[Action]:
        """React to a message."""

    def wake(self, now: float, note: tuple[Any, ...]) -> list[Action]:
        """React to a timer."""

    def put_in_force(self, now: float, period: int, *, done: bool) -> list[Action]:
        """React to a change that was put in force, or was refused."""


@dataclass(slots=True)
class TrafficCounts:
    """Messages and bytes sent, by kind of traffic, by site (`sent` counts messages) and by type of message."""

    messages: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    by_site: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    sent: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    by_type: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    lost: int = 0

    def note(self, kind: str, site: int, size: int, name: str) -> None:
        """Count one message."""
        self.messages[kind] += 1
        self.bytes[kind] += size
        self.by_site[kind, site] += size
        self.sent[site] += 1
        self.by_type[name] += size


class Network:
    """Delivers between cores. Deterministic for a seed."""

    def __init__(self, delay_s: Callable[[int, int], float], *, loss: float = 0.0, seed: int = 0) -> None:
        self.delay_s, self.loss = delay_s, loss
        self.generator = np.random.default_rng(seed)
        self.cores: dict[int, Core] = {}
        self.queue: list[tuple[float, int, int, int, Any]] = []
        self.now, self.serial = 0.0, 0
        self.counts = TrafficCounts()

    def place(self, site: int, core: Core) -> None:
        """A core begins to listen."""
        self.cores[site] = core

    def remove(self, site: int) -> None:
        """A core has stopped; what is on its way to it is lost."""
        del self.cores[site]

    def act(self, site: int, actions: list[Action]) -> None:
        """Carry out what a core decided."""
        for action in actions:
            if isinstance(action, TuningSend):
                kind = "maintenance" if isinstance(action.message, MAINTENANCE) else "optimisation"
                self.counts.note(kind, site, action.message.bytes, type(action.message).__name__)
                if self.loss and self.generator.random() < self.loss:
                    self.counts.lost += 1
                    continue
                self._push(self.now + self.delay_s(site, action.to), site, action.to, action.message)
            elif isinstance(action, Probe):
                self.counts.note("optimisation", site, HEADER, "Probe")
                self.counts.note("optimisation", action.to, HEADER, "Probe")
            elif isinstance(action, PutInForce):  # in virtual time nobody refuses
                self.act(site, self.cores[site].put_in_force(self.now, action.proposal.period, done=True))
            else:
                self._push(action.at, site, site, action.note)

    def _push(self, at: float, sender: int, to: int, what: Any) -> None:
        self.serial += 1
        heapq.heappush(self.queue, (at, self.serial, sender, to, what))

    def run(self, until: float) -> None:
        """Deliver everything that is due."""
        while self.queue and self.queue[0][0] <= until:
            self.now, _, sender, to, what = heapq.heappop(self.queue)
            core = self.cores.get(to)
            if core is None:
                continue
            actions = core.wake(self.now, what) if isinstance(what, tuple) else core.receive(self.now, sender, what)
            self.act(to, actions)
        self.now = until
