"""Answering requests: side by side, so that a slow one holds up no other, and every one, also where a handler fails."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error as NatsError

from headgate.diagnostics import FABRIC, noted

FAILED: Final = "Nats-Service-Error"
"""The header of an answer that says why there is none."""
MOST_REQUESTS: Final = 256
"""How many requests to one subject are handled at a time; more are refused at once, and may be tried again."""

_log = logging.getLogger(__name__)
End = Callable[[], Awaitable[None]]
Handler = Callable[[bytes], Awaitable[bytes]]
Guard = Callable[[str, bytes], Awaitable[bool]]
"""Whether another site may ask this, by its name and the request."""


@dataclass(frozen=True, slots=True)
class RequestCall:
    """A request as it arrived, and how to answer it."""

    client: Client
    subject: str
    data: bytes
    reply_to: str
    headers: Mapping[str, str]

    @property
    def connection(self) -> str:
        """What tells the connection of whoever asks from others of the same user.

        That is its number, as the server says; within the account of the logs, the beginning of where it hears.
        """
        return str(self._asker.get("id", "")) or self.reply_to.rpartition(".")[0]

    @property
    def origin(self) -> str:
        """Where whoever asks connects from, as the server says; empty within the account of the logs."""
        return str(self._asker.get("host", ""))

    @property
    def _asker(self) -> Mapping[str, Any]:
        """What the server says about whoever asks from another account."""
        try:
            return dict(json.loads(self.headers["Nats-Request-Info"]))
        except (KeyError, ValueError, TypeError):
            return {}

    async def reply(self, data: bytes, failed: str | None = None) -> None:
        """Answer; nothing happens where the connection, and with it whoever asked, is away."""
        if len(data) > self.client.max_payload:
            data, failed = b"", f"the answer has {len(data)} bytes, more than NATS takes"
        await self.send(data, None if failed is None else {FAILED: failed})

    async def send(self, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send one message to whoever asked; there may be several."""
        with noted(FABRIC, "the connection is away, and so is who asked", NatsError):
            await self.client.publish(self.reply_to, data, headers=None if headers is None else dict(headers))

    async def answer(self, handler: Callable[[bytes], Awaitable[bytes | None]]) -> None:
        """Answer with what a handler gives, or with what it failed with, which `Fabric.request` then raises.

        A handler that has answered by itself gives None.
        """
        try:
            data = await handler(self.data)
        except Exception as error:  # noqa: BLE001 - whoever asked is told, whatever it was
            _log.warning("a request to %s failed", self.subject, exc_info=error)
            await self.reply(b"", _one_line(error))
        else:
            if data is not None:
                await self.reply(data)


async def receive(client: Client, subject: str, take: Callable[[RequestCall], Awaitable[None]]) -> End:
    """Hand every request to a subject (wildcards allowed) to `take`, one after the other. Returns what ends it.

    A message that wants no answer is no request and is dropped.
    """

    async def arrived(message: Any) -> None:
        if message.reply:
            await take(RequestCall(client, message.subject, message.data, message.reply, message.headers or {}))

    receiving = await client.subscribe(subject, cb=arrived)

    async def end() -> None:
        if not client.is_closed:
            with noted(FABRIC, "the connection is away, and so is who asked", NatsError):
                await receiving.unsubscribe()

    return end


async def serve(client: Client, subject: str, handler: Handler) -> End:
    """Answer requests side by side: `handler` takes a request's bytes and gives the answer's. Returns what ends it."""
    handling: set[asyncio.Task[None]] = set()

    async def take(call: RequestCall) -> None:
        if len(handling) >= MOST_REQUESTS:
            await call.reply(b"", f"{len(handling)} requests wait for an answer already: try again")
            return
        task = asyncio.create_task(call.answer(handler))
        handling.add(task)
        task.add_done_callback(handling.discard)

    stop = await receive(client, subject, take)

    async def end() -> None:
        await stop()
        for task in list(handling):
            task.cancel()

    return end


def _one_line(error: BaseException) -> str:
    """An error as a header can have it."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:500].encode("ascii", "replace").decode()


async def serve_others(client: Client, subject: str, handler: Handler, guard: Guard) -> End:
    """Answer what other sites ask, each under its own name behind the subject, where the guard lets it through."""

    async def take(call: RequestCall) -> None:
        task = asyncio.create_task(answer(call))
        waiting.add(task)
        task.add_done_callback(waiting.discard)

    async def answer(call: RequestCall) -> None:
        asker = call.subject.rsplit(".", 1)[1]
        if await guard(asker, call.data):
            await call.answer(handler)
        else:
            await call.reply(b"", f"{asker} may not ask this here")

    waiting: set[asyncio.Task[None]] = set()
    return await receive(client, f"{subject}.*", take)
