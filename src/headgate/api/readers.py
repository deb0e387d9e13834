"""Readers whose rows are passed on to somebody over HTTP, and when what they passed on counts as delivered.

A reader here confirms what its client surely has, not what was written into a connection: rows under way in a
connection that breaks come again to whoever resumes with the last event that it got. A client confirms by resuming with
a position, by saying so, or by having been there for `HOLD_S` after the rows were written, unless it wants to confirm
all by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

from headgate.client import ClientError, Delivery, Inbox
from headgate.client.client import Client
from headgate.client.delivery import read_position
from headgate.client.merged import MergedInbox, split_positions
from headgate.client.names import known_names
from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import cancel_all
from headgate.wire.snapshot import Snapshot

HOLD_S: Final = 10.0
"""How long a client has to stay after rows were written before they count as delivered without its word."""
TICK_S: Final = 1.0
NUDGE_TICKS: Final = 5
"""Ticks after which a reader that gets nothing is let go on, so that it can say that it is still there."""
ACK_S: Final = 0.5
ACKS_PER_S: Final = 1000.0
"""How many acknowledgements all readers of a process store in a second, about."""
MOST_READERS: Final = 20_000
MOST_OF_USER: Final = 256
"""Readers of one user."""
BATCH: Final = 16
"""Messages of an inbox that a reader holds in memory."""


class HttpReader:
    """One subscription that is read for one client. Iterate over it; None comes now and then while there is nothing."""

    def __init__(self, name: str, inbox: Inbox | MergedInbox, *, held: bool = True, peek: bool = False) -> None:
        """`held` lets what was written count as delivered after a while; `peek` acknowledges nothing at all."""
        self.name = name
        self.inbox = inbox
        self._held: deque[tuple[float, str]] | None = deque() if held and not peek else None
        self._stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def ids(self) -> set[str]:
        """By which its acknowledgements, and the positions that it gave, are told from those of others."""
        inboxes = self.inbox.inboxes if isinstance(self.inbox, MergedInbox) else (self.inbox,)
        return {each.tally.reader for each in inboxes}

    async def __aiter__(self) -> AsyncIterator[Delivery | None]:
        deliveries = (
            _ticking(self.inbox, self._stop) if isinstance(self.inbox, MergedInbox) else self.inbox.deliveries()
        )
        try:
            async for delivery in deliveries:
                if self._stop.done():
                    await self._stop  # raises why
                    return
                yield delivery
        finally:
            with noted(SERVICE, "what was confirmed last could not be stored", HeadgateError):
                await deliveries.aclose()  # type: ignore[attr-defined] # it is a generator

    def nudge(self) -> None:
        """Let None come, where nothing else does."""
        if isinstance(self.inbox, Inbox):
            self.inbox.nudge()

    def limit(self, max_rows: int) -> None:
        """Let deliveries have at most so many rows from now on."""
        for each in self.inbox.inboxes if isinstance(self.inbox, MergedInbox) else (self.inbox,):
            each.max_rows = max(min(each.max_rows or max_rows, max_rows), 1)

    def pace(self, every_s: float) -> None:
        """Acknowledge at most so often from now on."""
        for each in self.inbox.inboxes if isinstance(self.inbox, MergedInbox) else (self.inbox,):
            each.acknowledge_every(every_s)

    def written(self, position: str) -> None:
        """Everything up to a position was written into the client's connection."""
        if self._held is not None:
            self._held.append((time.monotonic(), position))

    def confirm(self, position: str) -> None:
        """The client has everything up to a position."""
        self.inbox.confirm(position)

    def settle(self) -> None:
        """Confirm what was written long enough ago."""
        last = None
        while self._held and self._held[0][0] < time.monotonic() - HOLD_S:
            last = self._held.popleft()[1]
        if last is not None:
            self.confirm(last)

    def end(self, error: HeadgateError | None = None) -> None:
        """End the reading, with an error that its client is told, or just so."""
        if not self._stop.done():
            if error is None:
                self._stop.set_result(None)
            else:
                self._stop.set_exception(error)
                self._stop.exception()  # whoever iterates is told; where nobody does, nobody misses it
            self.nudge()


