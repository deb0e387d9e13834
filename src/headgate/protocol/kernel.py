"""A machine: coroutines that wait for answers to commands, run step by step by whoever feeds it events.

The kernel knows nothing of logs or rows. `handle` takes one event and the time, resumes the coroutines that waited for
it until all of them wait again, and returns the commands that they issued meanwhile. Given the same events at the same
times it issues the same commands, which is what makes a run repeatable and a failure replayable.
"""

from __future__ import annotations

import heapq
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")
_NO_HOOKS = (None, None)


class Instant(NamedTuple):
    """A moment as a machine sees it: a clock that never goes back, the wall clock, and the CPU that it has used."""

    monotonic_s: float
    wall_s: float
    cpu_s: float = 0.0


class Completed(NamedTuple):
    """A command was carried out."""

    number: int
    value: Any = None


class Failed(NamedTuple):
    """A command could not be carried out, or nobody knows whether it was."""

    number: int
    error: Exception


class Woken(NamedTuple):
    """The time of the last `WakeAt` has come."""


class Asked(NamedTuple):
    """Somebody asks this machine for something; the answer is an `Answer` with the same number."""

    number: int
    service: str
    data: Any


Event = Completed | Failed | Woken | Asked


class Issued(NamedTuple):
    """A command with the number under which its answer is expected."""

    number: int
    command: Any


class WakeAt(NamedTuple):
    """Send `Woken` at this time; a later one replaces it."""

    monotonic_s: float


class Answer(NamedTuple):
    """The answer to an `Asked`."""

    number: int
    data: Any


Output = Issued | WakeAt | Answer


class _own_generators:  # noqa: N801 # it is used as a function of `contextlib` is
    """Keeps asynchronous generators of a machine from the event loop that may run around it: it cannot close them."""

    __slots__ = ("_hooks",)

    def __enter__(self) -> None:
        self._hooks = sys.get_asyncgen_hooks()
        if self._hooks != _NO_HOOKS:
            sys.set_asyncgen_hooks(None, None)

    def __exit__(self, *_: object) -> None:
        if self._hooks != _NO_HOOKS:
            sys.set_asyncgen_hooks(*self._hooks)


class Task(Generic[T]):
    """One coroutine of a machine."""

    __slots__ = ("_machine", "_waiters", "coroutine", "done", "error", "label", "result", "waits", "watched")

    def __init__(self, machine: Machine, coroutine: Coroutine[Any, Any, T], label: str, *, watched: bool) -> None:
        self._machine = machine
        self.coroutine = coroutine
        self.label = label
        self.watched = watched
        self.done = False
        self.result: T | None = None
        self.error: Exception | None = None
        self.waits = 0
        self._waiters: list[Task[Any]] = []

    def cancel(self) -> None:
        """End it where it waits; answers that come later are passed over."""
        if not self.done:
            self.waits += 1
            self.coroutine.close()
            self._finish(None, None)

    def _finish(self, result: T | None, error: Exception | None) -> None:
        self.done, self.result, self.error = True, result, error
        for waiter in self._waiters:
            self._machine.resume(waiter, waiter.waits, None, None)
        self._waiters = []

    def __await__(self) -> Generator[Any, Any, T]:
        if not self.done:
            yield _Join(self)
        if self.error is not None:
            raise self.error
        return self.result  # type: ignore[return-value] # done without an error


class _Join(NamedTuple):
    task: Task[Any]


class _Command(NamedTuple):
    command: Any

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self)


class _Wait(NamedTuple):
    """Wait for a signal, for a time, or for whichever comes first."""

    signal: Signal | None
    until_s: float | None

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self)


