"""Where requests are taken in and served in turn: a few at a time, everybody's with the same right.

See `headgate.service.request_turns` for who is next. This is its asyncio side.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

from headgate.diagnostics import SERVICE
from headgate.fabric import cancel_all
from headgate.fabric.serving import RequestCall
from headgate.model import RequestLimits
from headgate.model.caller import Caller
from headgate.service.request_turns import RequestTurns

Answer = Callable[[Caller, bytes], Awaitable[bytes | None]]


class Desk:
    """Serves so many requests at a time. One that is refused is told why, and when to come back."""

    def __init__(self, limits: RequestLimits, at_a_time: int) -> None:
        self.turns: RequestTurns[tuple[Caller, RequestCall, Answer]] = RequestTurns(limits)
        self._at_a_time = at_a_time
        self._arrived = asyncio.Event()
        self._clerks: list[asyncio.Task[None]] = []

    def open(self) -> None:
        """Begin to serve."""
        self._clerks = [asyncio.create_task(self._serve(), name="requests") for _ in range(self._at_a_time)]

    async def close(self) -> None:
        """Serve no more; who waits asks again."""
        await cancel_all(self._clerks)

    async def take(self, caller: Caller, call: RequestCall, answer: Answer) -> None:
        """Take a request in, or refuse it at once."""
        again_s = self.turns.offer(caller.flow, (caller, call, answer), time.monotonic())
        if again_s is None:
            self._arrived.set()
            return
        if self.turns.refused & (self.turns.refused - 1) == 0:  # the 1st, 2nd, 4th, 8th, ...
            SERVICE.warning("%d requests were refused as too many, the last of %r", self.turns.refused, caller.name)
        await call.reply(json.dumps(refusal(caller, self.turns.limits, again_s)).encode())

    async def _serve(self) -> None:
        while True:
            found = self.turns.take()
            if found is None:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            caller, call, answer = found

            async def handler(data: bytes, caller: Caller = caller, answer: Answer = answer) -> bytes | None:
                return await answer(caller, data)

            await call.answer(handler)


def refusal(caller: Caller, limits: RequestLimits, again_s: float) -> dict[str, object]:
    """The answer to a request that is one too many."""
    return {
        "error": f"{caller.name!r} asks too often: {limits.requests_per_s:g} requests a second, {limits.burst} at once "
        f"and {limits.waiting} that wait are allowed; nothing was changed (try again in {again_s:.2f} s)",
        "busy": True,
        "kind": "busy",
        "retry_after_s": round(again_s, 3),
    }
