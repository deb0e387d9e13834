"""Receiving: an inbox as an asynchronous iterator of deliveries, in order, without duplicates, with gaps repaired."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.client.stays import Arrived, Missing, Stays
from headgate.errors import HeadgateError
from headgate.fabric import Fabric, FabricError, FencedError, cancel_all
from headgate.model import Stay
from headgate.relay.repair import fetch_range
from headgate.relay.tables import Tables
from headgate.wire.block import Block
from headgate.wire.ledger import Account, Tally
from headgate.wire.message import block_version, decode_block
from headgate.wire.snapshot import Snapshot

_ACK_EVERY_S: Final = 0.5
_REPAIR_S: Final = 60.0
_STALL_S: Final = 0.5


class ClientError(HeadgateError):
    """Something that a user of the client can cause."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Rows with the range of the stream that they cover, and what was given up in it, by reason.

    `digest` says more about what was given up where the subscription's policy has digesters, as in
    ``{"count": 3, "reasons": {"delta": 3}, "first": 17, "last": 21, "max(bpm)": 97}``.
    `position` is a token: a client that stores it together with what it did with the rows, and resumes with it, sees
    every row exactly once.
    """

    rows: pa.RecordBatch
    seqs: npt.NDArray[np.uint64]
    after: int
    upto: int
    given_up: Mapping[str, int]
    position: str
    digest: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.seqs)

    def to_pandas(self) -> Any:
        """The rows as a pandas frame, indexed by sequence number."""
        return self.rows.to_pandas().set_index(np.asarray(self.seqs))

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        found: list[dict[str, Any]] = self.rows.to_pylist()
        return found


def encode_position(tally: Tally) -> str:
    """A tally as a token."""
    return base64.urlsafe_b64encode(tally.to_json()).decode("ascii")


def read_position(token: str) -> Tally:
    """The tally of a token."""
    try:
        return Tally.from_json(base64.urlsafe_b64decode(token))
    except (ValueError, TypeError, KeyError) as error:
        raise ClientError("this is not a position token", hint="use `Delivery.position` as it was given") from error


def decode_position(token: str, subscription: int) -> Tally:
    """The tally of a token; a token of another subscription is refused."""
    tally = read_position(token)
    if tally.subscription != subscription:
        raise ClientError(f"the position is of subscription {tally.subscription}, not of {subscription}")
    return tally


class Inbox:
    """One subscription being read: iterate over it. It is closed with its client, or by `close`.

    A delivery counts as done when the loop asks for the next one, or when `done` is called; what is done is
    acknowledged twice a second and when the inbox is closed.
    """

    def __init__(
        self,
        fabric: Fabric,
        tables: Tables,
        name: str,
        snapshot: Snapshot,
        tally: Tally,
        ack_sequence: int | None,
        *,
        floor: int = 0,
        max_rows: int | None = None,
        on_digest: Callable[[Mapping[str, int], int, int], None] | None = None,
        on_gap: Callable[[int, int], None] | None = None,
    ) -> None:
        """Made by `Client.subscribe`.

        `ack_sequence` is the place of the acknowledgement that this reader stands on, None for one that only looks.
        `floor` is the boundary that was acknowledged before: a reader who goes back behind it acknowledges again
        from there on. `ahead` is set by whoever reads ahead of the consumer, for whom the last delivery then still is.
        """
        self.name = name
        self.id = snapshot.subscription_ids[name]
        self.stream = snapshot.deployment.subscriptions[name].stream
        self._fabric = fabric
        self._tables = tables
        self._subscription = snapshot.deployment.subscriptions[name]
        self._site = self._subscription.site
        self._root = snapshot.deployment.streams[self._subscription.stream].root
        self._account = Account(tally)
        self._stays = Stays(fabric, tables, name, snapshot, self._account, floor)
        self._detached = False
        self.ahead = False
        self._ack_sequence = ack_sequence
        self._floor = floor
        self.max_rows = max_rows
        self._acked_s = 0.0
        self._done: bytes | None = None
        self._unsure: bytes | None = None
        self._storing = asyncio.Lock()
        self._acking: asyncio.Task[None] | None = None
        self._taken_over: ClientError | None = None
        self._on_digest = on_digest
        self._on_gap = on_gap

    @property
    def tally(self) -> Tally:
        """What was counted so far; the ledger's side of this subscriber."""
        return self._account.tally

    @property
    def position(self) -> str:
        """The token of what was handed over so far."""
        return encode_position(self.tally)

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        follow = self._stays.follow()
        try:
            async with self._stays:
                async for found in follow:
                    self._enter(found.stay)
                    async for block, place in self._blocks(found):
                        if self._taken_over is not None:
                            raise self._taken_over
                        for piece in self._cut(block):
                            if self.gone():
                                return  # what is handed over from here on would not be acknowledged
                            # A message counts as read with its last row, so that a reader can stop inside of it.
                            yield self._hand_over(piece, place if piece.upto == block.upto else place - 1)
                            if self.gone():
                                return
                            self._mark_done()
                if self._taken_over is not None:
                    raise self._taken_over
        finally:
            await follow.aclose()  # type: ignore[attr-defined] # it is a generator
            await self.close()

    def refuse(self, error: ClientError) -> None:
        """End the reading with an error: the stream is not any more what this reader's place belongs to."""
        self._taken_over = error
        self._done = self._ack_sequence = None
        self._stays.end()

    def gone(self) -> bool:
        """Whether `detach` was called, which another task does between two steps of the loop."""
        return self._detached

    def _enter(self, stay: Stay) -> None:
        """Read on in the inbox of a stay: those before it are finished with."""
        if stay.number != self.tally.stay:
            self.tally.stay, self.tally.inbox = stay.number, 0
        self._site = stay.site

    async def _blocks(self, found: Arrived | Missing) -> AsyncIterator[tuple[Block, int]]:
        """What is new in what has come, with the place in the inbox that it is read up to."""
        if isinstance(found, Missing):
            async for block in self._missing(self.tally.mark, found.upto):
                yield block, self.tally.inbox
            return
        for stored in found.messages:
            whole = await self._decode(stored.data)
            async for block in self._in_order(whole):
                yield block, stored.sequence if block.upto == whole.upto else stored.sequence - 1

    def _cut(self, block: Block) -> Iterator[Block]:
        """The block in pieces of at most `max_rows` rows, which the consumer may change between them."""
        while self.max_rows is not None and len(block.seqs) > self.max_rows:
            end = int(block.seqs[self.max_rows - 1])
            yield block.until(end)
            block = block.since(end)
        yield block

    def _mark_done(self) -> None:
        if self._ack_sequence is None or self.tally.boundary < self._floor:
            return
        self._done = self.tally.to_json()
        if self._acking is None or self._acking.done():
            self._acking = asyncio.create_task(self._acknowledge_soon())

    async def _decode(self, data: bytes) -> Block:
        snapshot = await self._tables.snapshot(block_version(data))
        mine = snapshot.deployment.subscriptions[self.name]
        schema = snapshot.deployment.streams[mine.stream].schema.select(mine.select).arrow
        return decode_block(data, schema)

    async def _in_order(self, block: Block) -> AsyncIterator[Block]:
        """The block, behind whatever is missing before it; nothing when it was seen before."""
        have = self._account.coverage
        if have is not None and block.upto <= have:
            return
        if have is not None and block.after > have:
            async for missing in self._missing(have, block.after):
                yield missing
            have = block.after
        yield block if have is None else block.since(have)

    async def _missing(self, have: int, upto: int) -> AsyncIterator[Block]:
        """A range that did not come, fetched again."""
        while have < upto:
            if self._on_gap:
                self._on_gap(have, upto)
            for data in await self._fetch(have, upto):
                missing = (await self._decode(data)).since(have)
                if missing.after > have:
                    raise self._forgotten(have, missing.after)
                yield missing
                have = missing.upto

    async def _fetch(self, after: int, upto: int) -> list[bytes]:
        """Ask for a missing range, again while nobody answers: a relay may be restarting.

        First the site that should have sent it, then the stream's root, which has everything: a site that the
        subscription has left may be gone.
        """
        deadline = time.monotonic() + _REPAIR_S
        stream, site, root = self._subscription.stream, self._site, self._root
        for number, place in enumerate(itertools.cycle((site, root))):
            try:
                tries = number // 2
                return await fetch_range(self._fabric, place, stream, after, upto, subscription=self.id, tries=tries)
            except FabricError as error:
                past = await self._past()
                if after < past:
                    raise self._forgotten(after, min(past, upto)) from error
                if time.monotonic() > deadline:
                    raise ClientError(
                        f"rows {after + 1} to {upto} of {stream!r} are missing, and neither {site!r} nor {root!r} sends"
                        " them again",
                        hint="are the sites' relays running?",
                    ) from error
                await asyncio.sleep(_STALL_S)
        raise AssertionError("unreachable")

    async def _past(self) -> int:
        """Up to where the root log was forgotten, as all sites had passed it on to the inboxes."""
        logs = self._fabric.logs
        with contextlib.suppress(FabricError):
            stored = await self._fabric.last(logs.state, logs.past(self._subscription.stream))
            return 0 if stored is None else int(stored.data)
        return 0

    def _forgotten(self, after: int, upto: int) -> ClientError:
        return ClientError(
            f"rows {after + 1} to {upto} of {self._subscription.stream!r} are no longer kept",
            hint="read on from what was last acknowledged, without a position",
        )

    def _hand_over(self, block: Block, sequence: int) -> Delivery:
        self._account.add(block, sequence, int(time.time() * 1000))
        given_up = dict(block.declared.get(self.id, {}))
        if given_up and self._on_digest:
            self._on_digest(given_up, block.after, block.upto)
        digest = block.digests[self.id].show() if self.id in block.digests else {}
        return Delivery(block.rows, block.seqs, block.after, block.upto, given_up, self.position, digest)

    async def _acknowledge_soon(self) -> None:
        """Store positions while there are new ones, at most so often."""
        while self._done is not None:
            await asyncio.sleep(max(self._acked_s + _ACK_EVERY_S - time.monotonic(), 0.0))
            try:
                await self._acknowledge()
            except ClientError as error:
                self._taken_over = error
                return

    async def _acknowledge(self) -> None:
        """Store the position: the consumer has asked for more, so it is done with what it got.

        One at a time: a loop that was left and a call of `close` may both come here.
        """
        async with self._storing:
            await self._store()

    async def _store(self) -> None:
        if self._done is None or self._ack_sequence is None:
            return
        logs = self._fabric.logs
        sent = self._done
        self._acked_s = time.monotonic()
        unsure, self._unsure = self._unsure, sent
        try:
            try:
                if unsure is not None:
                    await self._adopt(unsure)
                self._ack_sequence = await self._fabric.publish(logs.ack(self.id), sent, expect=self._ack_sequence)
            except FencedError:
                # One that was interrupted on its way may have been stored only now.
                if unsure is None or not await self._adopt(unsure):
                    raise
                self._ack_sequence = await self._fabric.publish(logs.ack(self.id), sent, expect=self._ack_sequence)
        except FencedError as error:
            raise ClientError(
                f"another client has taken over the subscription {self.name!r}", hint="one reader at a time"
            ) from error
        except FabricError:
            return  # stored or not: the next acknowledgement finds out
        self._unsure = None
        if self._done is sent:
            self._done = None

    async def _adopt(self, unsure: bytes) -> bool:
        """Stand on an acknowledgement whose fate was not known, if it is the last one that was stored."""
        stored = await self._fabric.last(self._fabric.logs.state, self._fabric.logs.ack(self.id))
        if stored is None or stored.data != unsure:
            return False
        self._ack_sequence = stored.sequence
        return True

    def done(self) -> None:
        """Say that the last delivery was dealt with, without asking for another; it is acknowledged soon."""
        self._mark_done()

    async def detach(self) -> None:
        """End the reading: what was handed over counts as done, and the loop ends."""
        self._detached = True
        self._stays.end()
        if not self.ahead:
            self._mark_done()
        await self.close()
        if self._done is not None:
            raise ClientError(
                f"what was read of {self.name!r} could not be acknowledged",
                hint="detach again, or resume with the position of the last delivery",
            )

    async def close(self) -> None:
        """Acknowledge what the consumer was done with."""
        if self._acking is not None:
            await cancel_all([self._acking])
        await self._acknowledge()


class Readable(Protocol):
    """What can be read like an inbox."""

    def __aiter__(self) -> AsyncIterator[Delivery]:
        """The deliveries."""
        ...

    def done(self) -> None:
        """Say that the last delivery was dealt with."""
        ...

    async def close(self) -> None:
        """Acknowledge what the consumer was done with."""
        ...


@contextlib.asynccontextmanager
async def closing(inbox: Readable) -> AsyncIterator[AsyncIterator[Delivery]]:
    """The deliveries of an inbox, closed at the end of the block however it is left."""
    deliveries = inbox.__aiter__()
    try:
        yield deliveries
    finally:
        await deliveries.aclose()  # type: ignore[attr-defined] # it is a generator
        await inbox.close()
