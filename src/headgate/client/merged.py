"""One subscription to a stream of several roots: its inboxes read together, in the order of each root."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from headgate.client.delivery import Delivery, Inbox
from headgate.fabric import cancel_all


class MergedInbox:
    """Iterate over it as over an `Inbox`. Sequence numbers, order and acknowledgements are those of each root.

    One delivery of each root at most is read ahead. `done` says that all deliveries handed over so far were dealt with.
    """

    def __init__(self, name: str, inboxes: list[Inbox]) -> None:
        self.name = name
        self.inboxes = tuple(inboxes)
        self._last: Inbox | None = None

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        streams = {inbox: inbox.__aiter__() for inbox in self.inboxes}
        waiting = {asyncio.ensure_future(anext(stream)): inbox for inbox, stream in streams.items()}
        try:
            while waiting:
                ready, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(ready, key=lambda each: waiting[each].name):
                    self._last = inbox = waiting.pop(task)
                    yield task.result()
                    inbox.done()  # the consumer has asked for more
                    waiting[asyncio.ensure_future(anext(streams[inbox]))] = inbox
        finally:
            await cancel_all(list(waiting))
            for stream in streams.values():
                await stream.aclose()  # type: ignore[attr-defined] # it is a generator
            await self.close()

    def limit(self, max_rows: int) -> None:
        """Let deliveries have at most so many rows from now on."""
        for inbox in self.inboxes:
            inbox.max_rows = max_rows

    def done(self) -> None:
        """Say that the last delivery was dealt with, without asking for another; it is acknowledged soon."""
        if self._last is not None:
            self._last.done()

    async def close(self) -> None:
        """Acknowledge what the consumer was done with."""
        for inbox in self.inboxes:
            await inbox.close()
