"""The driver's reader of a subscription: reads ahead of Spark, keeps where each delivery ended, acknowledges commits.

The rows themselves are read again by executors: what stays here are positions. A subscription has one reader, so a
second query on it takes over, and the first one is told so by its next trigger.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headgate.client import Client, ClientError, Inbox
from headgate.client.delivery import closing, read_position
from headgate.client.extent import held_upto
from headgate.client.merged import MergedInbox, split_positions
from headgate.client.names import known_names
from headgate.diagnostics import CLIENT, noted
from headgate.fabric import FabricError, cancel_all
from headgate.spark.options import SparkOptions
from headgate.wire.ledger import Tally

_WAIT_S: Final = 0.1
_BEHIND_S: Final = 30.0
_IDLE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class DeliveryEnd:
    """Where a delivery ended: the position, its rows, whether it declares anything, and when it was read."""

    position: str
    rows: int
    declares: bool
    read_s: float


def tallies(position: str) -> dict[int, tuple[str, Tally]]:
    """The tokens of a position with what each says, by subscription: several where a stream has several roots."""
    try:
        tokens: tuple[str, ...] = split_positions(position, "")
    except ClientError:
        tokens = (position,)
    read = [(token, read_position(token)) for token in tokens]
    return {tally.subscription: (token, tally) for token, tally in read}


class ReadAhead:
    """One subscription being followed, from a position or from what was last acknowledged.

    At most twice `max_rows` rows are read ahead.
    """

    def __init__(self, options: SparkOptions, position: str | None) -> None:
        self._options = options
        self._client = options.connect()
        self._marks: deque[DeliveryEnd] = deque()
        self._came, self._room = asyncio.Event(), asyncio.Event()
        self._ended: Mapping[int, int] | None = None
        self.taken: list[DeliveryEnd] = []
        try:
            self._inbox = self._client.call(lambda client: self._open(client, position))
        except BaseException:
            self._client.close()
            raise
        self.position = position or self._inbox.position
        self._reading = self._client.call(self._begin)

    async def _open(self, client: Client, position: str | None) -> Inbox | MergedInbox:
        options = self._options
        return await client.subscribe(
            options.reads,
            position=position,
            confirming=True,
            max_rows=options.max_rows,
            after_loss=options.after_loss,
        )

    async def _begin(self, _: Client) -> asyncio.Task[None]:
        reading = asyncio.create_task(self._read())
        reading.add_done_callback(self._tell_end)
        return reading

    def _tell_end(self, reading: asyncio.Task[None]) -> None:
        """Say why the reader has ended, also where no trigger comes any more that would raise it."""
        if not reading.cancelled() and (error := reading.exception()) is not None:
            CLIENT.info("the reader of subscription %r for Spark has ended: %s", self._options.reads, error)

    async def _read(self) -> None:
        async with closing(self._inbox) as deliveries:
            async for delivery in deliveries:
                declares = bool(delivery.given_up or delivery.shed or delivery.unsent)
                self._marks.append(DeliveryEnd(delivery.position, len(delivery), declares, time.monotonic()))
                self._came.set()
                while sum(mark.rows for mark in self._marks) >= 2 * self._options.max_rows:
                    self._room.clear()
                    await self._room.wait()

    @property
    def names(self) -> dict[int, str]:
        """The subscriptions that are read, by number: several where the stream has several roots."""
        inboxes = self._inbox.inboxes if isinstance(self._inbox, MergedInbox) else (self._inbox,)
        return {each.id: each.name for each in inboxes}

    def end_here(self) -> None:
        """What comes from now on belongs to a later query."""
        self._ended = self._client.call(self._held)

    async def _held(self, client: Client) -> dict[int, int]:
        snapshot = await client.snapshot()
        names = known_names(self._options.reads, snapshot)
        return {snapshot.subscription_ids[name]: await held_upto(client.fabric, snapshot, name) for name in names}

    def advance(self, max_rows: int) -> str:
        """The position to read up to next: with at most so many rows more, or the same where there is nothing.

        It waits a moment for rows to come, and until everything that the inbox holds has been looked at.
        """
        self.taken = self._client.call(lambda client: self._advance(client, max_rows))
        if self.taken:
            self.position = self.taken[-1].position
        return self.position

    async def _advance(self, client: Client, max_rows: int) -> list[DeliveryEnd]:
        if not self._marks:
            await self._wait(_WAIT_S)
        if not self._marks:
            held = self._ended or {}
            if self._ended is None:
                with noted(CLIENT, "what the inbox holds is asked at the next trigger", FabricError):
                    held = await self._held(client)
            known = tallies(self.position)
            if any(upto > (known[number][1].mark if number in known else 0) for number, upto in held.items()):
                await self._wait(_BEHIND_S)
        found: list[DeliveryEnd] = []
        count = 0
        for mark in self._marks:
            if (found and count + mark.rows > max_rows) or self._past_end(mark):
                break
            found.append(mark)
            count += mark.rows
        worth = count or any(mark.declares for mark in found)
        if not worth and (not found or (self._ended is None and time.monotonic() - found[0].read_s < _IDLE_S)):
            return []  # coverage without rows: not worth a micro-batch until it has grown old
        for _ in found:
            self._marks.popleft()
        self._room.set()
        return found

    def _past_end(self, mark: DeliveryEnd) -> bool:
        if self._ended is None:
            return False
        return any(tally.mark > self._ended.get(number, 0) for number, (_, tally) in tallies(mark.position).items())

    async def _wait(self, seconds: float) -> None:
        """Wait for the next delivery for at most so long; an error of the reader is raised here."""
        self._came.clear()
        if self._marks:
            return
        came = asyncio.create_task(self._came.wait())
        try:
            await asyncio.wait([came, self._reading], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_all([came])
        if self._reading.done():
            self._reading.result()
            raise ClientError(f"the subscription {self._options.reads!r} was detached", hint="start the query again")

    def is_before(self, position: str) -> bool:
        """Whether this reader has not come to a position yet."""
        known = tallies(self._inbox.position)
        return any(
            number in known and tally.mark > known[number][1].mark for number, (_, tally) in tallies(position).items()
        )

    def confirm(self, position: str) -> None:
        """Acknowledge everything up to a position: Spark has committed it."""

        async def work(_: Client) -> None:
            self._inbox.confirm(position)

        self._client.call(work)

    def close(self) -> None:
        """Acknowledge what was confirmed, and go."""

        async def work(_: Client) -> None:
            try:
                await self._inbox.close()
            finally:
                await cancel_all([self._reading])

        try:
            self._client.call(work)
        finally:
            self._client.close()
