"""Questions of one user that take the processor of this process, such as previews: a bounded share of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, TypeVar

from headgate.api.problems import ApiError

T = TypeVar("T")
REST: Final = 4.0
"""After a question a user waits so many times as long as it took: it has a fifth of a core at most."""
WAITING: Final = 4
"""Questions of a user that wait; more are refused."""


class PacedQuestions:
    """Answers the questions of one user one after the other, in a thread, with a pause behind each."""

    def __init__(self, rest: float = REST) -> None:
        self._rest = rest
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._free_s = 0.0

    async def ask(self, work: Callable[[], T]) -> T:
        """What the work gives; refused where too many questions wait already."""
        if self._waiting >= WAITING:
            raise ApiError(
                f"{WAITING} questions of yours wait already", hint="wait for their answers, and ask again", kind="busy"
            )
        self._waiting += 1
        try:
            async with self._turn:
                await asyncio.sleep(max(self._free_s - time.monotonic(), 0.0))
                began_s = time.monotonic()
                try:
                    return await asyncio.to_thread(work)
                finally:
                    ended_s = time.monotonic()
                    self._free_s = ended_s + self._rest * (ended_s - began_s)
        finally:
            self._waiting -= 1
