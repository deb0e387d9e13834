"""What a relay measures of itself and of its links, for the tuner: CPU per block, and the latency of links in use.

A link's latency is taken in two parts, each with one clock, so that clocks of sites need not agree: the sender times
its publication and takes half of the way there and back, the receiver times a message from the site log to its hands.
Both keep the least of the last second, which a queue in the way does not blur.
"""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Least:
    """The least value by name since the last report; what was not seen since then keeps its last one."""

    def __init__(self) -> None:
        self._known: dict[str, float] = {}
        self._seen: dict[str, float] = {}

    def note(self, name: str, value: float) -> None:
        """One measurement."""
        self._seen[name] = min(value, self._seen.get(name, value))

    def report(self) -> dict[str, float]:
        """What is known now; a new window begins."""
        self._known |= self._seen
        self._seen = {}
        return {name: round(value, 6) for name, value in self._known.items()}


class Meters:
    """One relay's measurements. CPU is that of the relay's own steps, also where many relays share a process."""

    def __init__(self) -> None:
        self.blocks = 0
        self.cpu_s = 0.0
        self.sent = Least()
        self.arrived = Least()

    async def spent(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and count the CPU of its steps; what runs while it waits is not counted."""
        result: T = await self._steps(work)
        return result

    @types.coroutine
    def _steps(self, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        error: BaseException | None = None
        while True:
            began = time.thread_time()
            try:
                waited = work.send(None) if error is None else work.throw(error)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # what the coroutine returned
            finally:
                self.cpu_s += time.thread_time() - began
            try:
                yield waited
                error = None
            except BaseException as caught:  # noqa: BLE001 - a cancellation belongs to the coroutine
                error = caught

    def timed(self, work: Callable[[], T]) -> Callable[[], tuple[T, float]]:
        """Work for another thread, returning its CPU seconds besides."""

        def run() -> tuple[T, float]:
            began = time.thread_time()
            return work(), time.thread_time() - began

        return run

    def report(self) -> dict[str, Any]:
        """JSON-ready: totals since the start, and the latency parts of links by neighbour."""
        return {
            "blocks": self.blocks,
            "cpu_s": round(self.cpu_s, 6),
            "sent_s": self.sent.report(),
            "arrived_s": self.arrived.report(),
        }
