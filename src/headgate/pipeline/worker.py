"""What a Spark worker process keeps between tasks: its connection and the indexes of recent versions."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.catalog import Snapshot
from headgate.errors import HeadgateError
from headgate.fabric import Logs, SyncFabric
from headgate.matching import Index
from headgate.pipeline.classes import index_of

_KEEP = 4


@dataclass(frozen=True)
class Address:
    """How to reach the fabric; travels to workers with the task."""

    url: str
    logs: Logs
    options: Mapping[str, Any] = field(default_factory=dict)

    def connect(self) -> SyncFabric:
        """A connection of its own."""
        return SyncFabric(self.url, self.logs, **self.options)


def read_snapshot(fabric: SyncFabric, version: int) -> Snapshot:
    """The published snapshot of a version."""
    stored = fabric.last(fabric.logs.tables, fabric.logs.table(version))
    if stored is None:
        raise HeadgateError(f"version {version} of the catalog is not published", hint="is the service running?")
    return Snapshot.from_bytes(stored.data)


class Worker:
    """One per worker process and address: opened by the first task, used by all later ones."""

    def __init__(self, address: Address) -> None:
        self.fabric = address.connect()
        self._indexes: dict[tuple[str, int], tuple[Snapshot, Index]] = {}

    def index(self, stream: str, version: int) -> tuple[Snapshot, Index]:
        """The index of a version, built once."""
        key = (stream, version)
        if key not in self._indexes:
            snapshot = read_snapshot(self.fabric, version)
            self._indexes[key] = (snapshot, index_of(snapshot, stream))
            for old in sorted(self._indexes, key=lambda each: each[1])[:-_KEEP]:
                del self._indexes[old]
        return self._indexes[key]


_lock = threading.Lock()
_workers: dict[str, Worker] = {}


def worker(address: Address) -> Worker:
    """This process's worker for an address."""
    key = f"{address.url}/{address.logs.namespace}"
    with _lock:
        if key not in _workers:
            _workers[key] = Worker(address)
        return _workers[key]
