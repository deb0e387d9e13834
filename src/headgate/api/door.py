"""The door of the API: how often each user may ask, and how many of its requests are dealt with at a time.

All requests share the processor of one process. A user who sends many at once has a few that are dealt with and a queue
of its own behind them; the request of anybody else waits for none of those that queue. Operators are not counted, and
neither is who gives no token: such a request is refused before anything is read for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.api.access import Access
from headgate.api.problems import ApiError, problem_response
from headgate.model import RequestLimits

AT_A_TIME: Final = 8
"""Requests of one user that are dealt with at a time, until they begin to answer."""
BURST_S: Final = 4.0
"""For how long requests may be made ahead."""
HELD_S: Final = 0.25
"""How long a refusal is held back at most: whoever waits for an answer before it asks again is slowed down by it."""
_TOO_MUCH: Final = 1013


@dataclass(slots=True)
class _Visits:
    tokens: float
    seen_s: float
    dealt_with: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class VisitorTurns:
    """The requests of each user: at a rate, a few at a time, the others in a queue of bounded length."""

    def __init__(self, limits: RequestLimits) -> None:
        self._rate, self._waiting = limits.http_per_s, limits.waiting
        self._burst = max(self._rate * BURST_S, 1.0)
        self._users: dict[str, _Visits] = {}

    def refused_s(self, user: str, now_s: float) -> float | None:
        """Count a request of a user; where it is one too many, after how many seconds it may be made again.

        >>> turns = VisitorTurns(RequestLimits(http_per_s=1.0))
        >>> [turns.refused_s("ada", 0.0) for _ in range(5)], turns.refused_s("bob", 0.0), turns.refused_s("ada", 1.0)
        ([None, None, None, None, 1.0], None, None)
        """
        found = self._users.setdefault(user, _Visits(self._burst, now_s))
        found.tokens = min(found.tokens + (now_s - found.seen_s) * self._rate, self._burst)
        found.seen_s = now_s
        if found.tokens < 1.0:
            return (1.0 - found.tokens) / self._rate
        if len(found.waiting) >= self._waiting:
            return max(len(found.waiting) / self._rate, 1.0)
        found.tokens -= 1.0
        return None

    async def begin(self, user: str) -> None:
        """Wait for the turn of a request that was counted."""
        found = self._users[user]
        if found.dealt_with < AT_A_TIME:
            found.dealt_with += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        found.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.end(user)  # it had its turn already: the next one gets it
            elif turn in found.waiting:
                found.waiting.remove(turn)
            raise

    def end(self, user: str) -> None:
        """A request is dealt with: the next of the user's has its turn."""
        found = self._users[user]
        while found.waiting:
            turn = found.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        found.dealt_with -= 1


class ApiDoor:
    """Counts requests by who makes them before they are read, and lets each wait for its turn."""

    def __init__(self, app: ASGIApp, access: Access, limits: RequestLimits) -> None:
        self._app = app
        self._access = access
        self._limits = limits
        self._turns = VisitorTurns(limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on in its turn, or refuse it."""
        user = self._user(scope) if scope["type"] in ("http", "websocket") else None
        if user is None:
            await self._app(scope, receive, send)
            return
        again_s = self._turns.refused_s(user, time.monotonic())
        if again_s is not None:
            await self._refuse(user, again_s, scope, receive, send)
        elif scope["type"] == "websocket" or _receives(scope):
            await self._app(scope, receive, send)
        else:
            await self._deal(user, scope, receive, send)

    def _user(self, scope: Scope) -> str | None:
        """The user who makes a request; None for operators, and where nobody is named: that is refused further in."""
        try:
            visitor = self._access.identify(HTTPConnection(scope))
        except ApiError:
            return None
        return None if visitor.user is None else visitor.name

    async def _deal(self, user: str, scope: Scope, receive: Receive, send: Send) -> None:
        await self._turns.begin(user)
        busy = True

        async def sending(message: Message) -> None:
            nonlocal busy
            if busy and message["type"] == "http.response.start":
                busy = False
                self._turns.end(user)
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            if busy:
                self._turns.end(user)

    async def _refuse(self, user: str, again_s: float, scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(min(again_s, HELD_S))
        rate = f"{self._limits.http_per_s:g} requests a second and {self._limits.waiting} that wait are allowed"
        said = f"{user!r} asks too often: {rate}; nothing was changed (try again in {again_s:.2f} s)"
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _TOO_MUCH, "reason": said[:120]})
            return
        error = ApiError(said, hint="wait, and ask again", kind="too-many", retry_after_s=again_s)
        await problem_response(error)(scope, receive, send)


def _receives(scope: Scope) -> bool:
    """Whether a request may wait for rows before it answers; how many readers a user has is limited elsewhere."""
    return scope["method"] == "GET" and str(scope["path"]).endswith(("/rows", "/events"))
