"""Repair of gaps: a site that misses a range asks its parent, which reads its own log or asks further up.

The answer holds adjacent blocks from the start of the range, never past its end, as many as fit a message; the asker
asks again for the rest. The root answers from the root log; what was purged there is declared expired, never left out.
A site that was in nobody's tree for a while gets that part of the range as a block without rows. Any site that a
subscription's rows passed through can answer for it, the root always, so that a site it has left may be gone for good.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from headgate.fabric import Fabric, FabricError
from headgate.matching import ClassLists
from headgate.model import Subscription
from headgate.relay.owed import is_served, owed_from
from headgate.relay.root import commit_of, committed, load_block
from headgate.relay.routes import Receiver, Routes
from headgate.relay.split import for_child, for_local
from headgate.relay.tables import GoneError, Tables
from headgate.wire.block import Block
from headgate.wire.manifest import Manifest, decode_manifest
from headgate.wire.message import block_range, block_version, decode_block, encode_block

_MAX_ANSWER: Final = 4 << 20
_TIMEOUT_S: Final = 20.0
_FIRST_TIMEOUT_S: Final = 3.0
_MAX_COMMITS: Final = 200
_NO_ROWS: Final = (
    np.zeros(0, dtype=np.uint64),
    pa.RecordBatch.from_pylist([], schema=pa.schema([])),
    ClassLists.empty(0),
)


def _join(messages: Iterable[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(message)) + message for message in messages)


def _split(answer: bytes) -> list[bytes]:
    found, position = [], 0
    while position < len(answer):
        (size,) = struct.unpack_from("<I", answer, position)
        found.append(answer[position + 4 : position + 4 + size])
        position += 4 + size
    return found


async def fetch_range(
    fabric: Fabric,
    site: str,
    stream: str,
    after: int,
    upto: int,
    *,
    child: str = "",
    subscription: int = 0,
    tries: int = 0,
    past: bool = False,
) -> list[bytes]:
    """Ask a site for (after, upto] of a stream, as it would send it to a child or to a subscription.

    With `past` a root is asked only how far it has forgotten the range. Rows must not be asked for beside the parent:
    what an earlier parent gave up of them, and is still to tell, would come for a range that is covered by then.
    A relay that dies while it answers never does: an asker waits a little at first, longer after some `tries`.
    """
    request = {"stream": stream, "after": after, "upto": upto, "child": child, "subscription": subscription}
    request |= {"past": True} if past else {}
    timeout_s = min(_FIRST_TIMEOUT_S * 2**tries, _TIMEOUT_S)
    answer = await fabric.request(fabric.logs.repair(site), json.dumps(request).encode(), timeout_s)
    found = _split(answer)
    if not found:
        raise FabricError(f"{site} has nothing of {stream!r} in ({after}, {upto}]")
    return found


async def fetch_history(
    fabric: Fabric, root: str, stream: str, after: int, upto: int, class_id: int, columns: list[str]
) -> list[bytes]:
    """Ask a stream's root for what its log holds of one delivery class in (after, upto], in these columns."""
    request = {"stream": stream, "after": after, "upto": upto, "class": class_id, "columns": columns}
    return _split(await fabric.request(fabric.logs.repair(root), json.dumps(request).encode(), _TIMEOUT_S))


