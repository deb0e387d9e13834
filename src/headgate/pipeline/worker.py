"""What a Spark worker process keeps between tasks: its connection and the index of each stream."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.fabric import SyncFabric
from headgate.pipeline.states import Held, IndexRef, hold, hold_stricter
from headgate.wire.logs import Logs


@dataclass(frozen=True)
class Address:
    """How to reach the fabric; travels to workers with the task."""

    url: str
    logs: Logs
    options: Mapping[str, Any] = field(default_factory=dict)

    def connect(self) -> SyncFabric:
        """A connection of its own."""
        return SyncFabric(self.url, self.logs, **self.options)


class Worker:
    """One per worker process and address: opened by the first task, used by all later ones."""

    def __init__(self, address: Address) -> None:
        self.fabric = address.connect()
        self._held: dict[str, Held] = {}
        self._stricter: dict[tuple[str, float], Held] = {}

    def state(self, stream: str, version: int, ref: IndexRef | None, context: int) -> Held:
        """A stream's index under a version, with its context log read up to a place; moved in place if it can be."""
        held = hold(self.fabric, stream, version, ref, self._held.get(stream), context)
        self._held[stream] = held
        return held

    def stricter(self, stream: str, version: int, tolerance: float, context: int) -> Held:
        """As `state`, of the classes alone that tolerate less than that to be withheld from them."""
        key = (stream, tolerance)
        held = hold_stricter(self.fabric, stream, version, tolerance, self._stricter.get(key), context)
        self._stricter[key] = held
        return held


_lock = threading.Lock()
_workers: dict[str, Worker] = {}


def worker(address: Address) -> Worker:
    """This process's worker for an address."""
    key = f"{address.url}/{address.logs.namespace}"
    with _lock:
        if key not in _workers:
            _workers[key] = Worker(address)
        return _workers[key]
