"""Tasks that live and end together.

Python 3.11's `asyncio.wait_for`, which nats-py uses inside its requests, loses a cancellation that arrives together
with the answer: a loop that was told to end goes on. A crew therefore asks again until everybody has ended, where a
`TaskGroup` asks once and may wait for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from types import TracebackType
from typing import Any, Final, Self

_ASK_AGAIN_S: Final = 0.5


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until all of them have ended; what they raise is theirs to report."""
    waiting = {task for task in tasks if not task.done()}
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=_ASK_AGAIN_S)


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
