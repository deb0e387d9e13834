"""The adapter of one site's relay to NATS: reads logs into the core and publishes what the core decides."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field, replace
from typing import Final

from headgate import faults
from headgate.fabric import Crew, Fabric, FabricError, FencedError, LogFullError, Stored, cancel_all, fenced_size
from headgate.relay.budget import MESSAGE_S, Budgets
from headgate.relay.core import NO_ROOM, Key, RelayCore, Room, Send, key_of
from headgate.relay.gaps import Gaps
from headgate.relay.holds import Holds
from headgate.relay.meters import Meters
from headgate.relay.output import Output, QueueLimits, limits_of
from headgate.relay.repair import RepairService, fetch_history
from headgate.relay.root import EARLIEST, load_block, manifests
from headgate.relay.routes import Child, Receiver, Routes
from headgate.relay.tables import GoneError, Tables
from headgate.relay.upkeep import Upkeep
from headgate.wire.block import Block
from headgate.wire.logs import Log
from headgate.wire.manifest import Manifest
from headgate.wire.message import block_range, block_version, decode_block, encode_block, encode_json

_TICK_S: Final = 0.02
_STALL_S: Final = 0.5
_ROWS: Final = 20_000
_ROW_BYTES: Final = 64.0  # of a row on a link that has not carried any yet
_THREAD_ABOVE: Final = 5_000


@dataclass
class NodeStats:
    """What a relay has done since it started."""

    messages: int = 0
    rows: int = 0
    link_bytes: dict[str, int] = field(default_factory=dict)
    link_messages: dict[str, int] = field(default_factory=dict)
    link_rows: dict[str, int] = field(default_factory=dict)
    inbox_bytes: int = 0
    inbox_messages: int = 0
    repairs: int = 0
    refused: int = 0


@dataclass
class Mark:
    """How far the site log of a stream was read: what messages cover, their places, subjects and versions."""

    ends: list[tuple[int, int, str, int]] = field(default_factory=list)


class RelayNode:
    """One site's relay. `run` works until it is cancelled; everything it knows is in its logs."""

    def __init__(
        self,
        fabric: Fabric,
        site: str,
        *,
        tables: Tables | None = None,
        budgets: Budgets | None = None,
        limits: QueueLimits | None = None,
        emulate_delay: bool = False,
    ) -> None:
        self.fabric = fabric
        self.site = site
        self.tables = tables or Tables(fabric)
        self.budgets = budgets
        self.core = RelayCore(site, limits, defer=True)
        self.stats = NodeStats()
        self.meters = Meters()
        self._emulate_delay = emulate_delay
        self.targets: dict[Key, Child | Receiver] = {}
        self.current: dict[str, frozenset[Key]] = {}
        # Held from restoring a block's outputs to routing it, so that none is forgotten in between.
        self.routing = asyncio.Lock()
        self.marks: dict[str, Mark] = {}
        self.roots: tuple[str, ...] = ()
        self.holds = Holds(fabric, site)
        self.recorded: set[Key] = set()  # outputs with decisions in the site log, which may be out of date
        self._versions: dict[str, int] = {}
        self._retry_at: dict[Key, float] = {}
        self._row_bytes: dict[Key, float] = {}
        self._publishing: set[asyncio.Task[None]] = set()
        self.gaps = Gaps(self)

    async def run(self) -> None:
        """Relay until cancelled."""
        logs = self.fabric.logs
        for log in (logs.site(self.site), logs.inbox(self.site)):
            await self.fabric.ensure(log)
        snapshot = await anext(self.tables.heads())
        self.budgets = self.budgets or Budgets(snapshot.deployment)
        self.core.limits = limits_of(snapshot.deployment, self.core.limits)
        self.roots = tuple(each.name for each in snapshot.deployment.streams.values() if each.root == self.site)
        await self.gaps.restore()
        service = RepairService(self.fabric, self.site, self.tables)
        try:
            async with service, Crew() as crew:
                for stream in self.roots:
                    crew.spawn(self._follow_root(stream))
                crew.spawn(self._follow_site())
                crew.spawn(self._follow_bandwidths(self.budgets))
                crew.spawn(self._publish_loop())
                crew.spawn(Upkeep(self).run())
                await crew.wait()
        finally:
            await cancel_all([*self._publishing, *self.gaps.tasks.values()])

    async def _follow_bandwidths(self, budgets: Budgets) -> None:
        """Keep to bandwidths as they change."""
        async for snapshot in self.tables.heads():
            budgets.update(snapshot.deployment)

    async def _follow_root(self, stream: str) -> None:
        """Read the root log of a stream that starts here."""
        logs = self.fabric.logs
        mark = await self.last(logs.state, logs.mark(self.site, stream))
        done = int(mark.data) if mark else -1
        async for place, manifest in manifests(self.fabric, stream):
            if manifest.upto <= done or not manifest.evaluated:
                continue
            routes = await self.tables.routes(manifest.version, self.site, stream)
            if routes is None:
                continue
            block = await self.meters.spent(self._load(manifest, routes))
            await self.meters.spent(self._receive(block, routes, place, logs.commit(stream)))

    async def _follow_site(self) -> None:
        """Read what parents have published into the site log."""
        logs = self.fabric.logs
        async for batch in self.fabric.follow(logs.site(self.site), logs.links_into(self.site)):
            for stored in batch:
                await self.meters.spent(self._take(stored))

    async def _take(self, stored: Stored) -> None:
        stream, parent = stored.subject.split(".")[-2:]
        try:
            block = await self._decode(stored.data, stream)
        except GoneError:  # a version goes when this relay has stated that all of it is settled
            async with self.routing:
                self.gaps.begin(stream)
                self.core.cover(stream, block_range(stored.data)[1], time.monotonic())
            return
        if self._emulate_delay:
            snapshot = await self.tables.snapshot(block.version)
            delay_s = snapshot.deployment.links.between(parent, self.site).delay_s
            await asyncio.sleep(max(stored.time_s + delay_s - time.time(), 0.0))
        self.meters.arrived.note(parent, max(time.time() - stored.time_s, 0.0))
        routes = await self.tables.routes(block.version, self.site, stream)
        if routes is not None:
            await self._receive(block, routes, stored.sequence, stored.subject)

    async def _decode(self, data: bytes, stream: str) -> Block:
        """Decode a block of an input: the version says with which columns, so it has to be there first."""
        version = block_version(data)
        routes = await self.tables.routes(version, self.site, stream)
        if routes is None:
            raise FabricError(f"{self.site} got a block of {stream!r} under version {version} that does not route it")
        return decode_block(data, routes.schema)

    async def _load(self, manifest: Manifest, routes: Routes) -> Block:
        """Read the rows of a manifest, however long NATS takes to answer."""
        while True:
            try:
                return await load_block(self.fabric, manifest, routes.schema, routes)
            except FabricError:
                await asyncio.sleep(_STALL_S)

    async def _receive(self, block: Block, routes: Routes, place: int, subject: str) -> None:
        async with self.routing:
            await self.restore_outputs(routes)
            await self._backfill(routes, block.after)
            if routes.parent is not None:
                self.gaps.begin(routes.stream)
            gap = self.core.receive(block, routes, time.monotonic())
            same = self._versions.get(routes.stream) == block.version
            if gap is None:
                self._versions[routes.stream] = block.version
            await self.pack_overfull()
            self.current[routes.stream] = frozenset(key_of(routes.stream, target) for target in routes.targets)
        self.meters.blocks += 1
        self.marks.setdefault(routes.stream, Mark()).ends.append((block.upto, place, subject, block.version))
        if gap is not None and routes.parent is not None:
            self.gaps.mend(gap.stream, routes.parent, same=same)

    async def pack_overfull(self) -> None:
        """Give up rows where that takes long, in a thread; `routing` is held, so nothing comes in meanwhile."""
        while self.core.overfull:
            output = self.core.overfull.pop()
            work = output.begin_pack(time.monotonic())
            if work is not None:
                output.end_pack(await asyncio.to_thread(work))

    async def _backfill(self, routes: Routes, upto: int) -> None:
        """Give subscriptions that start earlier what the root log holds of their class, before their first block."""
        for target in routes.local:
            output = self.core.outputs[key_of(routes.stream, target)]
            mine = target.subscription
            if mine.start != EARLIEST or mine.stay or output.reach is not None or upto == 0:
                continue
            root = (await self.tables.snapshot(routes.version)).deployment.streams[routes.stream].root
            reached = 0
            while reached < upto:
                answers = await self._history(root, target, routes, reached, upto)
                if not answers:
                    break
                for data in answers:
                    block = _as_own(decode_block(data, target.schema), target, routes.version)
                    output.offer(block, target, time.monotonic())
                    reached = block.upto

    async def _history(self, root: str, target: Receiver, routes: Routes, after: int, upto: int) -> list[bytes]:
        while True:
            try:
                return await fetch_history(
                    self.fabric, root, routes.stream, after, upto, target.class_id, target.schema.names
                )
            except FabricError:
                await asyncio.sleep(_STALL_S)

    async def restore_outputs(self, routes: Routes) -> None:
        """Take up each output where its log ends, before its first block."""
        for target in routes.targets:
            key = key_of(routes.stream, target)
            self.targets[key] = target
            if key not in self.core.outputs:
                coverage, sequence = await self.tail(key)
                logs = self.fabric.logs
                held = await self.last(logs.site(self.site), logs.held(self.site, key.token))
                output = self.core.restore(key, coverage, sequence)
                if held is not None:
                    self.recorded.add(key)
                    block = decode_block(held.data, target.schema)
                    classes = block.classes if key.child is not None else None
                    output.restore_held(replace(block, classes=classes), target, time.monotonic())

    def subject(self, key: Key) -> str:
        """The subject of an output."""
        logs = self.fabric.logs
        if key.child is not None:
            return logs.link(self.site, key.child, key.stream)
        assert key.subscription is not None
        return logs.delivery(self.site, key.subscription, key.stay)

    async def tail(self, key: Key) -> tuple[int | None, int]:
        """The coverage and the sequence of an output's last message."""
        logs = self.fabric.logs
        log = logs.site(key.child) if key.child is not None else logs.inbox(self.site)
        stored = await self.last(log, self.subject(key))
        return (block_range(stored.data)[1], stored.sequence) if stored else (None, 0)

    async def last(self, log: Log, subject: str) -> Stored | None:
        """The last message of a subject, however long NATS takes to answer; a log that is missing is made."""
        while True:
            try:
                return await self.fabric.last(log, subject)
            except FabricError:
                await asyncio.sleep(_STALL_S)
            with contextlib.suppress(FabricError):
                await self.fabric.ensure(log)

    def _room(self, key: Key, output: Output) -> Room:
        """What an output may send now."""
        now = time.monotonic()
        if output.stalled and now < self._retry_at.get(key, 0.0):
            return NO_ROOM
        if key.child is None or self.budgets is None:
            return Room(_ROWS)
        if not self.budgets.ready(self.site, key.child, now):
            return Room(0, narrow=self.budgets.narrow(self.site, key.child, now))
        rate = self.budgets.rate(self.site, key.child)
        if rate is None:
            return Room(_ROWS)
        row_bytes = self._row_bytes.get(key, _ROW_BYTES)
        return Room(max(int(rate * MESSAGE_S / row_bytes), 1), row_bytes, shared=True)

    async def _publish_loop(self) -> None:
        while True:
            began, sent = time.thread_time(), 0
            # Each message is paid for before the next output is asked, so that it sees what is left.
            for send in self.core.sends(time.monotonic(), self._room):
                sent += 1
                self._pay(send, send.charge)
                task = asyncio.create_task(self.meters.spent(self._publish(send)))
                self._publishing.add(task)
                task.add_done_callback(self._publishing.discard)
            if sent:
                self.meters.cpu_s += time.thread_time() - began
            await asyncio.sleep(_TICK_S)

    def _pay(self, send: Send, size: float) -> None:
        if send.key.child is not None and self.budgets is not None:
            self.budgets.spend(self.site, send.key.child, size, time.monotonic())

    async def _publish(self, send: Send) -> None:
        key, output = send.key, self.core.outputs[send.key]
        subject = self.subject(key)
        try:
            data = await self._encode(send)
            size = fenced_size(subject, data, send.expect)
            self._pay(send, size - send.charge)
            self.core.settle(send, size)
            faults.reach("relay.before_publish")
            began = time.perf_counter()
            sequence = await self.fabric.publish(subject, data, expect=send.expect)
            if key.child is not None:
                self.meters.sent.note(key.child, (time.perf_counter() - began) / 2)
            faults.reach("relay.after_publish")
        except LogFullError:
            self.stats.refused += 1
            self._pay(send, -size)
            output.refused()
            self._retry_at[key] = time.monotonic() + _STALL_S
        except FabricError as error:
            # Stored or not, and by whom, is in the log: go on from its tail.
            output.resume(*await self.tail(key))
            if not isinstance(error, FencedError):
                await asyncio.sleep(_STALL_S)
        else:
            output.published(sequence)
            self._count(key, send.block, size)

    async def _encode(self, send: Send) -> bytes:
        target = self.targets[send.key]
        as_json = isinstance(target, Receiver) and target.subscription.format == "json"
        encode = encode_json if as_json else encode_block
        block = self.outgoing(send.key, send.block)
        if len(block.seqs) > _THREAD_ABOVE:
            data, cpu_s = await asyncio.to_thread(self.meters.timed(lambda: encode(block)))
            self.meters.cpu_s += cpu_s
            return data
        return encode(block)

    def outgoing(self, key: Key, block: Block) -> Block:
        """The last place where a message can be seen before it is sent; tests plant faults here."""
        del key
        return block

    def _count(self, key: Key, block: Block, size: int) -> None:
        stats = self.stats
        stats.messages += 1
        stats.rows += len(block.seqs)
        if key.child is None:
            stats.inbox_bytes += size
            stats.inbox_messages += 1
            return
        link = f"{key.stream}:{key.child}"
        stats.link_bytes[link] = stats.link_bytes.get(link, 0) + size
        stats.link_messages[link] = stats.link_messages.get(link, 0) + 1
        stats.link_rows[link] = stats.link_rows.get(link, 0) + len(block.seqs)
        if len(block.seqs):
            seen = self._row_bytes.get(key, size / len(block.seqs))
            self._row_bytes[key] = 0.8 * seen + 0.2 * size / len(block.seqs)


def _as_own(block: Block, target: Receiver, version: int) -> Block:
    """A block of history as if it had been routed to this receiver, under the version that now serves it."""
    return replace(
        block,
        classes=None,
        commits=tuple(replace(commit, version=version) for commit in block.commits),
        declared={target.id: next(iter(block.declared.values()))} if block.declared else {},
    )
