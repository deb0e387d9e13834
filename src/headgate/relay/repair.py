"""Answering questions about ranges: a site that misses one asks its parent, which reads its own log or asks further up.

The answer holds adjacent blocks from the start of the range, never past its end, as many as fit a message; the asker
asks again for the rest. The root answers from the root log; where rows were purged there or cannot be read, the commit
says how many it matched (`headgate.wire.block.Commit`), and the reader declares as expired what it has not had of them.
A site that was in nobody's tree for a while gets that part of the range as a block without rows. Any site that a
subscription's rows passed through can answer for it, the root always, so that a site it has left may be gone for good.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from msgspec import structs

from headgate.matching import ClassLists
from headgate.model import Subscription
from headgate.model.start import takes
from headgate.protocol.port import FabricError, GoneError, MachinePort
from headgate.protocol.records import RangeRequest
from headgate.relay.asking import fetch_blocks, forgotten_past
from headgate.relay.entitlement import is_served, owed_from, was_at
from headgate.relay.history import conform, match_again, matches_again
from headgate.relay.root import commit_of, committed, load_block, readable
from headgate.relay.routes import Receiver, Routes
from headgate.relay.split import for_child, for_local
from headgate.relay.tables import TableCache
from headgate.wire.block import Block, Commit
from headgate.wire.frame import WireError
from headgate.wire.manifest import Manifest
from headgate.wire.snapshot import Snapshot

_MAX_ANSWER: Final = 4 << 20
_MAX_COMMITS: Final = 200
_AT_ONCE: Final = 16  # commits whose rows are read side by side
_ANSWER_S: Final = 1.0  # an asker waits three times as long at first: it gets what was found by then
_PATIENCE: Final = 2  # as after so many tries (`asking`): less than an asker who has asked for long, or none gets it
HISTORY: Final = 0
"""The receiver that rows of history are for, whoever asks for them: no subscription has this id."""

Routed = tuple[Block, Routes | None]
"""A block and the routes that apply to it; none where nothing of it was for whoever asks."""


def _coverage(stream: str, after: int, upto: int, commits: tuple[Commit, ...]) -> Block:
    """A range without rows."""
    rows = pa.RecordBatch.from_pylist([], schema=pa.schema([]))
    return Block(stream, after, upto, commits, np.zeros(0, dtype=np.uint64), rows, ClassLists.empty(0))


class OwnProgress(Protocol):
    """What a relay knows of itself."""

    def reached(self, request: RangeRequest) -> int:
        """How far this site has come, or has sent a range to a child."""
        ...


class RepairService:
    """Answers requests for ranges at one site."""

    def __init__(self, port: MachinePort, site: str, tables: TableCache, own: OwnProgress | None = None) -> None:
        """`own` knows how far this site has come itself."""
        self._port = port
        self._site = site
        self._tables = tables
        self._own = own

    async def answer(self, data: bytes) -> Any:
        """The blocks that a request asks for; nothing where it cannot be read or cannot be answered now."""
        try:
            request = RangeRequest.decode(data)
            if request.beat:
                return self._progress(request)
            streams = (await self._tables.newest()).deployment.streams
            return await self._answer(request, streams[request.stream].root)
        except (FabricError, WireError, ValueError, KeyError, TypeError):
            return b""

    async def _answer(self, request: RangeRequest, root: str) -> Any:
        port, tables, site, mine = self._port, self._tables, request.owed, request.served
        if site is not None:
            owed = await owed_from(port, request, lambda version: is_served(tables, version, site, request.stream))
            return owed.encode()
        if mine is not None:
            owed = await owed_from(port, request, lambda version: was_at(tables, version, mine, request.stay))
            return owed.encode()
        if request.sent:
            return self._progress(request)
        forgotten = None
        if request.child and not request.subscription and root == self._site:
            forgotten = await self._forgotten(request)
        if forgotten is not None or request.past:
            return self._joined([forgotten])
        if request.class_id is not None:
            return self._joined(await self._of_class(request, request.class_id))
        blocks = await (self._from_root if root == self._site else self._from_log)(request)
        if not blocks and request.subscription and root != self._site:
            # What the root answers is for the subscription as it is.
            further = structs.replace(request, child="")
            return port.codec.join(await fetch_blocks(port, root, further, _PATIENCE))
        return self._joined([await self._for(block.until(request.upto), routes, request) for block, routes in blocks])

    def _progress(self, request: RangeRequest) -> bytes:
        """How far this site has come, or has sent a range."""
        return b"" if self._own is None else str(self._own.reached(request)).encode()

    def _joined(self, pieces: Iterable[Block | None]) -> Any:
        """As many blocks as fit an answer, up to the first that this site cannot say."""
        codec, size = self._port.codec, 0
        found: list[Any] = []
        for piece in pieces:
            if piece is None:
                break
            message = codec.encode(piece)
            size += codec.size(message)
            if found and size > _MAX_ANSWER:
                break
            found.append(message)
        return codec.join(found)

    async def _forgotten(self, request: RangeRequest) -> Block | None:
        """The beginning of a range as coverage alone, where the root log has forgotten it; None where it has not.

        It forgets nothing that is owed to a site that has not passed it on (`headgate.service.purging`). So a site that
        asks for it was in nobody's tree. A subscriber who asks has had it, and wants it again: that is another matter.
        """
        logs, stream, after = self._port.logs, request.stream, request.after
        end = min(request.upto, await forgotten_past(self._port, stream))
        if after >= end:
            return None
        batch = await self._port.read(logs.root(stream), logs.commit(stream), 0, limit=16)
        for _, oldest in readable(self._port, batch):
            commit = replace(commit_of(oldest), after=after, upto=end, shed=0, shed_updates=0, partly_shed=0)
            return _coverage(stream, after, end, (commit,))
        return None

    async def _for(self, block: Block, routes: Routes | None, request: RangeRequest) -> Block | None:
        """The block as the asker would have been sent it, None when this version serves the asker from elsewhere."""
        if routes is not None:
            target = next((each for each in routes.children if each.site == request.child), None)
            if target is None and request.serve:
                target = await self._tables.stand_in(block.version, self._site, block.stream, request.child)
            if target is not None:
                return for_child(block, target)
            mine = tuple(receiver for receiver in routes.receivers if receiver.id == request.subscription)
            for _, piece in for_local(block, mine):
                return piece
        if await self._unserved(block.version, request):
            return _coverage(block.stream, block.after, block.upto, block.meant_for(()))
        return None

    async def _unserved(self, version: int, request: RangeRequest) -> bool:
        """Whether the site that asks got nothing of the stream from anybody under a version."""
        return bool(request.child) and not await is_served(self._tables, version, request.child, request.stream)

    async def _from_log(self, request: RangeRequest) -> list[Routed]:
        """What this site's own log holds: adjacent blocks that start at or before the range, else what is above."""
        logs, codec, stream, upto = self._port.logs, self._port.codec, request.stream, request.upto
        found: list[Routed] = []
        reached, place = request.after, 0
        pattern = logs.link("x", self._site, stream).rsplit(".", 1)[0] + ".*"
        while reached < upto and (batch := await self._port.read(logs.site(self._site), pattern, place)):
            place = batch[-1].sequence
            for stored in batch:
                try:
                    start, end = codec.coverage(stored.data)
                    if not (end > reached and start <= reached < upto):
                        continue
                    routes = await self._tables.routes(codec.version(stored.data), self._site, stream)
                    if routes is None:
                        continue
                    block = codec.block(stored.data, routes.schema)
                    if not (block.exact_at(reached) and block.exact_at(upto)):
                        continue  # half of what was given up cannot be told: the sites above know the rows themselves
                except (GoneError, WireError):  # settled long ago, or spoilt: the sites above may have it
                    continue
                found.append((block.since(reached), routes))
                reached = end
        return found or (await self._from_above(request) if request.child else [])

    async def _from_root(self, request: RangeRequest) -> list[Routed]:
        """What the root log holds, at most some commits at a time; rows are read only for who may get them."""
        logs, stream, after = self._port.logs, request.stream, request.after
        found: list[Routed] = []
        place, end_s = 0, self._port.now + _ANSWER_S
        while batch := await self._port.read(logs.root(stream), logs.commit(stream), place):
            place = batch[-1].sequence
            wanted = [each for _, each in readable(self._port, batch) if each.evaluated and after < each.upto]
            wanted = [each for each in wanted if each.after < request.upto]
            for first in range(0, len(wanted), _AT_ONCE):
                some = wanted[first : first + _AT_ONCE]
                loaded = await self._port.gather(*(self._load(each, request) for each in some))
                found += [(block.since(after), routes) for block, routes in filter(None, loaded)]
                if len(found) >= _MAX_COMMITS or self._port.now > end_s:
                    return found
        return found

    async def _load(self, manifest: Manifest, request: RangeRequest) -> Routed | None:
        """The rows of a manifest with their routes, or its coverage where a child gets nothing of it from anybody."""
        if await self._unserved(manifest.version, request):
            return _coverage(manifest.stream, manifest.after, manifest.upto, (commit_of(manifest),)), None
        routes = await self._tables.routes(manifest.version, self._site, manifest.stream)
        return None if routes is None else (await load_block(self._port, manifest, routes.schema, routes), routes)

    async def _of_class(self, request: RangeRequest, class_id: int) -> list[Block]:
        """What the root log holds of one class, at most some commits at a time, and what can be read in a while."""
        found: list[Block] = []
        newest, end_s = await self._tables.newest(), self._port.now + _ANSWER_S
        wanted = [
            manifest
            async for manifest in committed(self._port, request.stream, request.upto)
            if request.after < manifest.upto <= request.upto and takes(request.start, manifest.upto, manifest.time_ms)
        ]
        for first in range(0, min(len(wanted), _MAX_COMMITS), _AT_ONCE):
            some = wanted[first : first + _AT_ONCE]
            loaded = await self._port.gather(*(self._of_commit(each, request, class_id, newest) for each in some))
            found += [piece for pieces in loaded for piece in pieces]
            if self._port.now > end_s:
                break
        return found

    async def _of_commit(
        self, manifest: Manifest, request: RangeRequest, class_id: int, newest: Snapshot
    ) -> list[Block]:
        """The rows of one commit that a class takes, in the columns that the stream has now."""
        stream, snapshot = manifest.stream, await self._tables.snapshot(manifest.version)
        schema, now = snapshot.deployment.streams[stream].schema, newest.deployment.streams[stream].schema
        mine = Receiver(
            HISTORY, class_id, Subscription("history", stream, self._site), now.select(request.columns).arrow
        )
        routes = Routes(self._site, stream, manifest.version, None, schema.arrow, (), (mine,))
        block = await load_block(self._port, manifest, schema.arrow, routes)
        block = replace(block, rows=conform(block.rows, now))
        if matches_again(snapshot, newest, manifest, class_id):
            block = match_again(block, newest, class_id)
        return [piece for _, piece in for_local(block, (mine,))]

    async def _from_above(self, request: RangeRequest) -> list[Routed]:
        """This site's log no longer has the range that a child asks for: ask the site above.

        Where the plan has changed since, the site above may be the asker itself, or one that never had the range. The
        root has had it in any case.
        """
        snapshot, stream = await self._tables.newest(), request.stream
        tree = snapshot.plan.trees.get(stream) if snapshot.plan else None
        parent = tree.parents.get(self._site) if tree else None
        mine = RangeRequest(stream=stream, after=request.after, upto=request.upto, child=self._site)
        found: list[Routed] = []
        for place in dict.fromkeys((parent, snapshot.deployment.streams[stream].root)):
            if place is None or place == request.child:
                continue
            try:
                answers = await fetch_blocks(self._port, place, mine, _PATIENCE)
            except FabricError:
                continue  # the next one may be able to answer, else the asker counts a failure and asks again
            for data in answers:
                routes = await self._tables.routes(self._port.codec.version(data), self._site, stream)
                found.append((self._port.codec.block(data, routes.schema if routes else pa.schema([])), routes))
            break
        return found
