"""The inboxes at a site: what their readers have acknowledged is purged, what waits too long for them expires.

A subscription that moves leaves an inbox at its old site, which its reader drains before the one at the new site
(PACK section 2). No output writes to it any more; the catalog says which ones were left here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.model import Subscription
from headgate.protocol.acks import read_tally
from headgate.protocol.port import FabricError, GoneError, LogFullError, Stored
from headgate.protocol.published import head_revision
from headgate.relay.core import Key
from headgate.relay.expiry import expire_messages, expire_rows
from headgate.relay.output import Output
from headgate.relay.routes import Receiver
from headgate.relay.state import SiteState
from headgate.wire.block import Block, end_of
from headgate.wire.frame import WireError
from headgate.wire.ledger import Tally

_A_ROUND: Final = 1_000  # readers that are looked at in a second at most; with more each inbox has its turn later
_SIDE_BY_SIDE: Final = 16
_SMALL: Final = 512  # a last message that takes no more bytes stays as it is
_ROOMY: Final = 8  # nor does anything while so many times what lies in the log of inboxes would fit


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
        self._known: frozenset[int] = frozenset()  # the subscriptions that there are
        self._begun: set[tuple[Key, tuple[int, int]]] = set()  # who has its first message in a shared inbox
        self.ahead: dict[str, list[int]] = {}
        """By inbox, who is ahead of others that share it, where these hold up what comes."""
        self._tight = False  # whether last messages are to take less room

    async def keep(self) -> None:
        """Look after each of them once."""
        port, log = self._state.port, self._state.port.logs.inbox(self._state.site)
        usage = await port.usage(log)
        self._tight = usage is not None and usage.bytes > log.max_bytes // _ROOMY
        await self._find_left()
        due = [
            key for key, output in self._state.core.outputs.items() if key.subscription is not None and output.sequence
        ]
        begin = self._turn % len(due) if due else 0
        chosen: list[Key] = []
        readers = 0
        for key in due[begin:] + due[:begin]:
            readers += len(self._state.readers(key))
            if chosen and readers > _A_ROUND:
                break
            chosen.append(key)
        self._turn = begin + len(chosen)
        for start in range(0, len(chosen), _SIDE_BY_SIDE):
            part = chosen[start : start + _SIDE_BY_SIDE]
            await port.gather(*(self._keep_one(key) for key in part))
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
        shared = key in state.members
        tally = Tally(key.subscription) if shared else await read_tally(state.port, key.subscription)
        place = await self._place(key, tally)
        read = 0 if place is None else min(place, output.sequence)
        if place is None and not output.queue and output.busy is None:
            read = output.sequence + 1  # its readers have moved on, and nothing will be written behind it
        if read > output.purged:
            await state.port.purge(state.port.logs.inbox(state.site), state.subject(key), read)
            output.purged = read
        target = state.targets.get(key)
        if isinstance(target, Receiver) and tally.stay <= key.stay and output.busy is None:
            if read == output.sequence and output.tail_bytes > _SMALL and self._tight:
                await self._mark(key, output, target)
            elif not shared:
                await self._expire(key, output, target, tally)

    async def _mark(self, key: Key, output: Output, target: Receiver) -> None:
        """Put a message without rows in the place of the last one, which its reader is done with.

        An output goes on from its last message, so that one is never purged. Of thousands of inboxes they alone could
        fill the log.
        """
        state = self._state
        stored = await state.port.last(state.port.logs.inbox(state.site), state.subject(key))
        if stored is None or stored.sequence != output.sequence:
            return
        last = (await self._unread([stored], target.subscription))[-1:]
        if not last or output.busy is not None or output.sequence != stored.sequence:
            return
        await self._put_instead(key, output, target, end_of(last[0]))

    async def _put_instead(self, key: Key, output: Output, target: Receiver, block: Block) -> bool:
        """Publish a message in the place of everything on an output; whether that was done."""
        state = self._state
        output.busy = block  # nothing else is published meanwhile
        try:
            data = state.port.codec.encode(block, as_json=target.subscription.format == "json")
            sequence = await state.port.publish(state.subject(key), data, expect=output.sequence, replace=True)
        except LogFullError:
            output.busy = None
            return False
        except FabricError:
            state.resume(key, output, *await state.tail(key))
            raise
        finally:
            state.waiting.set()  # nothing was sent meanwhile
        output.busy = None
        output.sequence, output.tail_bytes = sequence, 0
        return True

    async def _place(self, key: Key, tally: Tally) -> int | None:
        """The place up to which everybody has read an inbox, None where nobody needs it any more."""
        if key in self._state.members:
            return await self._read_by_all(key)
        return None if tally.stay > key.stay else tally.place(key.stay)

    async def _read_by_all(self, key: Key) -> int | None:
        """The place up to which everybody has read a shared inbox.

        Who has not read any of it yet needs what came since it is there. Who has gone on to another stay, or has ended,
        needs nothing.
        """
        port, members = self._state.port, self._state.members
        # One that is not known, but was met in a newer version, is of a revision that was not looked at yet.
        met, revision = self._state.met, self._revision or 0
        asked = sorted(each for each in members[key] if each[0] in self._known or met.get(each[0], 0) > revision)
        places: list[int] = []
        living: list[int] = []
        for start in range(0, len(asked), _SIDE_BY_SIDE):
            part = asked[start : start + _SIDE_BY_SIDE]
            tallies = await port.gather(*(read_tally(port, subscription) for subscription, _ in part))
            for (subscription, stay), tally in zip(part, tallies, strict=True):
                if tally.stay > stay:
                    members[key].pop((subscription, stay), None)
                else:
                    living.append(subscription)
                    places.append(tally.place(stay) or await self._before(key, (subscription, stay)))
        await self._compare(key, dict(zip(living, places, strict=True)))
        return min(places, default=None)

    async def _compare(self, key: Key, places: dict[int, int]) -> None:
        """Say who is ahead of others in a shared inbox that is half full: they are held up before it is full."""
        state, port = self._state, self._state.port
        last, first = max(places.values(), default=0), min(places.values(), default=0)
        self.ahead.pop(key.token, None)
        if first == last or key not in state.core.outputs:
            return
        log, subject = port.logs.inbox(state.site), state.subject(key)
        held = (await port.subjects(log, subject)).get(subject, 0)
        if 2 * held >= log.max_per_subject or self._tight:
            self.ahead[key.token] = [each for each, place in places.items() if place > (first + last) / 2]

    async def _before(self, key: Key, reader: tuple[int, int]) -> int:
        """The place up to which the messages of a shared inbox are for others than one who has read none of it."""
        state, port = self._state, self._state.port
        place, output = state.members[key].get(reader) or 0, state.core.outputs.get(key)
        while (key, reader) not in self._begun and (output is None or place < output.sequence):
            batch = await port.read(port.logs.inbox(state.site), state.subject(key), place, limit=16)
            if not batch:
                break
            for stored in batch:
                if await self._is_for(key, stored, reader):
                    self._begun.add((key, reader))
                    break
                place = stored.sequence
        state.members[key][reader] = place
        return place

    async def _is_for(self, key: Key, stored: Stored, reader: tuple[int, int]) -> bool:
        """Whether a message of a shared inbox is for a subscription in a stay; one that cannot be read may be."""
        state = self._state
        try:
            routes = await state.tables.routes(state.port.codec.version(stored.data), state.site, key.stream)
        except (WireError, GoneError):
            return True
        assert key.subscription is not None
        return routes is not None and reader in routes.readers.get((key.subscription, key.stay), ())

    async def _expire(self, key: Key, output: Output, target: Receiver, tally: Tally) -> None:
        gone = await self._overdue(key, target.subscription, tally)
        if gone is None or gone.sequence != output.sequence or output.busy is not None:
            return
        if await self._put_instead(key, output, target, gone.block):
            output.give_up_all(lambda block: expire_rows(block, target.id))

    async def _find_left(self) -> None:
        """Take what the newest revision says was left here."""
        state = self._state
        revision = await head_revision(state.port)
        if revision is None or revision == self._revision:
            return
        snapshot = await state.tables.snapshot(revision)
        here = [
            (each, identity, stay, Key(each.stream, subscription=owner, stay=number))
            for name, each in snapshot.deployment.subscriptions.items()
            for identity in (snapshot.subscription_ids[name],)
            for stay in each.stays
            if stay.site == state.site
            for owner, number in (stay.inbox_of(identity),)
        ]
        self._left = {key: each for each, _, stay, key in here if stay.number != each.stay}
        shared = {key for _, _, stay, key in here if stay.shared is not None}
        for _, identity, stay, key in here:
            if key in shared or key in state.members:
                state.admit(key, (identity, stay.number))
        self._known = frozenset(snapshot.subscription_ids.values())
        self._forget_members({key for *_, key in here})
        self._read = {key: read for key, read in self._read.items() if key in self._left}
        self._revision = revision

    def _forget_members(self, here: set[Key]) -> None:
        """Forget who read shared inboxes that nobody reads any more and that nothing is written to."""
        state = self._state
        for key in [each for each in state.members if each not in here and each not in state.core.outputs]:
            del state.members[key]
        self._begun = {each for each in self._begun if each[0] in state.members}
        there = {subscription for members in state.members.values() for subscription, _ in members}
        state.met = {subscription: version for subscription, version in state.met.items() if subscription in there}

    async def _keep_left(self, key: Key, subscription: Subscription) -> None:
        """Purge what was read of an inbox that was left, and let what waits too long expire."""
        port, subject = self._state.port, self._state.subject(key)
        log = port.logs.inbox(self._state.site)
        assert key.subscription is not None
        shared = key in self._state.members
        tally = await read_tally(port, key.subscription)
        place = await self._place(key, tally)
        done = place is None
        stored = await port.last(log, subject)
        if stored is None:
            return
        # A stay that was read to its end needs no tail: nothing will be written behind it.
        read = stored.sequence + 1 if place is None else place
        if read > self._read.get(key, 0):
            await port.purge(log, subject, read)
            self._read[key] = read
        gone = None if done or shared else await self._overdue(key, subscription, tally)
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
        ack = await port.last(port.logs.state, port.logs.ack(tally.subscription))
        if ack is not None and (Tally.read(ack.data) is None or (tally.lost and tally.starts is None)):
            return None  # what its reader has counted is not known, and it may be fetching what lies before them
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
