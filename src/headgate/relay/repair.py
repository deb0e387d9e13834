"""Repair of gaps: a site that misses a range asks its parent, which reads its own log or asks further up.

The answer holds adjacent blocks from the start of the range, never past its end, as many as fit a message; the asker
asks again for the rest. The root answers from the root log; where rows were purged there or cannot be read, the commit
says how many it matched (`headgate.wire.block.Commit`), and the reader declares as expired what it has not had of them.
A site that was in nobody's tree for a while gets that part of the range as a block without rows. Any site that a
subscription's rows passed through can answer for it, the root always, so that a site it has left may be gone for good.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.matching import ClassLists
from headgate.model import Subscription
from headgate.protocol.port import FabricError, GoneError, LogPort, MachinePort
from headgate.protocol.records import Past, RangeRequest
from headgate.relay.owed import is_served, owed_from, was_at
from headgate.relay.root import commit_of, committed, load_block, readable
from headgate.relay.routes import Receiver, Routes
from headgate.relay.split import for_child, for_local
from headgate.relay.tables import TableCache
from headgate.wire.block import Block
from headgate.wire.frame import WireError
from headgate.wire.manifest import Manifest

_MAX_ANSWER: Final = 4 << 20
_TIMEOUT_S: Final = 20.0
_FIRST_TIMEOUT_S: Final = 3.0
_MAX_COMMITS: Final = 200
_AT_ONCE: Final = 16  # commits whose rows are read side by side
_ANSWER_S: Final = 1.0  # an asker waits three times as long at first: it gets what was found by then
HISTORY: Final = 0
"""The receiver that rows of history are for, whoever asks for them: no subscription has this id."""
_NO_ROWS: Final = (
    np.zeros(0, dtype=np.uint64),
    pa.RecordBatch.from_pylist([], schema=pa.schema([])),
    ClassLists.empty(0),
)


async def fetch_range(
    port: LogPort,
    site: str,
    stream: str,
    after: int,
    upto: int,
    *,
    child: str = "",
    subscription: int = 0,
    tries: int = 0,
    past: bool = False,
) -> list[Any]:
    """Ask a site for (after, upto] of a stream, as it would send it to a child or to a subscription.

    With `past` a root is asked only how far it has forgotten the range. Rows must not be asked for beside the parent:
    what an earlier parent gave up of them, and is still to tell, would come for a range that is covered by then.
    A relay that dies while it answers never does: an asker waits a little at first, longer after some `tries`.
    """
    request = RangeRequest(stream=stream, after=after, upto=upto, child=child, subscription=subscription, past=past)
    timeout_s = min(_FIRST_TIMEOUT_S * 2**tries, _TIMEOUT_S)
    answer = await port.request(port.logs.repair(site), request.encode(), timeout_s)
    found = port.codec.split(answer)
    if not found:
        raise FabricError(f"{site} has nothing of {stream!r} in ({after}, {upto}]")
    return found


async def fetch_history(
    port: LogPort, root: str, stream: str, after: int, upto: int, class_id: int, columns: list[str]
) -> list[Any]:
    """Ask a stream's root for what its log holds of one delivery class in (after, upto], in these columns."""
    request = RangeRequest(stream=stream, after=after, upto=upto, class_id=class_id, columns=columns)
    answer = await port.request(port.logs.repair(root), request.encode(), _TIMEOUT_S)
    return port.codec.split(answer)


