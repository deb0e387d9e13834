"""A subscriber's reader as a machine: messages of its inboxes in, blocks in order and without duplicates out.

A block is handed to the consumer (`HandOver`), which says when its loop has taken it (`TAKEN`); until then the machine
is one block ahead of it. The block counts as done when the consumer asks for the next one. What is done is
acknowledged. A range that is missing is asked for, first at the site that should have sent it, then at the root.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.client.acknowledging import Acknowledger
from headgate.client.errors import ClientError
from headgate.client.stays import Arrived, Missing, Stays
from headgate.model import Stay
from headgate.protocol.codec import Codec
from headgate.protocol.kernel import Machine
from headgate.protocol.port import FabricError, GoneError, MachinePort
from headgate.protocol.quarantine import Quarantine
from headgate.protocol.records import RangeRequest
from headgate.relay.asking import fetch_blocks, forgotten_past
from headgate.relay.tables import MachineTables
from headgate.wire.block import Block, renamed
from headgate.wire.frame import WireError
from headgate.wire.ledger import Account, Tally, counted_by
from headgate.wire.logs import Logs
from headgate.wire.snapshot import Snapshot
from headgate.wire.unreadable import UnreadableError

_REPAIR_S: Final = 60.0
_STALL_S: Final = 0.5
OnGap = Callable[[int, int], None]
"""Hears of a range (after, upto] that did not arrive and is fetched again."""
TAKEN: Final = "taken"
DONE: Final = "done"
STORE: Final = "store"


@dataclass
class Reading:
    """What stays of a reader between two loops over it: its account, its acknowledgements, what it is asked for.

    A delivery has at most `max_rows` rows. `on_gap` hears of a range that did not arrive.
    """

    name: str
    snapshot: Snapshot
    account: Account
    acks: Acknowledger
    max_rows: int | None = None
    on_gap: OnGap | None = None
    after_loss: bool = False
    """Whether to read on behind rows that are no longer kept; without it they are an error."""
    confirming: bool = False
    """Whether only what the consumer confirms is acknowledged, and not what it has taken."""
    batch: int = 256
    """How many messages of the inbox are read at a time, which is what a consumer that stands still keeps in memory."""
    upto: int | None = None
    """The sequence number behind which nothing is read; None for who reads on for ever."""
    site: str = field(init=False)
    position: bytes = field(init=False)
    """The tally up to the last block that the consumer has taken."""
    taken: bool = field(init=False, default=True)
    """Whether the consumer has taken the last block that was counted."""

    def __post_init__(self) -> None:
        self.site = self.snapshot.deployment.subscriptions[self.name].site
        self.position = self.account.tally.encode()
        self.acks.resume(self.account.tally)

    def go_back(self) -> None:
        """Count on from the consumer's place: an earlier loop may have ended with a block counted and not yet taken."""
        if not self.taken:
            tally, known = Tally.decode(self.position), self.account.tally
            tally.incarnation, tally.run, tally.reader = known.incarnation, known.run, known.reader
            self.account, self.taken = Account(tally), True

    @property
    def ended(self) -> bool:
        """Whether everything up to the end of the range that was asked for is covered."""
        coverage = self.account.coverage
        return self.upto is not None and (self.upto <= 0 or (coverage is not None and coverage >= self.upto))

    @property
    def id(self) -> int:
        """The subscription."""
        return self.snapshot.subscription_ids[self.name]

    @property
    def stream(self) -> str:
        """The stream that it is of."""
        return self.snapshot.deployment.subscriptions[self.name].stream


