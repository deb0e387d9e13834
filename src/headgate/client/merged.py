"""One subscription to a stream of several roots: its inboxes read together, in the order of each root.

There is no order between roots, but there is a position in all of them: the positions at each, in one token. A client
that stores it with what it did, and resumes with it, sees every row of every root exactly once.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

from headgate.client.delivery import Delivery, Inbox, read_position
from headgate.client.errors import ClientError
from headgate.fabric import cancel_all

_TOGETHER = "positions"


def join_positions(positions: Iterable[str]) -> str:
    """One token of the positions at several roots.

    >>> split_positions(join_positions(["one", "two"]), "map")
    ('one', 'two')
    """
    document = json.dumps({_TOGETHER: list(positions)}, separators=(",", ":"))
    return base64.urlsafe_b64encode(document.encode()).decode("ascii")


def split_positions(token: str, name: str) -> tuple[str, ...]:
    """The tokens of one; a token of anything but a subscription to several roots is refused."""
    try:
        found = json.loads(base64.urlsafe_b64decode(token))[_TOGETHER]
        return tuple(str(each) for each in found)
    except (ValueError, TypeError, KeyError) as error:
        raise ClientError(
            f"this is not a position of {name!r}, which has one at each root",
            hint="use `Delivery.position` as it was given when all roots were read together",
        ) from error


class MergedInbox:
    """Iterate over it as over an `Inbox`. Sequence numbers, order and acknowledgements are those of each root.

    One delivery of each root at most is read ahead. `done` says that all deliveries handed over so far were dealt with.
    A delivery's `position` covers all roots: what was handed over of each, and nothing that was only read ahead.
    """

    def __init__(self, name: str, inboxes: list[Inbox]) -> None:
        self.name = name
        self.inboxes = tuple(inboxes)
        self._last: Inbox | None = None
        self._positions = {inbox: inbox.position for inbox in self.inboxes}

    @property
    def position(self) -> str:
        """The token of what was handed over so far."""
        return join_positions(self._positions.values())

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        streams = {inbox: inbox.__aiter__() for inbox in self.inboxes}
        waiting = {self._ahead(inbox, stream): inbox for inbox, stream in streams.items()}
        try:
            while waiting:
                ready, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(ready, key=lambda each: waiting[each].name):
                    inbox = waiting.pop(task)
                    delivery = task.result()
                    if delivery is None or inbox.gone():
                        continue  # what was read ahead of a detached inbox comes again to whoever reads next
                    self._last, inbox.ahead = inbox, False
                    self._positions[inbox] = delivery.position
                    yield replace(delivery, position=self.position)
                    if not inbox.gone():
                        inbox.done()  # the consumer has asked for more
                        waiting[self._ahead(inbox, streams[inbox])] = inbox
        finally:
            await cancel_all(list(waiting))
            for stream in streams.values():
                await stream.aclose()  # type: ignore[attr-defined] # it is a generator
            await self.close()

    @staticmethod
    def _ahead(inbox: Inbox, stream: AsyncIterator[Delivery]) -> asyncio.Task[Delivery | None]:
        """Read one delivery ahead; None when there will be none."""

        async def following() -> Delivery | None:
            return await anext(stream, None)

        inbox.ahead = True
        return asyncio.create_task(following())

    def limit(self, max_rows: int) -> None:
        """Let deliveries have at most so many rows from now on."""
        for inbox in self.inboxes:
            inbox.max_rows = max_rows

    def done(self) -> None:
        """Say that the last delivery was dealt with, without asking for another; it is acknowledged soon."""
        if self._last is not None:
            self._last.done()

    def confirm(self, position: str) -> None:
        """Say that everything up to a position, which has one of every root, was dealt with."""
        given = {read_position(each).subscription: each for each in split_positions(position, self.name)}
        for inbox in self.inboxes:
            if inbox.id in given:
                inbox.confirm(given[inbox.id])

    async def close(self) -> None:
        """Acknowledge what the consumer was done with."""
        for inbox in self.inboxes:
            await inbox.close()