class RepairService:
    """Answers requests for ranges at one site."""

    def __init__(
        self, port: MachinePort, site: str, tables: TableCache, sent: Callable[[RangeRequest], int] | None = None
    ) -> None:
        """`sent` says how far this site has sent a range to a child."""
        self._port = port
        self._site = site
        self._tables = tables
        self._sent = sent

    async def answer(self, data: bytes) -> Any:
        """The blocks that a request asks for; nothing where it cannot be read or cannot be answered now."""
        try:
            request = RangeRequest.decode(data)
            if request.stream not in (await self._tables.newest()).deployment.streams:
                return b""
            return await self._answer(request, request.stream, request.after, request.upto)
        except (FabricError, WireError, ValueError, KeyError, TypeError):
            return b""

    async def _answer(self, request: RangeRequest, stream: str, after: int, upto: int) -> Any:
        codec = self._port.codec
        if (site := request.owed) is not None:
            return await self._first(
                stream, after, upto, lambda version: is_served(self._tables, version, site, stream)
            )
        if (served := request.served) is not None:
            stay = request.stay
            return await self._first(stream, after, upto, lambda version: was_at(self._tables, version, served, stay))
        if request.sent:
            return b"" if self._sent is None else str(self._sent(request)).encode()
        forgotten = None
        if request.child and not request.subscription:
            forgotten = await self._forgotten(stream, after, upto)
        if forgotten is not None or request.past:
            pieces = [forgotten]
        elif request.class_id is not None:
            pieces = await self._of_class(stream, after, upto, request.class_id, request.columns)
        else:
            blocks = await self._blocks(stream, after, upto, request)
            root = (await self._tables.newest()).deployment.streams[stream].root
            mine = request.subscription
            if not blocks and mine and root != self._site:  # what the root answers is for the subscription as it is
                return codec.join(await fetch_range(self._port, root, stream, after, upto, subscription=mine))
            pieces = [await self._for(block.until(upto), routes, request.child, mine) for block, routes in blocks]
        found: list[Any] = []
        size = 0
        for piece in pieces:
            if piece is None:
                break
            message = codec.encode(piece)
            size += codec.size(message)
            if found and size > _MAX_ANSWER:
                break
            found.append(message)
        return codec.join(found)

    async def _first(self, stream: str, after: int, upto: int, serves: Callable[[int], Awaitable[bool]]) -> bytes:
        return (await owed_from(self._port, stream, after, upto, serves)).encode()

    async def _forgotten(self, stream: str, after: int, upto: int) -> Block | None:
        """The beginning of a range as coverage alone, where the root log has forgotten it; None where it has not.

        It forgets nothing that is owed to a site that has not passed it on (`headgate.service.purging`). So a site that
        asks for it was in nobody's tree. A subscriber who asks has had it, and wants it again: that is another matter.
        """
        end = min(upto, await forgotten_past(self._port, stream))
        first = await self._first_manifest(stream) if after < end else None
        if first is None or (await self._tables.newest()).deployment.streams[stream].root != self._site:
            return None
        commit = replace(commit_of(first), after=after, upto=end, shed=0)
        return Block(stream, after, end, (replace(commit, shed_updates=0, partly_shed=0),), *_NO_ROWS)

    async def _first_manifest(self, stream: str) -> Manifest | None:
        """The oldest manifest that the root log holds."""
        logs = self._port.logs
        batch = await self._port.read(logs.root(stream), logs.commit(stream), 0, limit=16)
        return next((manifest for _, manifest in readable(self._port, batch)), None)

    async def _for(self, block: Block, routes: Routes | None, child: str, subscription: int) -> Block | None:
        """The block as the asker would have been sent it, None when this version serves the asker from elsewhere."""
        if routes is not None:
            for target in routes.children:
                if target.site == child:
                    return for_child(block, target)
            everyone = (*routes.local, *(receiver for each in routes.children for receiver in each.receivers))
            mine = tuple(receiver for receiver in everyone if receiver.id == subscription)
            for _, piece in for_local(block, mine):
                return piece
        return _nothing(block) if await self._unserved(block.version, child, block.stream) else None

    async def _unserved(self, version: int, child: str, stream: str) -> bool:
        """Whether a site got nothing of a stream from anybody under a version."""
        return bool(child) and not await is_served(self._tables, version, child, stream)

    async def _blocks(
        self, stream: str, after: int, upto: int, request: RangeRequest
    ) -> list[tuple[Block, Routes | None]]:
        """Adjacent blocks that start at or before `after`, with the routes that apply to each."""
        logs, codec = self._port.logs, self._port.codec
        snapshot = await self._tables.newest()
        if snapshot.deployment.streams[stream].root == self._site:
            return await self._from_root(stream, after, upto, request.child)
        found: list[tuple[Block, Routes | None]] = []
        reached, place = after, 0
        pattern = logs.link("x", self._site, stream).rsplit(".", 1)[0] + ".*"
        while reached < upto:
            batch = await self._port.read(logs.site(self._site), pattern, place)
            if not batch:
                break
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
                except (GoneError, WireError):  # settled long ago, or spoilt: the sites above may have it
                    continue
                found.append((block.since(reached), routes))
                reached = end
        if not found:
            return await self._from_above(stream, after, upto, request.child) if request.child else []
        return found

    async def _from_root(self, stream: str, after: int, upto: int, child: str) -> list[tuple[Block, Routes | None]]:
        """What the root log holds, at most some commits at a time; rows are read only for who may get them."""
        logs = self._port.logs
        found: list[tuple[Block, Routes | None]] = []
        place, end_s = 0, self._port.now + _ANSWER_S
        while batch := await self._port.read(logs.root(stream), logs.commit(stream), place):
            place = batch[-1].sequence
            wanted = [each for _, each in readable(self._port, batch) if each.evaluated and after < each.upto]
            wanted = [each for each in wanted if each.after < upto]
            for first in range(0, len(wanted), _AT_ONCE):
                some = wanted[first : first + _AT_ONCE]
                loaded = await self._port.gather(*(self._load(each, child) for each in some))
                found += [(block.since(after), routes) for block, routes in filter(None, loaded)]
                if len(found) >= _MAX_COMMITS or self._port.now > end_s:
                    return found
        return found

    async def _load(self, manifest: Manifest, child: str) -> tuple[Block, Routes | None] | None:
        """The rows of a manifest with their routes, or its coverage where a child gets nothing of it from anybody."""
        if await self._unserved(manifest.version, child, manifest.stream):
            return _covered(manifest), None
        routes = await self._tables.routes(manifest.version, self._site, manifest.stream)
        return None if routes is None else (await load_block(self._port, manifest, routes.schema, routes), routes)

    async def _of_class(
        self, stream: str, after: int, upto: int, class_id: int, columns: list[str]
    ) -> list[Block | None]:
        """What the root log holds of one class, at most some commits at a time."""
        found: list[Block | None] = []
        async for manifest in committed(self._port, stream, upto):
            if manifest.upto <= after or len(found) >= _MAX_COMMITS:
                continue
            snapshot = await self._tables.snapshot(manifest.version)
            schema = snapshot.deployment.streams[stream].schema
            mine = Receiver(
                HISTORY, class_id, Subscription("history", stream, self._site), schema.select(columns).arrow
            )
            routes = Routes(self._site, stream, manifest.version, None, schema.arrow, (), (mine,))
            block = await load_block(self._port, manifest, schema.arrow, routes)
            found.extend(piece for _, piece in for_local(block, (mine,)))
        return found

    async def _from_above(self, stream: str, after: int, upto: int, asker: str) -> list[tuple[Block, Routes | None]]:
        """This site's log no longer has the range that a child asks for: ask the site above.

        Where the plan has changed since, the site above may be the asker itself, or one that never had the range. The
        root has had it in any case.
        """
        snapshot = await self._tables.newest()
        tree = snapshot.plan.trees.get(stream) if snapshot.plan else None
        parent = tree.parents.get(self._site) if tree else None
        root = snapshot.deployment.streams[stream].root
        answers: list[Any] = []
        for place in dict.fromkeys((parent, root)):
            if place is None or place == asker:
                continue
            try:
                answers = await fetch_range(self._port, place, stream, after, upto, child=self._site)
                break
            except FabricError:
                continue  # the next one may be able to answer, else the asker counts a failure and asks again
        found: list[tuple[Block, Routes | None]] = []
        for data in answers:
            routes = await self._tables.routes(self._port.codec.version(data), self._site, stream)
            found.append((self._port.codec.block(data, routes.schema if routes else pa.schema([])), routes))
        return found


async def forgotten_past(port: LogPort, stream: str) -> int:
    """Up to where a root log was forgotten, as all sites had passed it on; 0 where it was not, or nobody knows."""
    stored = await port.last(port.logs.state, port.logs.past(stream))
    if stored is None:
        return 0
    try:
        return Past.decode(stored.data).upto
    except WireError:
        return 0


def _nothing(block: Block) -> Block:
    """The coverage of a block, and nothing else."""
    return Block(block.stream, block.after, block.upto, block.meant_for(()), *_NO_ROWS)


def _covered(manifest: Manifest) -> Block:
    """The coverage of a manifest, and nothing else."""
    return Block(manifest.stream, manifest.after, manifest.upto, (commit_of(manifest),), *_NO_ROWS)
