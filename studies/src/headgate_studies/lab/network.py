"""When packets arrive: rates, delay, jitter, loss and cuts between hosts, decided without a clock or a socket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, Final, Self

QUEUE_S: Final = 0.25
"""So much of its rate may wait for a path before packets are dropped, as in a router with a deep buffer."""
_LEAST_QUEUE: Final = 32 << 10


@dataclass(frozen=True, slots=True)
class Path:
    """One direction between two hosts, as a file gives it: seconds one way, bytes per second, a probability."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    rate_bytes_per_s: float | None = None
    cut: bool = False


@dataclass(slots=True)
class PacedGate:
    """Something that sends one packet after the other at a rate: a path, or a host's download.

    >>> gate = PacedGate(1000.0)
    >>> gate.passed(500, 0.0), gate.passed(500, 0.0), gate.passed(500, 2.0)
    (0.5, 1.0, 2.5)
    """

    rate_bytes_per_s: float | None
    free_s: float = 0.0

    def passed(self, size: int, now: float) -> float | None:
        """When a packet that comes now has been sent, None when there is no room to wait."""
        rate = self.rate_bytes_per_s
        if rate is None:
            return now
        began = max(now, self.free_s)
        if (began - now) * rate > max(QUEUE_S * rate, _LEAST_QUEUE):
            return None
        self.free_s = began + size / rate
        return self.free_s


@dataclass(slots=True)
class Carried:
    """What went over a path: packets and bytes that arrived, and packets that were lost or dropped."""

    packets: int = 0
    bytes: int = 0
    lost: int = 0
    dropped: int = 0


@dataclass
class LabNetwork:
    """Hosts by number, the paths between them and what each may download."""

    paths: dict[tuple[int, int], Path] = field(default_factory=dict)
    downloads: dict[int, float] = field(default_factory=dict)
    seed: int = 0
    carried: dict[tuple[int, int], Carried] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)  # of a simulation
        self._gates: dict[tuple[int, int], PacedGate] = {}
        self._doors = {host: PacedGate(rate) for host, rate in self.downloads.items()}
        self._arrived: dict[tuple[int, int], float] = {}

    def change(self, sender: int, receiver: int, path: Path) -> None:
        """Give a path other figures; what waits for it is forgotten."""
        self.paths[sender, receiver] = path
        self._gates.pop((sender, receiver), None)

    def send(self, sender: int, receiver: int, size: int, now: float) -> float | None:
        """When a packet arrives that is sent now, None when it does not. Packets of a path arrive in order."""
        ends = (sender, receiver)
        path, carried = self.paths.get(ends), self.carried.setdefault(ends, Carried())
        if path is None or path.cut or (path.loss and self._random.random() < path.loss):
            carried.lost += 1
            return None
        gate = self._gates.get(ends)
        if gate is None:
            gate = self._gates[ends] = PacedGate(path.rate_bytes_per_s)
        sent = gate.passed(size, now)
        if sent is not None and receiver in self._doors:
            sent = self._doors[receiver].passed(size, sent)
        if sent is None:
            carried.dropped += 1
            return None
        arrives = sent + path.delay_s + (self._random.random() * path.jitter_s if path.jitter_s else 0.0)
        arrives = self._arrived[ends] = max(arrives, self._arrived.get(ends, 0.0))
        carried.packets += 1
        carried.bytes += size
        return arrives

    def document(self) -> dict[str, Any]:
        """The network as JSON; what it has carried is left out."""
        paths = [[*ends, asdict(path)] for ends, path in self.paths.items()]
        return {"paths": paths, "downloads": [list(each) for each in self.downloads.items()], "seed": self.seed}

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """The network of a document."""
        paths = {(int(one), int(other)): Path(**path) for one, other, path in document["paths"]}
        return cls(paths, {int(host): float(rate) for host, rate in document["downloads"]}, int(document["seed"]))

    def counts(self) -> dict[str, dict[str, int]]:
        """What every path has carried, by `SENDER>RECEIVER`."""
        return {f"{one}>{other}": asdict(carried) for (one, other), carried in self.carried.items()}