class Signal:
    """Something that coroutines of one machine wait for and others announce."""

    __slots__ = ("_machine", "_waiters", "set_now")

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._waiters: list[tuple[Task[Any], int]] = []
        self.set_now = False

    def set(self) -> None:
        """Let everybody go on who waits, and who waits next."""
        self.set_now = True
        waiters, self._waiters = self._waiters, []
        for task, turn in waiters:
            self._machine.resume(task, turn, True, None)

    def clear(self) -> None:
        """From now on it has to be set again."""
        self.set_now = False

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set; False when the time was over first."""
        if self.set_now:
            return True
        until_s = None if timeout_s is None else self._machine.now.monotonic_s + timeout_s
        return bool(await _Wait(self, until_s))

    def add(self, task: Task[Any]) -> None:
        """Have a task wait."""
        self._waiters.append((task, task.waits))


class Mutex:
    """One coroutine at a time."""

    __slots__ = ("_free", "_held")

    def __init__(self, machine: Machine) -> None:
        self._free = Signal(machine)
        self._held = False

    async def __aenter__(self) -> None:
        while self._held:
            self._free.clear()
            await self._free.wait()
        self._held = True

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held = False
        self._free.set()


class Machine:
    """Coroutines behind `handle`. `serve` says who answers what others ask; `tracer` sees all that goes in and out."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.now = Instant(0.0, 0.0)
        self.tracer: Callable[[Machine, str, Any], None] | None = None
        self._ready: deque[tuple[Task[Any], int, Any, Exception | None]] = deque()
        self._pending: dict[int, tuple[Task[Any], int]] = {}
        self._timers: list[tuple[float, int, Task[Any], int]] = []
        self._out: list[Output] = []
        self._numbers = 0
        self._wake_s: float | None = None
        self._services: dict[str, Callable[[Any], Awaitable[Any]]] = {}
        self._tasks: set[Task[Any]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, T], label: str = "", *, watched: bool = False) -> Task[T]:
        """Start a coroutine; `watched` says that somebody awaits it and hears of its failure, which else ends all."""
        task = Task(self, coroutine, label or getattr(coroutine, "__qualname__", ""), watched=watched)
        self._tasks.add(task)
        self._ready.append((task, 0, None, None))
        return task

    def serve(self, service: str, handler: Callable[[Any], Awaitable[Any]]) -> None:
        """Answer what others ask under a name."""
        self._services[service] = handler

    def close(self) -> None:
        """End all coroutines."""
        with _own_generators():
            for task in list(self._tasks):
                task.coroutine.close()
        self._tasks.clear()

    def handle(self, event: Event | None, now: Instant) -> list[Output]:
        """Take in an event (None at the start) and return what is to be done. Raises what a coroutine failed with."""
        self.now = now
        if event is not None:
            if self.tracer is not None:
                self.tracer(self, "<", event)
            self._take(event)
        with _own_generators():
            self._run()
        self._set_timer()
        out, self._out = self._out, []
        if self.tracer is not None:
            for each in out:
                self.tracer(self, ">", each)
        return out

    def _take(self, event: Event) -> None:
        if isinstance(event, Completed):
            waiting = self._pending.pop(event.number, None)
            if waiting is not None:
                task, turn = waiting
                self.resume(task, turn, event.value, None)
        elif isinstance(event, Failed):
            waiting = self._pending.pop(event.number, None)
            if waiting is not None:
                task, turn = waiting
                self.resume(task, turn, None, event.error)
        elif isinstance(event, Asked):
            self.spawn(self._answer(event.number, event.service, event.data), event.service)
        else:
            self._wake_s = None
        while self._timers and self._timers[0][0] <= self.now.monotonic_s:
            _, _, task, turn = heapq.heappop(self._timers)
            self.resume(task, turn, False, None)

    async def _answer(self, number: int, service: str, data: Any) -> None:
        found = await self._services[service](data)
        self._out.append(Answer(number, found))

    def resume(self, task: Task[Any], turn: int, value: Any, error: Exception | None) -> None:
        """Let a coroutine go on that has waited for its `turn`-th time; one that has gone on since is left alone."""
        if task.waits == turn and not task.done:
            task.waits += 1
            self._ready.append((task, task.waits, value, error))

    def _run(self) -> None:
        while self._ready:
            task, turn, value, error = self._ready.popleft()
            if task.done or task.waits != turn:
                continue
            try:
                wanted = task.coroutine.send(value) if error is None else task.coroutine.throw(error)
            except StopIteration as stop:
                self._tasks.discard(task)
                task._finish(stop.value, None)  # noqa: SLF001 # a task is the kernel's own
                continue
            except Exception as failure:
                self._tasks.discard(task)
                if not task.watched:
                    raise
                task._finish(None, failure)  # noqa: SLF001
                continue
            self._suspend(task, wanted)

    def _suspend(self, task: Task[Any], wanted: Any) -> None:
        if isinstance(wanted, _Command):
            self._numbers += 1
            self._pending[self._numbers] = (task, task.waits)
            self._out.append(Issued(self._numbers, wanted.command))
        elif isinstance(wanted, _Wait):
            if wanted.signal is not None:
                wanted.signal.add(task)
            if wanted.until_s is not None:
                self._numbers += 1
                heapq.heappush(self._timers, (wanted.until_s, self._numbers, task, task.waits))
        elif isinstance(wanted, _Join):
            wanted.task._waiters.append(task)  # noqa: SLF001 # a task is the kernel's own
        else:
            raise TypeError(f"{task.label} awaits {wanted!r}, which is nothing that a machine can wait for")

    def _set_timer(self) -> None:
        while self._timers and (self._timers[0][2].done or self._timers[0][2].waits != self._timers[0][3]):
            heapq.heappop(self._timers)  # its coroutine has gone on
        if self._timers and (self._wake_s is None or self._timers[0][0] < self._wake_s):
            self._wake_s = self._timers[0][0]
            self._out.append(WakeAt(self._wake_s))

    async def perform(self, command: Any) -> Any:
        """Issue a command and wait for its answer."""
        return await _Command(command)

    async def sleep(self, seconds: float) -> None:
        """Wait for some time."""
        await _Wait(None, self.now.monotonic_s + max(seconds, 0.0))

    async def gather(self, *work: Coroutine[Any, Any, T]) -> list[T]:
        """Run coroutines side by side and wait for all of them; the first error is raised when all have ended."""
        tasks = [self.spawn(each, watched=True) for each in work]
        errors: list[Exception] = []
        results: list[T] = []
        for task in tasks:
            try:
                results.append(await task)
            except Exception as error:  # noqa: BLE001 # raised below, when nobody is left running
                errors.append(error)
        if errors:
            raise errors[0]
        return results