class ReaderMachine(Machine):
    """Reads one subscription until it is closed."""

    def __init__(
        self,
        reading: Reading,
        logs: Logs,
        max_payload: int,
        codec: Codec | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        super().__init__(f"reader {reading.name}")
        reading.go_back()
        self._reading = reading
        self._port = MachinePort(self, logs, max_payload, codec, quarantine)
        self._tables = MachineTables(self._port)
        self._stream = reading.stream
        self._root = reading.snapshot.deployment.streams[reading.stream].root
        held = (reading.account, reading.acks.floor, reading.batch)
        self._stays = Stays(self._port, self._tables, reading.name, reading.snapshot, *held)
        reading.acks.run_in(self._port)
        self.serve(TAKEN, self._taken)
        self.serve(DONE, self._done)
        self.serve(STORE, self._store)
        self.spawn(self._read(), "read")

    async def _taken(self, _: Any) -> None:
        """The consumer's loop has taken the last block."""
        self._reading.taken, self._reading.position = True, self._reading.account.tally.encode()

    async def _done(self, confirmed: Any) -> None:
        """The consumer is done with what it has taken, or with as much of it as the given tally has."""
        if confirmed is not None:
            self._reading.acks.note(confirmed)
        elif self._reading.taken:
            self._reading.acks.note(self._reading.account.tally)

    async def _store(self, _: Any) -> ClientError | None:
        """Acknowledge now; an error is the answer where another reader has taken over."""
        try:
            await self._reading.acks.store()
        except ClientError as error:
            return error
        return None

    async def _read(self) -> None:
        reading = self._reading
        async for found in self._stays.follow():
            self._enter(found.stay)
            async for block, place in self._blocks(found):
                for piece in self._cut(block):
                    if reading.ended:
                        return
                    if reading.acks.taken_over is not None:
                        raise reading.acks.taken_over
                    # A message counts as read with its last row, so that a reader can stop inside of it.
                    inbox = place if piece.upto == block.upto else place - 1
                    told = reading.account.add(piece, inbox, int(self._port.wall_s * 1000))
                    reading.taken = False
                    await self._hand_over(told)
                    if not reading.confirming:
                        reading.acks.note(reading.account.tally)

    async def _hand_over(self, block: Block) -> None:
        """Give a block to the consumer, and wait until that is done with it."""
        await self._port.hand_over(block)

    def _enter(self, stay: Stay) -> None:
        """Read on in the inbox of a stay: those before it are finished with."""
        tally = self._reading.account.tally
        if stay.number != tally.stay:
            tally.stay, tally.inbox, tally.entered = stay.number, 0, counted_by(tally)
        self._reading.site = stay.site

    def _cut(self, block: Block) -> Iterator[Block]:
        """The block, up to the end that was asked for, in pieces of at most `max_rows` rows.

        The consumer may change `max_rows` between them.
        """
        if self._reading.upto is not None:
            block = block.until(self._reading.upto)
        while self._reading.max_rows is not None and len(block.seqs) > self._reading.max_rows:
            end = int(block.seqs[self._reading.max_rows - 1])
            yield block.until(end)
            block = block.since(end)
        yield block

    async def _blocks(self, found: Arrived | Missing) -> AsyncIterator[tuple[Block, int]]:
        """What is new in what has come, with the place in the inbox that it is read up to."""
        tally = self._reading.account.tally
        if isinstance(found, Missing):
            # Its site may only be late: one that does not answer is asked again after a look into the inbox.
            async for block in self._missing(tally.mark, found.upto, found.since_s):
                yield block, tally.inbox
            return
        for stored in found.messages:
            try:
                whole = await self._decode(stored.data)
                whole = renamed(whole, found.stay.inbox_of(self._reading.id)[0], self._reading.id)
            except WireError as error:
                log = self._port.logs.inbox(found.stay.site).name
                spoilt = UnreadableError(log, stored.subject, stored.sequence, str(error))
                self._port.quarantine.add(spoilt, "what it held is fetched again")
                await self._stays.begin_as_booked()
                self._pass(stored.sequence)
                continue
            async for block in self._in_order(whole):
                yield block, stored.sequence if block.upto == whole.upto else stored.sequence - 1

    def _pass(self, place: int) -> None:
        """Acknowledge the place of a message that cannot be read: an inbox full of such ones would take no other.

        Where the consumer confirms and is not done with what came before, its next confirmation says so.
        """
        reading = self._reading
        reading.account.tally.inbox = place
        if not reading.confirming or reading.acks.mark >= reading.account.tally.mark:
            reading.acks.note(reading.account.tally)

    async def _decode(self, data: Any) -> Block:
        """A message of the inbox, in the columns of the version that it came under."""
        snapshot = await self._tables.snapshot(self._port.codec.version(data))
        mine = snapshot.deployment.subscriptions[self._reading.name]
        schema = snapshot.deployment.streams[mine.stream].schema.select(mine.select).arrow
        return self._port.codec.block(data, schema)

    async def _in_order(self, block: Block) -> AsyncIterator[Block]:
        """The block, behind whatever is missing before it; nothing when it was seen before."""
        have = self._reading.account.coverage
        if have is not None and block.upto <= have:
            return
        if have is not None and block.after > have:
            async for missing in self._missing(have, block.after, None):
                yield missing
        yield self._reading.account.rest(block)

    async def _missing(self, have: int, upto: int, since_s: float | None) -> AsyncIterator[Block]:
        """A range that did not come, fetched again; what may still come since a time is asked for once."""
        while have < upto:
            if self._reading.on_gap:
                self._reading.on_gap(have, upto)
            try:
                found = await self._fetch(have, upto, since_s)
            except _ForgottenError as error:
                have = self._pass_over(have, error.upto)
                continue
            if not found:
                return
            for data in found:
                try:
                    missing = (await self._decode(data)).since(have)
                except GoneError:  # its rows are there, but nobody knows any more what they meant
                    have = self._pass_over(have, self._port.codec.coverage(data)[1])
                    continue
                if missing.after > have:
                    self._pass_over(have, missing.after)
                yield missing
                have = missing.upto

    async def _fetch(self, after: int, upto: int, since_s: float | None) -> list[Any]:
        """Ask for a missing range, again while nobody answers: a relay may be restarting.

        First the site that should have sent it, then the stream's root, which has everything: a site that the
        subscription has left may be gone. What has been missing since a time may still come: nothing, where neither
        has it.
        """
        deadline = (self._port.now if since_s is None else since_s) + _REPAIR_S
        stream, site, root = self._stream, self._reading.site, self._root
        request = RangeRequest(stream=stream, after=after, upto=upto, subscription=self._reading.id)
        for number, place in enumerate(itertools.cycle((site, root))):
            try:
                return await fetch_blocks(self._port, place, request, tries=number // 2)
            except FabricError as error:
                past = await self._past()
                if after < past:
                    raise _ForgottenError(min(past, upto)) from error
                if self._port.now > deadline:
                    raise ClientError(
                        f"rows {after + 1} to {upto} of {stream!r} are missing, and neither {site!r} nor {root!r} sends"
                        " them again",
                        hint="are the sites' relays running?",
                        kind="unavailable",
                    ) from error
                await self._port.sleep(_STALL_S)
                if since_s is not None and place == root:
                    return []
        raise AssertionError("unreachable")

    async def _past(self) -> int:
        """Up to where the root log was forgotten, as all sites had passed it on to the inboxes."""
        try:
            return await forgotten_past(self._port, self._stream)
        except FabricError:
            return 0  # nobody knows now: asked again

    def _pass_over(self, after: int, upto: int) -> int:
        """Rows that are no longer kept: an error, or, for who accepts the loss, the place from which to count anew."""
        if not self._reading.after_loss:
            raise ClientError(
                f"rows {after + 1} to {upto} of {self._stream!r} are no longer kept",
                hint="read on from what was last acknowledged, without a position; where that is too old (it was "
                "put back from a backup, or a message was damaged), read what is left: "
                "`client.subscribe(name, after_loss=True)`, `headgate tail --after-loss`",
                kind="gone",
            )
        self._reading.account.begin_again(upto, lost=self._reading.acks.sequence)
        return upto


class _ForgottenError(Exception):
    """Rows up to here are no longer kept."""

    def __init__(self, upto: int) -> None:
        super().__init__(upto)
        self.upto = upto
