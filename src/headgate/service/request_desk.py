"""Where requests are taken in and served in turn: a few at a time, everybody's with the same right.

See `headgate.service.request_turns` for who is next. This is its asyncio side. A refusal is held back for a moment:
whoever waits for an answer before it asks again, however many questions it has open, is slowed down by it, and what it
sends does not take the time of others.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from headgate.diagnostics import SERVICE
from headgate.fabric import cancel_all
from headgate.fabric.serving import RequestCall
from headgate.model import RequestLimits
from headgate.model.caller import Caller
from headgate.service.request_turns import RequestTurns

HELD_S: Final = 0.25
"""How long a refusal is held back at most; never past the time after which the request may be tried again."""
MOST_HELD: Final = 512
"""Refusals that are held back at a time; more are told at once."""
Answer = Callable[[Caller, bytes], Awaitable[bytes | None]]


class Desk:
    """Serves so many requests at a time. One that is refused is told why, and when to come back."""

    def __init__(self, limits: RequestLimits, at_a_time: int) -> None:
        self.turns: RequestTurns[tuple[Caller, RequestCall, Answer]] = RequestTurns(limits)
        self._at_a_time = at_a_time
        self._arrived = asyncio.Event()
        self._clerks: list[asyncio.Task[None]] = []
        self._held: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Begin to serve."""
        self._clerks = [asyncio.create_task(self._serve(), name="requests") for _ in range(self._at_a_time)]

    async def close(self) -> None:
        """Serve no more; who waits asks again."""
        await cancel_all([*self._clerks, *self._held])

    async def take(self, caller: Caller, call: RequestCall, answer: Answer) -> None:
        """Take a request in, or refuse it within `HELD_S`."""
        again_s = self.turns.offer(caller.flow, (caller, call, answer), time.monotonic())
        if again_s is None:
            self._arrived.set()
            return
        if self.turns.refused & (self.turns.refused - 1) == 0:  # the 1st, 2nd, 4th, 8th, ...
            SERVICE.warning("%d requests were refused as too many, the last of %r", self.turns.refused, caller.name)
        await self._say_later(caller, call, again_s)

    async def charge(self, flow: str, requests: int) -> None:
        """Count a request as so many more; what waits of a flow that has used up more than it may have is refused."""
        waiting, again_s = self.turns.charge(flow, requests)
        for caller, call, _ in waiting:
            await self._say_later(caller, call, again_s)

    async def _say_later(self, caller: Caller, call: RequestCall, again_s: float) -> None:
        """Refuse a request, in a moment."""
        if len(self._held) >= MOST_HELD:
            await call.reply(json.dumps(refusal(caller, self.turns.limits, again_s)).encode())
            return
        task = asyncio.create_task(self._refuse(caller, replace(call, data=b""), again_s), name="refusal")
        self._held.add(task)
        task.add_done_callback(self._held.discard)

    async def _refuse(self, caller: Caller, call: RequestCall, again_s: float) -> None:
        held_s = min(again_s, HELD_S)
        await asyncio.sleep(held_s)
        await call.reply(json.dumps(refusal(caller, self.turns.limits, again_s - held_s)).encode())

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
