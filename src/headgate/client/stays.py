"""The inboxes of one subscription as one: each stay at a site is read to its end before the next one (PACK section 2).

A subscription that moves is routed to its new site from the first commit of the new revision on, and to the old one
before it. So the ranges that its inboxes cover join exactly: the old one ends where the first message of the next one
begins, and that is how its end is known.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from headgate.model import Stay
from headgate.protocol.outlets import serves
from headgate.protocol.port import FabricError, GoneError, MachinePort, Stored
from headgate.protocol.published import head_revision
from headgate.relay.tables import MachineTables
from headgate.wire.frame import WireError
from headgate.wire.ledger import Account
from headgate.wire.snapshot import Snapshot
from headgate.wire.sums import Matched

_POLL_S: Final = 1.0
_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Arrived:
    """Messages of a stay's inbox, in order."""

    stay: Stay
    messages: list[Stored]


@dataclass(frozen=True, slots=True)
class Missing:
    """A stay has ended for the next one, but the rest of its range, up to here, has not come since then."""

    stay: Stay
    upto: int
    since_s: float


class Stays:
    """Follows a subscription from inbox to inbox."""

    def __init__(
        self,
        port: MachinePort,
        tables: MachineTables,
        name: str,
        snapshot: Snapshot,
        account: Account,
        floor: int,
        batch: int = 256,
    ) -> None:
        """`floor` is what was acknowledged before: who goes back behind it does not wait for what was purged."""
        self.chain = snapshot.deployment.subscriptions[name].stays
        self._port = port
        self._tables = tables
        self._name = name
        self._id = snapshot.subscription_ids[name]
        self._stream = snapshot.deployment.subscriptions[name].stream
        self._revision = snapshot.revision
        self._account = account
        self._floor = floor
        self._batch = batch
        self._passed: dict[int, int] = {}  # by stay, the place up to which its inbox has messages for others only

    def _subject(self, stay: Stay) -> str:
        return self._port.logs.delivery(stay.site, *stay.inbox_of(self._id))

    async def _is_mine(self, stored: Stored, stay: Stay) -> bool:
        """Whether a message is for this subscription in a stay: others may read the same inbox, before and after it.

        The version of a message says who was served by it. One that cannot be read may be anybody's.
        """
        try:
            snapshot = await self._tables.snapshot(self._port.codec.version(stored.data))
        except (WireError, GoneError):
            return True
        return serves(snapshot, self._name, self._id, stay.number)

    async def follow(self) -> AsyncIterator[Arrived | Missing]:
        """What comes, for ever; the caller adds to the account what it takes from it."""
        tally = self._account.tally
        stay = next((each for each in self.chain if each.number >= tally.stay), self.chain[-1])
        place = tally.place(stay.number)
        moved_s = asked_s = self._port.now
        while True:
            try:
                came = await self._read(stay, place, self._batch)
                found = [each for each in came if await self._is_mine(each, stay)]
                if came and not found:
                    place = came[-1].sequence
                    continue
                later = None if found else await self._later(stay)
                begun = self._account.coverage is not None or (bool(found or later) and await self._begin())
            except FabricError:
                await self._pause()
                continue
            if not begun:
                await self._pause()
            elif found:
                place, moved_s = found[-1].sequence, self._port.now
                yield Arrived(stay, found)
            elif later is not None and later[1] <= (self._account.coverage or 0):
                stay, place, moved_s = later[0], 0, self._port.now
            elif later is not None and self._port.now - max(moved_s, asked_s) > self._patience_s():
                before = self._account.coverage
                yield Missing(stay, later[1], moved_s)
                asked_s = self._port.now
                moved_s = moved_s if self._account.coverage == before else asked_s
            else:
                await self._pause()

    def _patience_s(self) -> float:
        """How long to wait for a site that has been left: not at all for what it was allowed to purge."""
        return 0.0 if (self._account.coverage or 0) < self._floor else _PATIENCE_S

    async def _read(self, stay: Stay, place: int, limit: int) -> list[Stored]:
        """The next messages of a stay; none while its site has never been up and has no log."""
        try:
            return await self._port.read(self._port.logs.inbox(stay.site), self._subject(stay), place, limit=limit)
        except FabricError:
            return []

    async def _pause(self) -> None:
        """Wait until something comes into any of the inboxes or the catalog changes, or for a while."""
        await self._port.listen([*map(self._subject, self.chain), self._port.logs.head], _POLL_S)

    async def _later(self, stay: Stay) -> tuple[Stay, int] | None:
        """The stay after this one that has something, and where that begins; None when there is nothing yet.

        A stay without a commit has no inbox at all and is passed over.
        """
        await self._refresh(stay)
        starts = []
        for each in self.chain:
            if each.number > stay.number:
                begins = await self._begins(each)
                if begins is not None:
                    starts.append((each, begins))
        return min(starts, key=lambda found: found[1], default=None)

    async def _begins(self, stay: Stay) -> int | None:
        """Where the first message of a stay begins, None when there is none yet; those for others are passed over."""
        while batch := await self._read(stay, self._passed.get(stay.number, 0), limit=16):
            for stored in batch:
                if not await self._is_mine(stored, stay):
                    self._passed[stay.number] = stored.sequence
                    continue
                try:
                    return self._port.codec.coverage(stored.data)[0]
                except WireError:
                    continue  # the next one shows where this one would have begun, or comes after it
            if self._passed.get(stay.number) != batch[-1].sequence:
                return None
        return None

    async def _refresh(self, stay: Stay) -> None:
        """Hear of moves, and forget the stays before this one."""
        revision = await head_revision(self._port)
        if revision is None or revision == self._revision:
            return
        snapshot = await self._tables.snapshot(revision)
        self._revision = revision
        if snapshot.subscription_ids.get(self._name) == self._id:
            known = {stay.number: stay for stay in (*self.chain, *snapshot.deployment.subscriptions[self._name].stays)}
            self.chain = tuple(known[number] for number in sorted(known) if number >= stay.number)

    async def _begin(self) -> bool:
        """Start to count where the ledger does; False while it does not say and the inboxes cannot tell either.

        A subscription that has not moved begins with its first message where the ledger does not know it yet. Who reads
        for the first time after a move cannot tell from the inboxes alone whether the first site still owes something:
        it may be behind. Where the ledger does know it, messages before the first one may have been read and purged,
        and the acknowledgement be one of before: the ledger says what is missing then.
        """
        return await self._as_booked() or (len(self.chain) == 1 and self.chain[0].number == 0)

    async def begin_as_booked(self) -> None:
        """Start to count where the ledger does, as soon as it says: the first message cannot be read.

        A reader that has lost its place counts from what is left, and says so in every acknowledgement.
        """
        while self._account.coverage is None and not self._account.tally.lost:
            try:
                begun = await self._as_booked()
            except FabricError:
                begun = False
            if not begun:
                await self._pause()

    async def _as_booked(self) -> bool:
        """Start to count where the ledger does; False while it does not say."""
        port = self._port
        stored = await port.last(port.logs.state, port.logs.ledger(self._stream))
        reader = partial(Matched.decode, stream=self._stream)
        found = None if stored is None else port.quarantine.take(port.logs.state, stored, reader, "waited for")
        if found is None or self._id not in found.starts:
            return False
        tally = self._account.tally
        tally.starts = tally.mark = tally.boundary = found.starts[self._id]
        return True
