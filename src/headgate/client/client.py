"""The asyncio client."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakSet, WeakValueDictionary

from headgate.client.acknowledging import Acknowledger
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
from headgate.client.errors import ClientError
from headgate.client.fields import empty_field
from headgate.client.lineage_check import (
    began_anew,
    check_acknowledged,
    check_input,
    check_position,
    new_runs,
    read_runs,
)
from headgate.client.merged import MergedInbox, join_positions, split_positions
from headgate.client.publishing import encode_rows
from headgate.client.reader import OnGap, Reading
from headgate.client.sender import Sender
from headgate.diagnostics import CLIENT, noted
from headgate.errors import nearest
from headgate.fabric import Fabric, FabricError, FencedError, NoAnswerError, Stored, cancel_all, report_quarantine
from headgate.fabric.connecting import connect_as
from headgate.fabric.gated import GatedFabric
from headgate.fabric.membership import Membership, connect_near
from headgate.fabric.server import running_url
from headgate.model import Stream, parse_duration
from headgate.model.roots import members_named
from headgate.protocol.published import head_revision
from headgate.relay.tables import Tables
from headgate.wire.identity import new_id
from headgate.wire.ledger import Account, Tally
from headgate.wire.logs import Logs
from headgate.wire.packing import pack_text
from headgate.wire.snapshot import Snapshot

if TYPE_CHECKING:
    from headgate.grid import Field

DEFAULT_STATE_DIR = Path(".headgate")
_TRIES: Final = 3
_PATIENCE_S: Final = 30.0


class BusyError(ClientError):
    """The service could not make a change for now, and made none: try again."""

    usual_kind = "busy"


def find_url(url: str | None, state_dir: Path | None) -> str:
    """The address of NATS: as given, or of the deployment that runs in a state directory."""
    if url is not None:
        return url
    place = state_dir or DEFAULT_STATE_DIR
    found = running_url(place)
    if found is None:
        raise ClientError(
            f"nothing is running in {place}", hint="start it with `headgate up`, or give --state-dir or --nats"
        )
    return found


class Client:
    """A connection to a deployment. Use it as an async context manager: at its end, what was read is acknowledged.

    ``async for delivery in await client.subscribe("storms"): ...`` reads an existing subscription; with ``stream=``
    and more it is made, or changed, first.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.tables = Tables(fabric)
        self.run_reader: RunReader = run_reader
        """Runs the readers of this client; a gateway feeds them from memory."""
        self._inboxes: WeakSet[Inbox] = WeakSet()
        self._readers: WeakValueDictionary[int, Inbox] = WeakValueDictionary()
        self._watching: asyncio.Task[None] | None = None
        self._myself = {"origin": f"{socket.gethostname()} pid {os.getpid()}", "operator": fabric.user}

    @classmethod
    async def connect(
        cls, url: str | None = None, *, state_dir: Path | None = None, namespace: str = "hg", **options: Any
    ) -> Self:
        """Connect by address, or to the deployment that runs in a state directory.

        With the state directory of a host that has joined, the inboxes of its site are read at its own server.
        """
        member = Membership.read(state_dir or DEFAULT_STATE_DIR) if url is None else None
        if member is not None:
            return cls(await connect_near(member, state_dir or DEFAULT_STATE_DIR, options))
        return cls(await connect_as(find_url(url, state_dir), Logs(namespace), **options))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Acknowledge what was read, and close the connection."""
        await self.release()
        await self.fabric.close()

    async def release(self) -> None:
        """Acknowledge what was read, and leave the connection to whoever else uses it."""
        if self._watching is not None:
            await cancel_all([self._watching])
        for inbox in list(self._inboxes):
            with noted(CLIENT, "another reader has taken over", ClientError):
                await inbox.close()
        await self.fabric.release()

    async def snapshot(self) -> Snapshot:
        """The deployment as it is now."""
        revision = await head_revision(self.fabric)
        if revision is None:
            hint = "is `headgate up` running, is --namespace right?"
            raise ClientError("no deployment is published here", hint=hint, kind="unavailable")
        return await self.tables.snapshot(revision)

    async def subscribe_many(
        self, subscriptions: Mapping[str, Mapping[str, Any]], *, change: bool = False, timeout_s: float = 600.0
    ) -> dict[str, Any]:
        """Make many subscriptions in one change: all of them or none, and one revision.

        Each is given by its name with the keys of the deployment file (`stream`, `site`, `where`, ...). With `change`
        those that are there already are changed. Returns the `revision` from which they count, and their `count`.
        """
        return await self.control(
            "subscribe",
            timeout_s=timeout_s,
            subscriptions={name: dict(each) for name, each in subscriptions.items()},
            change=change,
            brief=True,
        )

    async def control(
        self, verb: str, *, request: str | None = None, timeout_s: float = 10.0, **arguments: Any
    ) -> dict[str, Any]:
        """Ask the running service for a change or a report.

        A request that is not answered in time is repeated, and it is never done twice: it has an id. Who wants to go on
        trying after an error, or after a restart of this program, gives an id of their own as `request`. Who asks more
        often than is allowed waits here, for at most 30 s. `timeout_s` is how long each try waits for an answer.

        Raises:
            BusyError: The catalog is held by another program, or too much was asked for; nothing was changed.
            ClientError: The request was refused, or the service does not answer.
        """
        identity = request or uuid.uuid4().hex
        data = pack_text(json.dumps({**arguments, "request": identity, **self._myself}).encode())
        if len(data) > self.fabric.max_payload:
            taken = f"the request has {len(data):,} bytes, and NATS takes {self.fabric.max_payload:,}"
            raise ClientError(taken, hint="ask for less at a time", kind="too-large")
        given_up_s = time.monotonic() + _PATIENCE_S
        while True:
            document = await self._asked(verb, data, identity, timeout_s)
            again_s = document.get("retry_after_s")
            if again_s is None or time.monotonic() + again_s > given_up_s:
                break
            await asyncio.sleep(again_s)
        if "error" in document:
            kind = document.get("kind")
            raise (BusyError if kind == BusyError.usual_kind else ClientError)(document["error"], kind=kind)
        return document

    async def _asked(self, verb: str, data: bytes, identity: str, timeout_s: float) -> dict[str, Any]:
        """The answer to a request, which may be an error; it is repeated while there is none."""
        for tries_left in reversed(range(_TRIES)):
            try:
                answer = await self.fabric.request(self.fabric.logs.control(verb), data, timeout_s)
                break
            except NoAnswerError as error:
                if not tries_left:
                    raise ClientError(
                        f"the service does not answer to {verb!r}; what was asked for may still be done",
                        hint=f"look with `headgate status`, or ask again with request={identity!r}: it is done once",
                        kind="unavailable",
                    ) from error
        try:
            document = json.loads(answer)
        except ValueError as error:
            raise ClientError(f"the answer to {verb!r} cannot be read: {error}") from error
        if not isinstance(document, dict):
            raise ClientError(f"the answer to {verb!r} cannot be read: it is no JSON object")
        return document

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

    async def _open(
        self,
        snapshot: Snapshot,
        name: str,
        position: str | None,
        *,
        peek: bool,
        after_loss: bool,
        on_digest: OnDigest | None,
        **reading: Any,
    ) -> Inbox:
        """One subscription's inbox; `reading` is as in `Reading`."""
        number, stream = snapshot.subscription_ids[name], snapshot.deployment.subscriptions[name].stream
        given = None if position is None else decode_position(position, number)
        if given is not None:
            await check_position(self.fabric, name, stream, given, snapshot.identity)
        check_acknowledged(name, stream, (await self._known(number))[0], snapshot.identity, after_loss=after_loss)
        place = await self._place(snapshot, stream)
        known, sequence = await self._known(number, place) if peek else await self._take_over(number, place)
        if given is not None:
            given.incarnation, given.run, given.reader = known.incarnation, known.run, known.reader
        acks = Acknowledger(name, None if peek else sequence, known)
        account = Account(known if given is None else given)
        opened = Reading(name, snapshot, account, acks, after_loss=after_loss, **reading)
        inbox = Inbox(self.fabric, self.tables, opened, on_digest, self.run_reader)
        self._inboxes.add(inbox)
        if self._watching is None and known.incarnation:
            self._watching = asyncio.create_task(self._watch())
        if not peek:
            self._readers[number] = inbox
        return inbox

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
                        inbox.tally.run = (await self._place(snapshot, inbox.stream))[1]

    async def _place(self, snapshot: Snapshot, stream: str) -> tuple[str, str]:
        """What a reader's tallies are of now: the stream's incarnation, and the service's run."""
        now = snapshot.identity.incarnations.get(stream)
        runs = [] if now is None else await read_runs(self.fabric)
        return "" if now is None else now.id, runs[-1].id if runs else ""

    async def _known(self, identity: int, place: tuple[str, str] | None = None) -> tuple[Tally, int]:
        """What was last acknowledged, and the place of it; nothing where that was of another incarnation than `place`.

        The tally is marked with the place.
        """
        stored = await self.fabric.last(self.fabric.logs.state, self.fabric.logs.ack(identity))
        tally = Tally(identity) if stored is None else await self._acknowledged(identity, stored)
        if place is not None and tally.incarnation != place[0] and not tally.lost:
            tally = Tally(identity)
        if place is not None:
            tally.incarnation, tally.run = place
        return tally, 0 if stored is None else stored.sequence

    async def _acknowledged(self, identity: int, stored: Stored) -> Tally:
        """An acknowledgement as it was stored; what cannot be read is named, and the inbox is read from its start."""
        log = self.fabric.logs.state
        tally = self.fabric.quarantine.take(log, stored, Tally.decode, "read from the first message in the inbox")
        if tally is not None and tally.subscription == identity:
            return tally
        with noted(CLIENT, "what could not be read is reported later", FabricError):
            await report_quarantine(self.fabric, f"reader-{identity}")
        return Tally(identity, lost=stored.sequence)

    async def _take_over(
        self, identity: int, place: tuple[str, str] | None = None, *, detach: bool = False, grace_s: float | None = None
    ) -> tuple[Tally, int]:
        """Repeat the last acknowledgement under this reader: the one before is fenced off by its next one."""
        while True:
            tally, sequence = await self._known(identity, place)
            tally.time_ms, tally.reader = int(time.time() * 1000), new_id()
            tally.detached_ms, tally.grace_s = (tally.time_ms, grace_s) if detach else (0, None)
            with noted(CLIENT, "another reader acknowledges at the same time, once more", FencedError):
                subject = self.fabric.logs.ack(identity)
                return tally, await self.fabric.publish(subject, tally.encode(), expect=sequence)

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
        tally, _ = await self._take_over(identity, detach=True, grace_s=grace_s)
        return encode_position(tally)

    async def attach(self, name: str, *, site: str | None = None, **reading: Any) -> Inbox | MergedInbox:
        """Read on where `detach` left off, from here on at another site if one is given.

        What waits at the site before is read first, then the new one; `reading` is as for `subscribe`.
        """
        if site is not None:
            await self.move(name, site)
        return await self.subscribe(name, **reading)

    async def move(self, name: str, site: str) -> int:
        """Deliver a subscription at another site; returns the revision from which it is.

        Whoever reads it, now or later, gets what the old site still holds first, and nothing twice.
        """
        return int((await self.control("move", name=name, site=site))["revision"])

    async def unsubscribe(self, name: str) -> int:
        """End a subscription; returns the revision from which it is not served."""
        return int((await self.control("unsubscribe", name=name))["revision"])

    async def set_context(self, name: str, **values: Any) -> int:
        """Set values of a subscriber's context; returns the place in its stream's order from which they hold.

        Batches that are pinned after it are matched with them. The catalog takes them over later, in bulk.
        """
        return int((await self.control("context", name=name, values=values))["place"])

    async def set_contexts(self, contexts: Mapping[str, Mapping[str, Any]]) -> int:
        """Set values of several subscribers, by name, all or none of them; as `set_context`, and much cheaper each."""
        return int((await self.control("context", contexts=contexts))["place"])

    async def refine(self, name: str, *, add: str | None = None, **resolution: Any) -> list[dict[str, Any]]:
        """Give a running subscription of a gridded stream another resolution, as in ``refine("map", space="1/2")``.

        What is not named of `space` and `time` stays. Later rows come at the new resolution; rows that came before do
        not come again. The answer is what is still missing of the past, as resolutions.

        With `add` the subscription stays as it is, and what it lacks is subscribed to under that name, from the
        earliest row on that the log holds: both together are the finer field, with its past, and no row comes twice.
        """
        return list((await self.control("refine", name=name, resolution=resolution, add=add))["missing"])

    async def publish(self, stream: str, rows: Any, *, key: str | None = None) -> int:
        """Publish rows into a stream whose source is `nats`; returns the log's last sequence once all are stored.

        Rows are a record batch, a table, a pandas frame or a list of dicts; columns are found by name. They are sent
        as the source's `payload` says. Rows that do not fit the stream become dead letters there, not errors here.
        Rows that are published again under the same `key`, within two hours, are stored once.
        """
        messages = encode_rows(rows, (await self._input(stream)).source, stream, self.fabric.max_payload)
        subject = self.fabric.logs.published(stream)
        ids = [None if key is None else f"{key}.{number}" for number in range(len(messages))]
        places = await asyncio.gather(
            *(
                self.fabric.publish(subject, message, message_id=identity)
                for message, identity in zip(messages, ids, strict=True)
            )
        )
        return max(places, default=0)

    async def sender(self, stream: str, policy: Mapping[str, Any] | None = None, **options: Any) -> Sender:
        """A sender into a stream that goes on while the connection is away, in order and without duplicates.

        At most `max_rows` wait here; past that the policy says what to give up, and what has waited for `expires_s` is
        given up too. See `Sender` for the other options.
        """
        return Sender(self.fabric, await self._input(stream), policy, **options)

    async def _input(self, name: str) -> Stream:
        """A stream that is to be published into; refused where the log of its input is not the deployment's own."""
        snapshot = await self.snapshot()
        streams = snapshot.deployment.streams
        if name not in streams:
            raise ClientError(f"no stream {name!r}", hint=_suggest(name, streams), kind="unknown")
        if streams[name].source.format == "nats" and not isinstance(self.fabric, GatedFabric):
            await check_input(self.fabric, name, snapshot.identity)
        return streams[name]


def known_names(name: str, snapshot: Snapshot) -> list[str]:
    """The subscription of a name, or those at each root of its stream."""
    if name in snapshot.subscription_ids:
        return [name]
    members = members_named(snapshot.deployment.streams, snapshot.subscription_ids, name)
    if not members:
        hint = _suggest(name, snapshot.subscription_ids)
        raise ClientError(f"no subscription {name!r}", hint=hint, kind="unknown")
    return members


def _positions(token: str, name: str) -> dict[int, str]:
    """The positions of a token of several roots, by subscription."""
    return {read_position(each).subscription: each for each in split_positions(token, name)}


def _suggest(name: str, known: Mapping[str, Any]) -> str:
    close = nearest(name, known)
    return f"did you mean {close!r}?" if close else f"there are {', '.join(sorted(known)) or 'none'}"
