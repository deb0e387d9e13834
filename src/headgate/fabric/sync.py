"""The same connection for code without an event loop: Spark tasks, the driver, the plain client."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from headgate.closing import Closing
from headgate.fabric.connecting import connect_as
from headgate.fabric.quarantine import report_quarantine
from headgate.protocol.port import Stored
from headgate.protocol.quarantine import Quarantine
from headgate.wire.logs import Log, Logs

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread of its own, for code without one. Safe to use from several threads."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @classmethod
    def opened(cls, name: str, work: Coroutine[Any, Any, T]) -> tuple[Self, T]:
        """A loop and what was opened on it; the loop ends where that fails."""
        loop = cls(name)
        try:
            return loop, loop.run(work)
        except BaseException:
            loop.close()
            raise

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def close(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        self._loop.close()


class SyncFabric(Closing):
    """A `Fabric` on an event loop of its own, in a daemon thread. Safe to use from several threads."""

    def __init__(self, url: str, logs: Logs | None = None, **options: Any) -> None:
        self._loop, self.fabric = LoopThread.opened("headgate-fabric", connect_as(url, logs, **options))
        self.logs = self.fabric.logs

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = 60.0) -> T:
        """Run a coroutine on the connection's loop and wait for its result."""
        return self._loop.run(work, timeout_s)

    def close(self) -> None:
        """Close the connection and end the thread."""
        with contextlib.closing(self._loop):
            self.run(self.fabric.close(), 5.0)

    @property
    def max_payload(self) -> int:
        """The largest message that the server takes."""
        return self.fabric.max_payload

    @property
    def quarantine(self) -> Quarantine:
        """What was set aside because it could not be read."""
        return self.fabric.quarantine

    def report_quarantine(self, process: str) -> None:
        """Publish what was set aside, if that has changed."""
        self.run(report_quarantine(self.fabric, process))

    def ensure(self, log: Log) -> None:
        """Make a log, or bring it to the table's limits."""
        self.run(self.fabric.ensure(log))

    def publish(self, subject: str, data: bytes, *, expect: int | None = None) -> int:
        """Append to a log and return the sequence, once it is stored."""
        return self.run(self.fabric.publish(subject, data, expect=expect))

    def publish_all(self, subject: str, messages: list[bytes]) -> list[int]:
        """Append several messages at once; their sequences come in the order of the messages."""

        async def gather() -> list[int]:
            return list(await asyncio.gather(*(self.fabric.publish(subject, data) for data in messages)))

        return self.run(gather())

    def last(self, log: Log, subject: str) -> Stored | None:
        """The last message of a subject."""
        return self.run(self.fabric.last(log, subject))

    def get(self, log: Log, sequence: int) -> Stored | None:
        """The message with that sequence, None when it was purged."""
        return self.run(self.fabric.get(log, sequence))

    def read(self, log: Log, subject: str, after: int, *, limit: int = 256) -> list[Stored]:
        """The next messages of a subject after a sequence."""
        return self.run(self.fabric.read(log, subject, after, limit=limit))

    def purge(self, log: Log, subject: str, below: int) -> None:
        """Delete a subject's messages with a sequence below this one."""
        self.run(self.fabric.purge(log, subject, below))

    def request(self, subject: str, data: bytes, timeout_s: float = 10.0) -> bytes:
        """Ask a service and return its answer."""
        return self.run(self.fabric.request(subject, data, timeout_s), timeout_s + 5.0)
