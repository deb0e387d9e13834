"""What a Spark worker process keeps between tasks: its connection and the index of each stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from headgate.fabric import SyncFabric
from headgate.fabric.address import directory_of
from headgate.fabric.place import PORT_FILE, ServerPlace
from headgate.filters.cost import evaluation
from headgate.filters.profiles import relational
from headgate.matching import MatchingError, RowFilter
from headgate.matching.metering import Meter
from headgate.pipeline.derived_memory import DerivedMemory
from headgate.pipeline.sharing import fetched
from headgate.pipeline.states import IndexRef, StreamState, hold, hold_stricter
from headgate.wire.logs import Logs


def estimated_us(where: RowFilter) -> float:
    """What evaluating a filter was estimated to take for each row, in microseconds; 0 for one without an estimate."""
    found = relational(where)
    return 0.0 if found is None else evaluation(found.expr).row_us


@dataclass(frozen=True)
class Address:
    """How to reach the fabric; travels to workers with the task."""

    url: str
    logs: Logs
    options: Mapping[str, Any] = field(default_factory=dict)
    credentials_text: str = field(default="", repr=False)
    """What is in the credentials file of the options, for who has no such file."""

    def connect(self) -> SyncFabric:
        """A connection of its own."""
        if not self.credentials_text:
            return SyncFabric(self.url, self.logs, **self.options)
        options = {name: value for name, value in self.options.items() if name != "user_credentials"}
        return SyncFabric(self.url, self.logs, credentials_text=self.credentials_text, **options)

    def portable(self) -> Address:
        """The same for processes that do not see the files of this machine.

        The directory of an embedded server becomes the address of the network that it listens on now.
        """
        directory, file = directory_of(self.url), self.options.get("user_credentials")
        place = None if directory is None else ServerPlace.read(directory / PORT_FILE)
        text = "" if file is None else Path(file).read_text(encoding="utf-8")
        return replace(self, url=self.url if place is None else place.url, credentials_text=text)


class PartLog(Protocol):
    """Where the match pass puts its parts and dead letters."""

    @property
    def max_payload(self) -> int:
        """How many bytes a message may have."""
        ...

    @property
    def logs(self) -> Logs:
        """The names of its subjects."""
        ...

    def publish_all(self, subject: str, messages: list[bytes]) -> list[int]:
        """Append messages; returns their places."""
        ...


class Bench(Protocol):
    """What the match pass works with: an index of each stream, and a log for what it stages."""

    @property
    def fabric(self) -> PartLog:
        """Where parts go."""
        ...

    def state(self, stream: str, version: int, ref: IndexRef | None, context: int) -> StreamState:
        """A stream's index under a version, with its context log read up to a place."""
        ...

    def stricter(self, stream: str, version: int, tolerance: float, context: int) -> StreamState:
        """The same of the classes alone that tolerate less than that to be withheld from them."""
        ...

    def meter(self, stream: str) -> Meter:
        """What tells the classes of a stream that take too long."""
        ...

    def memory(self, stream: str) -> DerivedMemory:
        """What derived columns of a stream remember."""
        ...


class Worker:
    """One per worker process and address: opened by the first task, used by all later ones."""

    def __init__(self, address: Address) -> None:
        self.fabric = address.connect()
        self._held: dict[str, StreamState] = {}
        self._stricter: dict[tuple[str, float], StreamState] = {}
        self._meters: dict[str, Meter] = {}
        self._memories: dict[str, DerivedMemory] = {}

    def state(self, stream: str, version: int, ref: IndexRef | None, context: int) -> StreamState:
        """A stream's index under a version, with its context log read up to a place; moved in place if it can be."""
        here, trouble = ref, ""
        try:
            here = None if ref is None else fetched(ref, stream)
        except (MatchingError, OSError) as error:
            here, trouble = None, f"the index of version {version} is compiled from the catalog: {error}"
        held = hold(self.fabric, stream, version, here, self._held.get(stream), context)
        held = replace(held, trouble=trouble) if trouble else held
        self._held[stream] = held
        meter = self.meter(stream)
        meter.forget(held.state.classes)
        held.state.measure(meter)
        return held

    def meter(self, stream: str) -> Meter:
        """What tells the classes of a stream that take far longer than was estimated."""
        return self._meters.setdefault(stream, Meter(time.thread_time, estimated_us))

    def memory(self, stream: str) -> DerivedMemory:
        """What derived columns of a stream remember, of the partitions that this process was given before."""
        return self._memories.setdefault(stream, DerivedMemory(self.fabric, stream))

    def stricter(self, stream: str, version: int, tolerance: float, context: int) -> StreamState:
        """As `state`, of the classes alone that tolerate less than that to be withheld from them."""
        key = (stream, tolerance)
        held = hold_stricter(self.fabric, stream, version, tolerance, self._stricter.get(key), context)
        self._stricter[key] = held
        held.state.measure(self.meter(stream))
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
