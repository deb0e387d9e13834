"""Runs a machine of the protocol on a real connection: carries out its commands and tells it what came of them.

It decides nothing. Every command is a task; its answer, or its failure, is an event. Time is the loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Self

from headgate import faults
from headgate.diagnostics import FABRIC
from headgate.diagnostics import Log as Logger
from headgate.fabric.client import Fabric
from headgate.fabric.crew import cancel_all
from headgate.fabric.streaming import NoStreamError
from headgate.protocol import kernel, port
from headgate.wire.logs import Log
from headgate.wire.snapshot import Snapshot
from headgate.wire.unreadable import UnreadableError

_MENDED_S: Final = 1.0
_SAMPLED: Final = 16  # of so many events the processor time of one is measured, and stands for all of them

LoadTable = Callable[[int], Awaitable[Snapshot]]
Consumer = Callable[[Any, Callable[[], None]], None]
"""Takes what a machine hands over, and calls what it is given when it is done with it."""


class Runner:
    """One machine on one connection. Use it as an async context manager; `failure` is set when the machine fails."""

    def __init__(
        self,
        fabric: Fabric,
        machine: kernel.Machine,
        table: LoadTable,
        *,
        services: tuple[str, ...] = (),
        streams: Mapping[str, Log] | None = None,
        consumer: Consumer | None = None,
        log: Logger = FABRIC,
    ) -> None:
        """`table` gives versions of the catalog, `services` are subjects that it answers on.

        `streams` are subjects, and their logs, whose messages the server sends by itself (`headgate.fabric.streaming`).

        `log` gets every command that failed, at the level `debug`: what that means is the machine's to decide.
        """
        self._log = log
        self._fabric = fabric
        self._machine = machine
        self._table = table
        self._services = services
        self._streams = {subject: fabric.stream(log, subject) for subject, log in (streams or {}).items()}
        self._consumer = consumer
        self._cpu_s = 0.0
        self._events = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._queue: deque[kernel.Event | None] = deque()
        self._feeding = False
        self._asked = 0
        self._wakes: dict[str, asyncio.Event] = {}
        self._heard: set[str] = set()
        self._hint = asyncio.Event()
        self._ends: list[Callable[[], Awaitable[None]]] = []
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        for subject in self._services:
            self._ends.append(await self._fabric.serve(subject, self._service(subject)))
        self.feed(None)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.failure.done():
            self.failure.cancel()
        self._machine.close()
        await cancel_all(self._tasks)
        for end in (*self._ends, *(stream.close for stream in self._streams.values())):
            await end()
        for answer in self._answers.values():
            answer.cancel()

    def feed(self, event: kernel.Event | None) -> None:
        """Give the machine an event and carry out what it wants; what is answered at once follows in turn."""
        self._queue.append(event)
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._queue and not self.failure.done():
                self._handle(self._queue.popleft())
        finally:
            self._feeding = False

    def _handle(self, event: kernel.Event | None) -> None:
        # Asking for the processor time is itself a large part of a small event's work.
        self._events += 1
        sampled = self._events % _SAMPLED == 0
        began = time.thread_time() if sampled else 0.0
        try:
            wanted = self._machine.handle(event, kernel.Instant(time.monotonic(), time.time(), self._cpu_s))
        except Exception as error:  # noqa: BLE001 - whoever runs the machine hears of it
            self._log.debug("the machine has failed", exc_info=error)
            self.failure.set_exception(error)
            return
        finally:
            if sampled:
                self._cpu_s += (time.thread_time() - began) * _SAMPLED
        for each in wanted:
            match each:
                case kernel.Issued(number, command):
                    self._issue(number, command)
                case kernel.WakeAt(monotonic_s):
                    self._wake_at(monotonic_s)
                case kernel.Answer(number, data):
                    answer = self._answers.pop(number, None)
                    if answer is not None and not answer.done():
                        answer.set_result(data)

    def _issue(self, number: int, command: Any) -> None:
        """Have a command carried out: by a task, unless its answer is the consumer's."""
        if isinstance(command, port.HandOver):
            assert self._consumer is not None
            self._consumer(command.item, partial(self.feed, kernel.Completed(number)))
            return
        task = asyncio.create_task(self._carry_out(number, command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _wake_at(self, monotonic_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(monotonic_s - time.monotonic(), 0.0)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self.feed, kernel.Woken())

    def _service(self, subject: str) -> Callable[[bytes], Awaitable[bytes]]:
        async def answer(data: bytes) -> bytes:
            found: bytes = await self.ask(subject, data)
            return found

        return answer

    async def _carry_out(self, number: int, command: Any) -> None:
        try:
            value = await self._do(command)
        except Exception as error:  # noqa: BLE001 - the machine knows what to do about it
            self._log.debug("%s failed: %s", type(command).__name__, error if str(error) else repr(error))
            self.feed(kernel.Failed(number, error))
        else:
            self.feed(kernel.Completed(number, value))

    async def _do(self, command: Any) -> Any:  # noqa: C901 # one line a command
        fabric = self._fabric
        match command:
            case port.Append(subject, data, expect, replace):
                faults.reach("relay.before_publish")
                sequence = await fabric.publish(subject, data, expect=expect, replace=replace)
                faults.reach("relay.after_publish")
                return sequence
            case port.Next():
                return await self._next(command)
            case port.Listen(subjects, timeout_s):
                return await self._hear(subjects, timeout_s)
            case port.Read(log, subject, after, limit):
                return await fabric.read(log, subject, after, limit=limit)
            case port.Last(log, subject):
                return await fabric.last(log, subject)
            case port.Get(log, sequence):
                return await fabric.get(log, sequence)
            case port.Lasts(log, subjects):
                return await fabric.lasts(log, subjects)
            case port.Subjects(log, pattern):
                return await fabric.subjects(log, pattern)
            case port.Names(subject):
                return await fabric.names(subject)
            case port.Purge(log, subject, below):
                return await fabric.purge(log, subject, below)
            case port.Ensure(log):
                return await fabric.ensure(log)
            case port.Info(log):
                return await fabric.usage(log)
            case port.Ask(subject, data, timeout_s):
                return await fabric.request(subject, data, timeout_s)
            case port.NeedTable(version):
                return await self._need(version)
            case port.Computation(run):
                return await asyncio.to_thread(run)
            case _:
                raise TypeError(f"a machine wants {command!r}, which nobody can carry out")

    async def _next(self, command: port.Next) -> list[port.Stored]:
        """The next messages; where the server does not send them by itself, they are asked for."""
        log, subject, after, limit = command
        stream = self._streams.get(subject)
        if stream is not None:
            try:
                return await self._fabric.streamed(stream, log, subject, after, limit)
            except NoStreamError as error:
                self._log.debug("%s", error)
        return await self._fabric.awaited(log, subject, after, await self._listen(subject), limit=limit)

    async def _need(self, version: int) -> Snapshot:
        """A version of the catalog; where something else is in its place, as soon as that was mended."""
        while True:
            try:
                return await self._table(version)
            except UnreadableError as error:
                self._fabric.quarantine.add(error, "waited for until it is published again")
                await asyncio.sleep(_MENDED_S)

    async def _hear(self, subjects: tuple[str, ...], timeout_s: float) -> None:
        """Wait for a hint on one of some subjects; what came since the last time counts."""
        fresh = [subject for subject in subjects if subject not in self._heard]
        for subject in fresh:
            self._heard.add(subject)
            self._ends.append(await self._fabric.listen(subject, self._hint))
        if not fresh:  # something may have come before it was listened for: look first
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._hint.wait()
        self._hint.clear()

    def tell(self, service: str, data: Any = None) -> None:
        """Tell the machine something, without waiting for an answer."""
        self._asked += 1
        self.feed(kernel.Asked(self._asked, service, data))

    async def ask(self, service: str, data: Any = None) -> Any:
        """Ask the machine for something, and wait for its answer."""
        self._asked += 1
        future = self._answers[self._asked] = asyncio.get_running_loop().create_future()
        self.feed(kernel.Asked(self._asked, service, data))
        return await future

    async def _listen(self, subject: str) -> asyncio.Event:
        """The event that is set when something comes on a subject."""
        wake = self._wakes.get(subject)
        if wake is None:
            wake = self._wakes[subject] = asyncio.Event()
            self._ends.append(await self._fabric.listen(subject, wake))
        return wake


async def run_machine(
    fabric: Fabric,
    machine: kernel.Machine,
    table: LoadTable,
    *,
    services: tuple[str, ...] = (),
    streams: Mapping[str, Log] | None = None,
    log: Logger = FABRIC,
) -> None:
    """Run a machine until it fails or the task is cancelled."""
    async with Runner(fabric, machine, table, services=services, streams=streams, log=log) as runner:
        await runner.failure
