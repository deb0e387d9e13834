"""Answering requests: side by side, so that a slow one holds up no other, and every one, also where a handler fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import Error as NatsError

from headgate.diagnostics import FABRIC, noted

FAILED: Final = "Nats-Service-Error"
"""The header of an answer that says why there is none."""
MOST_REQUESTS: Final = 256
"""How many requests to one subject are handled at a time; more are refused at once, and may be tried again."""

_log = logging.getLogger(__name__)


async def serve(
    client: Client, subject: str, handler: Callable[[bytes], Awaitable[bytes]]
) -> Callable[[], Awaitable[None]]:
    """Answer requests: `handler` takes the request's bytes and gives the answer's. Returns what ends it.

    Where the handler fails, the answer has what it failed with in a header, and `Fabric.request` raises it.
    """
    handling: set[asyncio.Task[None]] = set()

    async def reply(message: Any, data: bytes, failed: str | None = None) -> None:
        with noted(FABRIC, "the connection is away, and so is who asked", NatsError):
            await client.publish(message.reply, data, headers=None if failed is None else {FAILED: failed})

    async def answer(message: Any) -> None:
        try:
            data = await handler(message.data)
        except Exception as error:  # noqa: BLE001 - whoever asked is told, whatever it was
            _log.warning("a request to %s failed", subject, exc_info=error)
            await reply(message, b"", _one_line(error))
            return
        if len(data) > client.max_payload:
            await reply(message, b"", f"the answer has {len(data)} bytes, more than NATS takes")
        else:
            await reply(message, data)

    async def take(message: Any) -> None:
        if len(handling) >= MOST_REQUESTS:
            await reply(message, b"", f"{len(handling)} requests wait for an answer already: try again")
        elif message.reply:
            task = asyncio.create_task(answer(message))
            handling.add(task)
            task.add_done_callback(handling.discard)

    serving = await client.subscribe(subject, cb=take)

    async def end() -> None:
        if not client.is_closed:
            with noted(FABRIC, "the connection is away, and so is who asked", NatsError):
                await serving.unsubscribe()
        for task in list(handling):
            task.cancel()

    return end


def _one_line(error: BaseException) -> str:
    """An error as a header can have it."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:500].encode("ascii", "replace").decode()
