"""The asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, WeakValueDictionary

from headgate.client.acknowledging import Acknowledger
from headgate.client.connection import ServiceConnection
from headgate.client.delivery import (
    Inbox,
    OnDigest,
    RunReader,
    closing,
    decode_position,
    encode_position,
    read_position,
    run_reader,
)
from headgate.client.entrance import Entrance, open_entrance
from headgate.client.errors import ClientError
from headgate.client.fields import empty_field
from headgate.client.lineage_check import (
    began_anew,
    check_acknowledged,
    check_position,
    new_runs,
)
from headgate.client.member import GroupMember
from headgate.client.merged import MergedInbox, join_positions, split_positions
from headgate.client.names import known_names
from headgate.client.publishing import encode_rows
from headgate.client.reader import OnGap, Reading
from headgate.client.sender import Sender
from headgate.client.takeover import last_acknowledged, read_place, take_over
from headgate.diagnostics import CLIENT, noted
from headgate.fabric import Fabric, FabricError, cancel_all
from headgate.model import parse_duration
from headgate.wire.ledger import Account
from headgate.wire.snapshot import Snapshot

if TYPE_CHECKING:
    from headgate.client.served import ServedQuery
    from headgate.grid import Field


class Client(ServiceConnection):
    """A connection to a deployment. Use it as an async context manager: at its end, what was read is acknowledged.

    ``async for delivery in await client.subscribe("storms"): ...`` reads an existing subscription; with ``stream=``
    and more it is made, or changed, first.
    """

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric)
        self.run_reader: RunReader = run_reader
        """Runs the readers of this client; a gateway feeds them from memory."""
        self._inboxes: WeakSet[Inbox] = WeakSet()
        self._readers: WeakValueDictionary[int, Inbox] = WeakValueDictionary()
        self._watching: asyncio.Task[None] | None = None

    async def release(self) -> None:
        """Acknowledge what was read, and leave the connection to whoever else uses it."""
        if self._watching is not None:
            await cancel_all([self._watching])
        for inbox in list(self._inboxes):
            with noted(CLIENT, "another reader has taken over", ClientError):
                await inbox.close()
        await super().release()

    async def subscribe(
        self,
        name: str,
        *,
        position: str | None = None,
        peek: bool = False,
        max_rows: int | None = None,
        on_digest: OnDigest | None = None,
        on_gap: OnGap | None = None,
        after_loss: bool = False,
        confirming: bool = False,
        batch: int = 256,
        upto: int | None = None,
        snapshot: Snapshot | None = None,
        **subscription: Any,
    ) -> Inbox | MergedInbox:
        """Open a subscription for reading, from a position token or from what was last acknowledged.

        A subscription has one reader: this one takes over, and the one before gets a `ClientError`. With `peek` it
        reads along instead and acknowledges nothing. A delivery has at most `max_rows` rows. `on_digest` hears what
        was given up, by reason, with its range; `on_gap` hears of a range that did not arrive and is fetched again.
        Further keywords (`site`, `stream`, `where`, `select`, ... as in the deployment file) make the subscription,
        or change it if there is one of that name. A subscription to a stream of several roots is read as one, in the
        order of each root; its position token holds the position at each.

        Where rows of the stream were lost and that was accepted, the stream has begun anew: who was there before is
        told by a `LossError`, and reads what came since with `after_loss`; so does who stands before rows that are no
        longer kept. With `confirming`, what the loop takes is
        not acknowledged before `inbox.confirm(delivery.position)` is called, for who passes rows on to somebody else.
        `batch` bounds how many messages of the inbox are in memory at a time. With `upto` the loop ends when
        everything up to that sequence number has come. Who has just read the deployment gives its `snapshot`.
        """
        if subscription:
            await self.control("subscribe", name=name, subscription=subscription, change=True)
        snapshot = await self.snapshot() if snapshot is None or subscription else snapshot
        opened = partial(
            self._open,
            snapshot,
            peek=peek,
            max_rows=max_rows,
            on_digest=on_digest,
            on_gap=on_gap,
            after_loss=after_loss,
            confirming=confirming,
            batch=batch,
            upto=upto,
        )
        if name in snapshot.subscription_ids:
            return await opened(name, position)
        members = known_names(name, snapshot)
        given = {} if position is None else _positions(position, name)
        if position is not None and not given.keys() & {snapshot.subscription_ids[each] for each in members}:
            raise ClientError(f"this is not a position of {name!r}", hint="use `Delivery.position` as it was given")
        # A root that the token does not know was added since: it is read from what was acknowledged.
        places = {each: given.get(snapshot.subscription_ids[each]) for each in members}
        return MergedInbox(name, [await opened(*place) for place in places.items()])

    def join(
        self, name: str, member: str | None = None, *, context: Mapping[str, Any] | None = None, max_rows: int = 256
    ) -> GroupMember:
        """Be a member of a group subscription: each of its rows goes to one of its members.

        ``async with client.join("jobs", "worker-1") as member: async for delivery in member: ...`` A member holds at
        most `max_rows` rows that it has not acknowledged. `context` are its values for the group's `deal`. Who comes
        again under the same name replaces the member that was there: what that one held is dealt again.
        """
        return GroupMember(self.fabric, name, member, context=context or {}, max_rows=max_rows)

    async def field(
        self, *names: str, values: tuple[str, ...] | None = None, steps: int = 24
    ) -> AsyncGenerator[Field, None]:
        """The field of a subscription to a gridded stream, given again after every delivery, a little fuller.

        Several subscriptions, such as the intervals 0 to 1/4 and 1/4 to 1/2, make one field: it refines as the second
        one's rows arrive. ``async for field in client.field("map"): dataset = field.to_xarray()``. `values` are the
        columns to keep, `steps` how many time steps.
        """
        opened = [await self.subscribe(name) for name in names]
        field = empty_field(await self.snapshot(), names, values, steps)
        inboxes = [each for inbox in opened for each in (inbox.inboxes if isinstance(inbox, MergedInbox) else [inbox])]
        together = MergedInbox(", ".join(names), inboxes)
        async with closing(together) as deliveries:
            async for delivery in deliveries:
                field.add(delivery.rows)
                together.done()  # the field has it
                yield field

    async def query(self, stream: str, **asked: Any) -> ServedQuery:
        """A query on a gridded stream that sites serve: `region`, `resolution`, and the site to ask first, `at`.

        ``async with await client.query("wind", resolution={"space": "1/4"}) as rows: async for batch in rows: ...``
        """
        from headgate.client.served import open_query

        return await open_query(self.fabric, self.tables, await self.snapshot(), stream, **asked)

    async def _open(
        self,
        snapshot: Snapshot,
        name: str,
        position: str | None,
        *,
        peek: bool,
        on_digest: OnDigest | None,
        **reading: Any,
    ) -> Inbox:
        """One subscription's inbox; `reading` is as in `Reading`."""
        if snapshot.deployment.subscriptions[name].group is not None and not peek:
            raise ClientError(
                f"{name!r} is a group: its rows are dealt out to members",
                hint="be one of them with `client.join(name)` or `headgate tail NAME --member MEMBER`, or read along "
                "with peek",
                kind="conflict",
            )
        opened = await self.reading(snapshot, name, position, peek=peek, **reading)
        inbox = Inbox(self.fabric, self.tables, opened, on_digest, self.run_reader)
        self._inboxes.add(inbox)
        if self._watching is None and opened.account.tally.incarnation:
            self._watching = asyncio.create_task(self._watch())
        if not peek:
            self._readers[inbox.id] = inbox
        return inbox

    async def reading(
        self,
        snapshot: Snapshot,
        name: str,
        position: str | None = None,
        *,
        peek: bool = False,
        after_loss: bool = False,
        **reading: Any,
    ) -> Reading:
        """What the machine of a subscription's reader begins with; unless it peeks, it is the one reader from now on.

        For who runs the machine; `subscribe` is for everybody else.
        """
        number, stream = snapshot.subscription_ids[name], snapshot.deployment.subscriptions[name].stream
        given = None if position is None else decode_position(position, number)
        if given is not None:
            await check_position(self.fabric, name, stream, given, snapshot.identity)
        check_acknowledged(
            name, stream, (await last_acknowledged(self.fabric, number))[0], snapshot.identity, after_loss=after_loss
        )
        place = await read_place(self.fabric, snapshot, stream)
        known, sequence = (
            await last_acknowledged(self.fabric, number, place) if peek else await take_over(self.fabric, number, place)
        )
        if given is not None:
            given.incarnation, given.run, given.reader = known.incarnation, known.run, known.reader
        acks = Acknowledger(name, None if peek else sequence, known)
        account = Account(known if given is None else given)
        return Reading(name, snapshot, account, acks, after_loss=after_loss, **reading)

    async def _watch(self) -> None:
        """Follow the starts of the service: readers go on in the newest run, or hear that their stream began anew."""
        async for _ in new_runs(self.fabric):
            with noted(CLIENT, "whether a stream began anew is asked again", FabricError):
                snapshot = await self.snapshot()
                for inbox in list(self._inboxes):
                    now = snapshot.identity.incarnations.get(inbox.stream)
                    if now is not None and now.id != inbox.tally.incarnation:
                        inbox.refuse(began_anew(inbox.name, inbox.stream, inbox.tally, snapshot.identity))
                    else:
                        inbox.tally.run = (await read_place(self.fabric, snapshot, inbox.stream))[1]

    async def detach(self, name: str, *, expires: str | float | None = None) -> str:
        """Go away for a while: the site keeps what comes, under the subscription's policy, for at most `expires`.

        What was handed over so far counts as done, and the loop over the inbox ends. Without `expires` the
        subscription's own holds. Returns the position, for whoever wants to store it.
        """
        snapshot = await self.snapshot()
        grace_s = parse_duration(expires) if isinstance(expires, str) else expires
        positions = [
            await self._detach(snapshot.subscription_ids[each], grace_s) for each in known_names(name, snapshot)
        ]
        return positions[0] if name in snapshot.subscription_ids else join_positions(positions)

    async def _detach(self, identity: int, grace_s: float | None) -> str:
        """Detach one subscription, by its number."""
        newest = self._readers.get(identity)
        for inbox in list(self._inboxes):
            if inbox.id == identity:
                self._inboxes.discard(inbox)
                # An earlier reader of this client was taken over by the newest: it has nothing to acknowledge.
                taken = () if inbox is newest else (ClientError,)
                with noted(CLIENT, "an earlier reader has nothing to acknowledge", *taken):
                    await inbox.detach()
        tally, _ = await take_over(self.fabric, identity, detach=True, grace_s=grace_s)
        return encode_position(tally)

    async def attach(self, name: str, *, site: str | None = None, **reading: Any) -> Inbox | MergedInbox:
        """Read on where `detach` left off, from here on at another site if one is given.

        What waits at the site before is read first, then the new one; `reading` is as for `subscribe`.
        """
        if site is not None:
            await self.move(name, site)
        return await self.subscribe(name, **reading)

    async def publish(self, stream: str, rows: Any, *, key: str | None = None, site: str | None = None) -> int:
        """Publish rows into a stream whose source is `nats`; returns the log's last sequence once all are stored.

        Rows are a record batch, a table, a pandas frame or a list of dicts; columns are found by name. They are sent
        as the source's `payload` says. Rows that do not fit the stream become dead letters there, not errors here.
        Rows that are published again under the same `key`, within two hours, are stored once. With `site` they are
        stored at that site, and go up to the stream's root from there, also when it is away at the moment.
        """
        found, entrance = await open_entrance(self.fabric, await self.snapshot(), stream, site)
        messages = encode_rows(rows, found.source, stream, entrance.fabric.max_payload)
        ids = [None if key is None else f"{key}.{number}" for number in range(len(messages))]
        places = await asyncio.gather(
            *(
                entrance.fabric.publish(entrance.rows, message, message_id=identity)
                for message, identity in zip(messages, ids, strict=True)
            )
        )
        return max(places, default=0)

    async def sender(
        self, stream: str, policy: Mapping[str, Any] | None = None, *, site: str | None = None, **options: Any
    ) -> Sender:
        """A sender into a stream that goes on while the connection is away, in order and without duplicates.

        At most `max_rows` wait here; past that the policy says what to give up, and what has waited for `expires_s` is
        given up too. See `Sender` for the other options. With `site` it publishes at that site, and may move.
        """
        found, entrance = await open_entrance(self.fabric, await self.snapshot(), stream, site)
        return Sender(entrance, found, policy, **options)

    async def entrance(self, stream: str, site: str | None = None) -> Entrance:
        """Where rows are published into a stream: at its root, or at a site."""
        return (await open_entrance(self.fabric, await self.snapshot(), stream, site))[1]


def _positions(token: str, name: str) -> dict[int, str]:
    """The positions of a token of several roots, by subscription."""
    return {read_position(each).subscription: each for each in split_positions(token, name)}
