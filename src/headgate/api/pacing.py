"""Questions of one identity that take the processor of this process, such as previews: a bounded share of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from headgate.api.problems import ApiError

T = TypeVar("T")
REST: Final = 4.0
"""After a question a user waits so many times as long as it took: it has a fifth of a core at most."""
WAITING: Final = 4
"""Questions of a user that wait; more are refused."""
LONGEST_S: Final = 5.0
"""How long a question waits for the pause behind the one before; one that would wait longer is refused."""


class PacedQuestions:
    """Answers the questions of one identity one after the other, with a pause behind each."""

    def __init__(self, rest: float = REST, clock: Callable[[], float] = time.monotonic) -> None:
        self._rest = rest
        self._clock = clock
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._free_s = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """The time of one question; refused where too many wait already, or the pause is long yet."""
        if self._waiting >= WAITING:
            raise self._refused(f"{WAITING} questions of yours wait already")
        if self._free_s - self._clock() > LONGEST_S:
            raise self._refused("your last question took long, and the next one has to wait")
        self._waiting += 1
        try:
            async with self._turn:
                pause_s = self._free_s - self._clock()
                if pause_s > LONGEST_S:  # the question before this one, which it waited for, took long
                    raise self._refused("your last question took long, and the next one has to wait")
                await asyncio.sleep(max(pause_s, 0.0))
                began_s = self._clock()
                try:
                    yield
                finally:
                    ended_s = self._clock()
                    self._free_s = ended_s + self._rest * (ended_s - began_s)
        finally:
            self._waiting -= 1

    async def ask(self, work: Callable[[], T]) -> T:
        """What the work, which is done in a thread, gives."""
        async with self.turn():
            return await asyncio.to_thread(work)

    def _refused(self, why: str) -> ApiError:
        again_s = max(self._free_s - self._clock(), 1.0)
        return ApiError(
            f"{why}; try again in {again_s:.0f} s",
            hint="wait for the answers, and ask again",
            kind="too-many",
            retry_after_s=again_s,
        )
