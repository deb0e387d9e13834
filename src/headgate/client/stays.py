"""The inboxes of one subscription as one: each stay at a site is read to its end before the next one (PACK section 2).

A subscription that moves is routed to its new site from the first commit of the new revision on, and to the old one
before it. So the ranges that its inboxes cover join exactly: the old one ends where the first message of the next one
begins, and that is how its end is known.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from headgate.fabric import Fabric, FabricError, Stored
from headgate.model import Stay
from headgate.relay.tables import Tables, head_revision
from headgate.wire.ledger import Account, Matched
from headgate.wire.message import block_range
from headgate.wire.snapshot import Snapshot

_POLL_S: Final = 1.0
_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Arrived:
    """Messages of a stay's inbox, in order."""

    stay: Stay
    messages: list[Stored]


@dataclass(frozen=True, slots=True)
class Missing:
    """A stay has ended for the next one, but the rest of its range, up to here, has not come for a while."""

    stay: Stay
    upto: int


class Stays:
    """Follows a subscription from inbox to inbox. Use it as an async context manager."""

    def __init__(
        self, fabric: Fabric, tables: Tables, name: str, snapshot: Snapshot, account: Account, floor: int = 0
    ) -> None:
        """`floor` is what was acknowledged before: who goes back behind it does not wait for what was purged."""
        self.chain = snapshot.deployment.subscriptions[name].stays
        self._fabric = fabric
        self._tables = tables
        self._name = name
        self._id = snapshot.subscription_ids[name]
        self._stream = snapshot.deployment.subscriptions[name].stream
        self._revision = snapshot.revision
        self._account = account
        self._wake = asyncio.Event()
        self._news = asyncio.Event()
        self._hints: dict[str, Callable[[], Awaitable[None]]] = {}
        self._ended = False
        self._floor = floor

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for subject in list(self._hints):
            await self._hints.pop(subject)()

    async def _listen(self) -> None:
        """Be woken by what comes into any of the inboxes, and by a new revision."""
        wanted: dict[str, tuple[asyncio.Event, ...]] = {self._subject(stay): (self._wake,) for stay in self.chain}
        wanted[self._fabric.logs.head] = (self._wake, self._news)
        for subject in [known for known in self._hints if known not in wanted]:
            await self._hints.pop(subject)()
        for subject, events in wanted.items():
            if subject not in self._hints:
                self._hints[subject] = await self._fabric.listen(subject, *events)

    def _subject(self, stay: Stay) -> str:
        return self._fabric.logs.delivery(stay.site, self._id, stay.number)

    def end(self) -> None:
        """Stop at the next place where nothing waits to be handed over."""
        self._ended = True
        self._wake.set()

    async def follow(self) -> AsyncIterator[Arrived | Missing]:
        """What comes, for ever or until `end`; the caller adds to the account what it takes from it."""
        tally = self._account.tally
        stay = next((each for each in self.chain if each.number >= tally.stay), self.chain[-1])
        place = tally.place(stay.number)
        moved_s = time.monotonic()
        while not self._ended:
            self._wake.clear()
            try:
                found = await self._read(stay, place)
                later = None if found else await self._later(stay)
                begun = self._account.coverage is not None or (bool(found or later) and await self._begin())
            except FabricError:
                await self._pause()
                continue
            if not begun:
                await self._pause()
            elif found:
                place, moved_s = found[-1].sequence, time.monotonic()
                yield Arrived(stay, found)
            elif later is not None and later[1] <= (self._account.coverage or 0):
                stay, place, moved_s = later[0], 0, time.monotonic()
            elif later is not None and time.monotonic() - moved_s > self._patience_s():
                yield Missing(stay, later[1])
                moved_s = time.monotonic()
            else:
                await self._pause()

    def _patience_s(self) -> float:
        """How long to wait for a site that has been left: not at all for what it was allowed to purge."""
        return 0.0 if (self._account.coverage or 0) < self._floor else _PATIENCE_S

    async def _read(self, stay: Stay, place: int, limit: int = 256) -> list[Stored]:
        """The next messages of a stay; none while its site has never been up and has no log."""
        try:
            return await self._fabric.read(self._fabric.logs.inbox(stay.site), self._subject(stay), place, limit=limit)
        except FabricError:
            if not self._fabric.connected:
                raise
            return []

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(_POLL_S):
                await self._wake.wait()
        except TimeoutError:
            self._news.set()  # hints can be lost

    async def _later(self, stay: Stay) -> tuple[Stay, int] | None:
        """The stay after this one that has something, and where that begins; None when there is nothing yet.

        A stay without a commit has no inbox at all and is passed over.
        """
        await self._refresh(stay)
        starts = []
        for each in self.chain:
            if each.number > stay.number:
                first = await self._read(each, 0, limit=1)
                starts += [(each, block_range(stored.data)[0]) for stored in first]
        return min(starts, key=lambda found: found[1], default=None)

    async def _refresh(self, stay: Stay) -> None:
        """Hear of moves, and forget the stays before this one."""
        if not self._news.is_set():
            return
        self._news.clear()
        revision = await head_revision(self._fabric)
        if revision is None or revision == self._revision:
            return
        snapshot = await self._tables.snapshot(revision)
        self._revision = revision
        if snapshot.subscription_ids.get(self._name) == self._id:
            known = {stay.number: stay for stay in (*self.chain, *snapshot.deployment.subscriptions[self._name].stays)}
            self.chain = tuple(known[number] for number in sorted(known) if number >= stay.number)
            await self._listen()

    async def _begin(self) -> bool:
        """Start to count where the ledger does; False while it does not say.

        Who reads for the first time after a move cannot tell from the inboxes alone whether the first site still owes
        something: it may be behind. A subscription that has not moved begins with its first message.
        """
        if len(self.chain) == 1 and self.chain[0].number == 0:
            return True
        stored = await self._fabric.last(self._fabric.logs.state, self._fabric.logs.ledger(self._stream))
        starts = Matched.from_json(stored.data.partition(b"\n")[2]).starts if stored is not None else {}
        if self._id not in starts:
            return False
        tally = self._account.tally
        tally.starts = tally.mark = tally.boundary = starts[self._id]
        return True
