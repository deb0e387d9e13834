"""Tasks that live and end together.

Python 3.11's `asyncio.wait_for`, which nats-py uses inside its requests, loses a cancellation that arrives together
with the answer: a loop that was told to end goes on. A crew therefore asks again until everybody has ended, where a
`TaskGroup` asks once and may wait for ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

T = TypeVar("T")
_ASK_AGAIN_S: Final = 0.5


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until all of them have ended; what they raise is theirs to report."""
    waiting = {task for task in tasks if not task.done()}
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=_ASK_AGAIN_S)


async def in_daemon(work: Callable[[], T]) -> T:
    """Run a function in a thread that nobody waits for: who is cancelled here, or ends the program, ends at once.

    `asyncio.to_thread` keeps the program alive until the function returns, however long that takes.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(cast("T", value))

    def run() -> None:
        value: T | None = None
        error: BaseException | None = None
        try:
            value = work()
        except Exception as raised:  # noqa: BLE001 - whatever it is belongs to the one who waits
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name="aside", daemon=True).start()
    return await result


class Crew:
    """Tasks of one owner: when the block ends, or one of them fails, all of them end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await cancel_all(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str | None = None) -> asyncio.Task[Any]:
        """Start a task."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        return task

    async def wait(self) -> None:
        """Wait until all have ended, or raise what the first one failed with."""
        while self._tasks:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            self._tasks -= done
            for task in done:
                if not task.cancelled() and (error := task.exception()) is not None:
                    raise error