async def _ticking(inbox: MergedInbox, stop: asyncio.Future[None]) -> AsyncIterator[Delivery | None]:
    """The deliveries of several roots, and None now and then while there is nothing, and when it is stopped."""
    deliveries = inbox.__aiter__()
    following: asyncio.Task[Delivery | None] | None = None
    try:
        while True:
            following = following or asyncio.create_task(_following(deliveries))
            first: list[asyncio.Future[Any]] = [following, stop]
            await asyncio.wait(first, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
            if not following.done() or stop.done():
                yield None
                continue
            delivery, following = following.result(), None
            if delivery is None:
                return
            yield delivery
    finally:
        if following is not None:
            await cancel_all([following])
        await deliveries.aclose()  # type: ignore[attr-defined] # it is a generator


async def _following(deliveries: AsyncIterator[Delivery]) -> Delivery | None:
    return await anext(deliveries, None)


class HttpReaders:
    """The readers of this process, one of each subscription; those that only peek are not counted among them."""

    def __init__(self, client: Client, most: int = MOST_READERS, site: str | None = None) -> None:
        """`site` is the one whose subscriptions are read here, None for all."""
        self._client = client
        self._site = site
        self._most = most
        self._reading: dict[str, HttpReader] = {}
        self._all: set[HttpReader] = set()
        self._ticking: asyncio.Task[None] | None = None
        self._known: tuple[float, Snapshot | None] = (0.0, None)

    def __len__(self) -> int:
        return len(self._all)

    async def _tick(self) -> None:
        """Let what clients were given count as delivered, once they have stayed; as long as there are any.

        Acknowledgements are gathered: the more readers there are, the longer each waits between two of them.
        """
        ticks = 0
        while self._all:
            await asyncio.sleep(TICK_S)
            ticks += 1
            every_s = max(ACK_S, len(self._all) / ACKS_PER_S)
            for reader in list(self._all):
                reader.pace(every_s)
                with noted(SERVICE, "what was held cannot be confirmed any more", ClientError):
                    reader.settle()
                if (ticks + id(reader) // 64) % NUDGE_TICKS == 0:
                    reader.nudge()
        self._ticking = None

    async def open(
        self, name: str, position: str | None, *, max_rows: int, held: bool = True, peek: bool = False
    ) -> HttpReader:
        """Read a subscription, from a position or from what was last acknowledged; a reader before it is ended.

        A client that was ended so, and comes back by itself with its last position, is refused.
        """
        if len(self._all) >= self._most:
            raise ClientError(f"{self._most:,} readers are connected already", hint="try again later", kind="busy")
        snapshot = await self._snapshot(name)
        for each in known_names(name, snapshot):
            place = snapshot.deployment.subscriptions[each].site
            if self._site not in (None, place):
                raise ClientError(
                    f"{name!r} is delivered at {place!r}, and this is the gateway of {self._site!r}",
                    hint="connect to a gateway of that site, or to the HTTP API of the deployment",
                    kind="unknown",
                )
        before = self._reading.get(name)
        if before is not None and position is not None and not peek and not _readers_of(position, name) & before.ids:
            raise _taken(name)
        inbox = await self._client.subscribe(
            name,
            position=position,
            peek=peek,
            max_rows=max_rows,
            confirming=True,
            batch=BATCH,
            snapshot=snapshot,
        )
        reader = HttpReader(name, inbox, held=held, peek=peek)
        if position is not None and not peek:
            reader.confirm(position)
        self._all.add(reader)
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick(), name="readers")
        if not peek:
            if name in self._reading:  # another than `before`, where one came meanwhile
                self._reading[name].end(_taken(name))
            self._reading[name] = reader
        return reader

    async def _snapshot(self, name: str) -> Snapshot:
        """The deployment as it was a moment ago, where that has the subscription: many may come back at once.

        A reader finds out by itself what has changed since.
        """
        read_s, known = self._known
        if known is None or time.monotonic() > read_s + TICK_S or name not in known.subscription_ids:
            read_s, known = time.monotonic(), await self._client.snapshot()
            self._known = read_s, known
        return known

    def confirm(self, name: str, position: str) -> None:
        """The client of a reader has everything up to a position."""
        reader = self._reading.get(name)
        if reader is None:
            raise ClientError(
                f"nobody reads {name!r} here",
                hint="resume with the position instead, which confirms it",
                kind="conflict",
            )
        reader.confirm(position)

    def closed(self, reader: HttpReader) -> None:
        """A reader's client has gone, or it was ended."""
        self._all.discard(reader)
        if self._reading.get(reader.name) is reader:
            del self._reading[reader.name]

    def close(self) -> None:
        """End all readers."""
        for reader in list(self._all):
            reader.end()
        if self._ticking is not None:
            self._ticking.cancel()


def _taken(name: str) -> ClientError:
    return ClientError(
        f"another client has taken over the subscription {name!r}", hint="one reader at a time", kind="conflict"
    )


def _readers_of(position: str, name: str) -> set[str]:
    """The readers that gave a position."""
    try:
        return {read_position(position).reader}
    except ClientError:
        return {read_position(each).reader for each in split_positions(position, name)}
