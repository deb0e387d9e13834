"""The inboxes at a site: what their readers have acknowledged is purged, what waits too long for them expires.

A subscription that moves leaves an inbox at its old site, which its reader drains before the one at the new site
(PACK section 2). No output writes to it any more; the catalog says which ones were left here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.model import Subscription
from headgate.protocol.acks import read_tally
from headgate.protocol.port import FabricError, Stored
from headgate.protocol.published import head_revision
from headgate.relay.core import Key
from headgate.relay.expiry import expire_messages, expire_rows
from headgate.relay.output import Output
from headgate.relay.routes import Receiver
from headgate.relay.state import SiteState
from headgate.wire.block import Block
from headgate.wire.frame import WireError
from headgate.wire.ledger import Tally

_A_ROUND: Final = 1_000  # inboxes that are looked at in a second at most; with more each has its turn later
_SIDE_BY_SIDE: Final = 16


@dataclass(frozen=True, slots=True)
class Overdue:
    """What takes the place of an inbox's unread messages, and the place of the last of them."""

    block: Block
    sequence: int


class Inboxes:
    """Looks after the inboxes of one site."""

    def __init__(self, state: SiteState) -> None:
        self._state = state
        self._revision: int | None = None
        self._left: dict[Key, Subscription] = {}
        self._read: dict[Key, int] = {}
        self._turn = 0

    async def keep(self) -> None:
        """Look after each of them once."""
        due = [
            key for key, output in self._state.core.outputs.items() if key.subscription is not None and output.sequence
        ]
        begin = self._turn % len(due) if len(due) > _A_ROUND else 0
        chosen = (due[begin:] + due[:begin])[:_A_ROUND]
        self._turn = begin + len(chosen)
        for start in range(0, len(chosen), _SIDE_BY_SIDE):
            part = chosen[start : start + _SIDE_BY_SIDE]
            await self._state.port.gather(*(self._keep_one(key) for key in part))
        await self._find_left()
        for key, subscription in self._left.items():
            if key not in self._state.core.outputs:
                await self._keep_left(key, subscription)

    async def _keep_one(self, key: Key) -> None:
        output = self._state.core.outputs.get(key)
        if output is not None:
            await self._keep(key, output)

    async def _keep(self, key: Key, output: Output) -> None:
        """Purge what was read of an inbox that is written to, and let what waits too long expire."""
        state = self._state
        assert key.subscription is not None
        tally = await read_tally(state.port, key.subscription)
        read = min(tally.place(key.stay), output.sequence)
        if tally.stay > key.stay and not output.queue and output.busy is None:
            read = output.sequence + 1  # its reader has moved on, and nothing will be written behind it
        if read > output.purged:
            await state.port.purge(state.port.logs.inbox(state.site), state.subject(key), read)
            output.purged = read
        target = state.targets.get(key)
        if isinstance(target, Receiver) and tally.stay <= key.stay and output.busy is None:
            await self._expire(key, output, target, tally)

    async def _expire(self, key: Key, output: Output, target: Receiver, tally: Tally) -> None:
        state = self._state
        gone = await self._overdue(key, target.subscription, tally)
        if gone is None or gone.sequence != output.sequence or output.busy is not None:
            return
        output.busy = gone.block  # nothing else is published meanwhile
        try:
            data = state.port.codec.encode(gone.block)
            sequence = await state.port.publish(state.subject(key), data, expect=output.sequence, replace=True)
        except FabricError:
            state.resume(key, output, *await state.tail(key))
            raise
        finally:
            state.waiting.set()  # nothing was sent meanwhile
        output.busy = None
        output.sequence = sequence
        output.give_up_all(lambda block: expire_rows(block, target.id))

    async def _find_left(self) -> None:
        """Take what the newest revision says was left here."""
        state = self._state
        revision = await head_revision(state.port)
        if revision is None or revision == self._revision:
            return
        snapshot = await state.tables.snapshot(revision)
        self._left = {
            Key(each.stream, subscription=snapshot.subscription_ids[name], stay=stay.number): each
            for name, each in snapshot.deployment.subscriptions.items()
            for stay in each.left
            if stay.site == state.site
        }
        self._read = {key: read for key, read in self._read.items() if key in self._left}
        self._revision = revision

    async def _keep_left(self, key: Key, subscription: Subscription) -> None:
        """Purge what was read of an inbox that was left, and let what waits too long expire."""
        port, subject = self._state.port, self._state.subject(key)
        log = port.logs.inbox(self._state.site)
        assert key.subscription is not None
        tally = await read_tally(port, key.subscription)
        done = tally.stay > key.stay
        stored = await port.last(log, subject)
        if stored is None:
            return
        # A stay that was read to its end needs no tail: nothing will be written behind it.
        read = stored.sequence + 1 if done else tally.place(key.stay)
        if read > self._read.get(key, 0):
            await port.purge(log, subject, read)
            self._read[key] = read
        gone = None if done else await self._overdue(key, subscription, tally)
        if gone is not None and gone.sequence == stored.sequence:
            await port.publish(subject, port.codec.encode(gone.block), expect=stored.sequence, replace=True)

    async def _overdue(self, key: Key, subscription: Subscription, tally: Tally) -> Overdue | None:
        """The unread rows of an inbox as one declaration, None while they need not expire.

        A reader who said how long it would be away is given that time, others what the subscription says.
        """
        port, log = self._state.port, self._state.port.logs.inbox(self._state.site)
        grace_s = tally.grace_s if tally.detached_ms and tally.grace_s is not None else subscription.expires_s
        if grace_s is None:
            return None
        place = tally.place(key.stay)
        first = await port.read(log, self._state.subject(key), place, limit=1)
        if not first or port.wall_s - max(tally.time_ms / 1000, first[0].time_s) < grace_s:
            return None
        found: list[Stored] = []
        while batch := await port.read(log, self._state.subject(key), place):
            found += batch
            place = batch[-1].sequence
        blocks = await self._unread(found, subscription)
        # A reader who has not come to this stay has counted nothing of it.
        gone = expire_messages(blocks, tally if tally.stay == key.stay else Tally(tally.subscription))
        return None if gone is None else Overdue(gone, found[-1].sequence)

    async def _unread(self, found: list[Stored], subscription: Subscription) -> list[Block]:
        """The blocks of some messages; none where one cannot be read, as its rows are not known."""
        blocks = []
        for stored in found:
            try:
                blocks.append(await self._decode(stored, subscription))
            except WireError as error:
                self._state.put_aside(self._state.port.logs.inbox(self._state.site), stored, error)
                return []
        return blocks

    async def _decode(self, stored: Stored, subscription: Subscription) -> Block:
        codec = self._state.port.codec
        deployment = (await self._state.tables.snapshot(codec.version(stored.data))).deployment
        mine = deployment.subscriptions.get(subscription.name, subscription)
        return codec.block(stored.data, deployment.streams[mine.stream].schema.select(mine.select).arrow)