class RepairService:
    """Answers requests for ranges at one site."""

    def __init__(self, fabric: Fabric, site: str, tables: Tables) -> None:
        self._fabric = fabric
        self._site = site
        self._tables = tables
        self._end: Callable[[], Awaitable[None]] | None = None

    async def __aenter__(self) -> Self:
        self._end = await self._fabric.serve(self._fabric.logs.repair(self._site), self._answer)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._end is not None:
            await self._end()

    async def _answer(self, data: bytes) -> bytes:
        request = json.loads(data)
        stream, after, upto = request["stream"], int(request["after"]), int(request["upto"])
        pieces: list[Block | None]
        try:
            if "owed" in request:
                return str(await owed_from(self._fabric, self._tables, stream, after, upto, request["owed"])).encode()
            forgotten = None
            if request.get("child") and not request["subscription"]:
                forgotten = await self._forgotten(stream, after, upto)
            if forgotten is not None or request.get("past"):
                pieces = [forgotten]
            elif "class" in request:
                pieces = await self._of_class(stream, after, upto, int(request["class"]), request["columns"])
            else:
                pieces = [
                    await self._for(block.until(upto), routes, request["child"], int(request["subscription"]))
                    for block, routes in await self._blocks(stream, after, upto, request)
                ]
        except FabricError:
            return b""
        found: list[bytes] = []
        size = 0
        for piece in pieces:
            if piece is None:
                break
            message = encode_block(piece)
            size += len(message)
            if found and size > _MAX_ANSWER:
                break
            found.append(message)
        return _join(found)

    async def _forgotten(self, stream: str, after: int, upto: int) -> Block | None:
        """The beginning of a range as coverage alone, where the root log has forgotten it; None where it has not.

        It forgets nothing that is owed to a site that has not passed it on (`headgate.service.purging`). So a site that
        asks for it was in nobody's tree. A subscriber who asks has had it, and wants it again: that is another matter.
        """
        logs = self._fabric.logs
        past = await self._fabric.last(logs.state, logs.past(stream))
        end = min(upto, 0 if past is None else int(past.data))
        first = await self._fabric.read(logs.root(stream), logs.commit(stream), 0, limit=1) if after < end else []
        if not first or (await anext(self._tables.heads())).deployment.streams[stream].root != self._site:
            return None
        commit = replace(commit_of(decode_manifest(first[0].data)), after=after, upto=end, shed=0)
        return Block(stream, after, end, (replace(commit, shed_updates=0, partly_shed=0),), *_NO_ROWS)

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
        self, stream: str, after: int, upto: int, request: Mapping[str, Any]
    ) -> list[tuple[Block, Routes | None]]:
        """Adjacent blocks that start at or before `after`, with the routes that apply to each."""
        logs = self._fabric.logs
        snapshot = await anext(self._tables.heads())
        if snapshot.deployment.streams[stream].root == self._site:
            return await self._from_root(stream, after, upto, request["child"])
        found: list[tuple[Block, Routes | None]] = []
        reached, place = after, 0
        pattern = logs.link("x", self._site, stream).rsplit(".", 1)[0] + ".*"
        while reached < upto:
            batch = await self._fabric.read(logs.site(self._site), pattern, place)
            if not batch:
                break
            place = batch[-1].sequence
            for stored in batch:
                start, end = block_range(stored.data)
                if end > reached and start <= reached < upto:
                    try:
                        routes = await self._tables.routes(block_version(stored.data), self._site, stream)
                    except GoneError:  # it was settled long ago: the sites above may have kept it
                        continue
                    assert routes is not None
                    block = decode_block(stored.data, routes.schema)
                    found.append((block.since(reached), routes))
                    reached = end
        if not found:
            return await self._from_parent(stream, after, upto, int(request["subscription"]))
        return found

    async def _from_root(self, stream: str, after: int, upto: int, child: str) -> list[tuple[Block, Routes | None]]:
        """What the root log holds, at most some commits at a time; rows are read only for who may get them."""
        logs = self._fabric.logs
        found: list[tuple[Block, Routes | None]] = []
        place = 0
        while batch := await self._fabric.read(logs.root(stream), logs.commit(stream), place):
            place = batch[-1].sequence
            for stored in batch:
                manifest = decode_manifest(stored.data)
                if not manifest.evaluated or manifest.upto <= after or manifest.after >= upto:
                    continue
                routes = await self._tables.routes(manifest.version, self._site, stream)
                if await self._unserved(manifest.version, child, stream):
                    found.append((_covered(manifest).since(after), None))
                elif routes is not None:
                    block = await load_block(self._fabric, manifest, routes.schema, routes)
                    found.append((block.since(after), routes))
                if len(found) == _MAX_COMMITS:
                    return found
        return found

    async def _of_class(
        self, stream: str, after: int, upto: int, class_id: int, columns: list[str]
    ) -> list[Block | None]:
        """What the root log holds of one class, at most some commits at a time; purged rows are declared expired."""
        found: list[Block | None] = []
        async for manifest in committed(self._fabric, stream, upto):
            if manifest.upto <= after or len(found) >= _MAX_COMMITS:
                continue
            snapshot = await self._tables.snapshot(manifest.version)
            schema = snapshot.deployment.streams[stream].schema
            mine = Receiver(0, class_id, Subscription("history", stream, self._site), schema.select(columns).arrow)
            routes = Routes(self._site, stream, manifest.version, None, schema.arrow, (), (mine,))
            block = await load_block(self._fabric, manifest, schema.arrow, routes)
            found.extend(piece for _, piece in for_local(block, (mine,)))
        return found

    async def _from_parent(
        self, stream: str, after: int, upto: int, subscription: int
    ) -> list[tuple[Block, Routes | None]]:
        """This site's log no longer has the range: ask the site above, and say if it is for a subscription."""
        snapshot = await anext(self._tables.heads())
        tree = snapshot.plan.trees.get(stream) if snapshot.plan else None
        parent = tree.parents.get(self._site) if tree else None
        if parent is None:
            return []
        found: list[tuple[Block, Routes | None]] = []
        asked = fetch_range(self._fabric, parent, stream, after, upto, child=self._site, subscription=subscription)
        for data in await asked:
            routes = await self._tables.routes(block_version(data), self._site, stream)
            found.append((decode_block(data, routes.schema if routes else pa.schema([])), routes))
        return found


def _nothing(block: Block) -> Block:
    """The coverage of a block, and nothing else."""
    return Block(block.stream, block.after, block.upto, block.commits, *_NO_ROWS)


def _covered(manifest: Manifest) -> Block:
    """The coverage of a manifest, and nothing else."""
    return Block(manifest.stream, manifest.after, manifest.upto, (commit_of(manifest),), *_NO_ROWS)
