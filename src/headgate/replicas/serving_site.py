"""One site that serves one stream, while the stream's parts stay the same: the engine, its rows and its readers.

Every decision is the engine's (`headgate.grid.serving.site`). Here its messages become letters, regions that it takes
become rows that are fetched, and what was measured becomes its bandwidth. A replica is filled before the queries that
move to it are told so; the site that they leave answers them on for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.client.delivery import Delivery
from headgate.client.reach import PartsReach
from headgate.diagnostics import site_log
from headgate.fabric import FabricError, cancel_all
from headgate.grid.dzset import DzSet
from headgate.grid.serving import Budget, Demand, Placement, SiteCore
from headgate.grid.serving import messages as m
from headgate.grid.serving.shelf import HeldPart, HeldRows, PartAnswer, Shelf
from headgate.protocol.serving import (
    READERS,
    PlacedParts,
    ServingLetter,
    TakenRows,
    TakeRows,
    decode_serving,
    encode_serving,
    nothing_taken,
    pack_rows,
    unpack_rows,
)
from headgate.protocol.serving_brief import ServingBrief
from headgate.replicas.letters import Letters
from headgate.replicas.load import UNMEASURED, SendingLoad
from headgate.wire.frame import WireError

MOST_READERS: Final = 4096
"""How many readers may ask at one site; more are refused."""
_LEASE_S: Final = 15.0
_STAYING_S: Final = 10.0
_OFFER_S: Final = 3.0
_FILL_S: Final = 5.0
_WAIT_S: Final = 2.0
_BUSY_S: Final = 1.0
_AGAIN_S: Final = 0.3
_MOST_ROWS: Final = 20_000
_SITE_BITS: Final = 8


@dataclass(slots=True)
class AskedQuery:
    """A reader's query at the site where it was asked."""

    token: str
    placement: Placement
    looked_s: float
    seen: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class ServingSite:
    """A site's engine for one stream. Whoever makes it calls `look` every second and `close` at the end."""

    def __init__(self, brief: ServingBrief, site: str, shelf: Shelf, load: SendingLoad, reach: PartsReach) -> None:
        self.brief, self.site, self.shelf, self.load = brief, site, shelf, load
        self._reach = reach
        self._count = int(time.time() * 1000)  # numbers of before a change of the parts do not come again
        self._index = brief.sites.index(site)
        capacity = load.capacity if load.capacity < UNMEASURED else brief.grid.space.cells * 64
        self.core = SiteCore(
            site, brief.partition, Budget(capacity), self._fresh, limit=brief.limit, ahead_s=brief.ahead_s
        )
        self.letters = Letters(reach, site, brief.stream.name, brief.generation, self._letter)
        self.queries: dict[str, AskedQuery] = {}
        self._tokens: dict[int, str] = {}
        self._left: dict[int, float] = {}
        self._filling: dict[int, asyncio.Task[None]] = {}
        self._dropped: deque[tuple[float, int]] = deque()
        self._offer: tuple[int | None, float] = (None, 0.0)
        self._news = asyncio.Event()
        self._held_back: set[int] = set()
        self.refused = 0
        self.replicas_taken = 0

    def _fresh(self) -> int:
        self._count += 1
        return self._count << _SITE_BITS | self._index

    async def close(self) -> None:
        """Serve no more; what is held stays with the shelf."""
        await self.letters.close()
        await cancel_all(list(self._filling.values()))
        for query in self.queries.values():
            query.changed.set()

    # -- the engine

    def handle(self, message: m.ToSite) -> None:
        """Give the engine a message, and send what follows from it."""
        for to, answer in self.core.handle(message):
            if isinstance(to, str):
                self.letters.send(to, None, answer)
                continue
            if isinstance(answer, m.Left):
                self._left[to] = time.monotonic() + _STAYING_S
            entry = self.brief.sites[to & ((1 << _SITE_BITS) - 1)]
            if entry == self.site:
                self._hear(to, answer)
            else:
                self.letters.send(entry, to, answer)
        self._keep_filled()

    async def _letter(self, letter: ServingLetter) -> None:
        message = letter.message
        if letter.to is not None:
            self._hear(letter.to, message)
            return
        if isinstance(message, m.Replica) and message.region is not None:
            await self._filled(letter.sender, message.region)
        self.handle(message)

    def look(self, now: float) -> None:
        """What time brings: measured bandwidth, queries whose reader is gone, offers that nobody answers."""
        own = [self.shelf.parts.get(part.subscription) for part in self.brief.own(self.site)]
        cells = self.load.look(now, sum(part.cells.cells for part in own if part is not None and part.steady))
        if cells is not None:
            self.handle(m.Capacity(cells))
        for token in [each.token for each in self.queries.values() if each.looked_s < now - _LEASE_S]:
            self.end(token)
        ticket = self.core.offered
        if ticket is None or ticket != self._offer[0]:
            self._offer = (ticket, now)
        elif now - self._offer[1] > _OFFER_S:
            self.handle(m.GaveUp(ticket))
        self._left = {demand: until for demand, until in self._left.items() if until > now}
        while self._dropped and self._dropped[0][0] < now:
            self.shelf.parts.pop(self._dropped.popleft()[1], None)
        self.handle(m.Tick(now))
        self.shelf.trim()

    # -- rows

    def add(self, key: str, delivery: Delivery, *, steady: bool) -> None:
        """Rows of a part that this site owns; `steady` where they come as they are made, and show what it costs."""
        rows, part = delivery.rows, self.shelf.parts[key]
        held = HeldRows(rows, np.asarray(delivery.seqs, dtype=np.int64), self.brief.grid.codes(rows))
        new = part.add(delivery.after, delivery.upto, held)
        part.steady = steady
        self.load.arrived_rows += new if steady else 0
        if new and not self.load.row_bytes:
            self.load.row_bytes = rows.nbytes / rows.num_rows
        self._told()

    def _told(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _keep_filled(self) -> None:
        """Have every region that comes in filled, and let those go that do not come in any more."""
        for identity, source in self.core.holdings.sources.items():
            if identity not in self._filling:
                self._begin(source.peer, source.region)
        for identity in self._filling.keys() - self.core.holdings.sources.keys() - self._held_back:
            self._filling.pop(identity).cancel()
            self._dropped.append((time.monotonic() + _STAYING_S, identity))

    def _begin(self, peer: str, region: m.ServedRegion) -> HeldPart:
        cells = DzSet.from_expressions(self.brief.grid.space, [region.code], [region.length])
        part = self.shelf.parts.setdefault(region.id, HeldPart(cells))
        self._filling[region.id] = asyncio.create_task(
            self._fill(peer, region, part), name=f"{self.site} fills {region.id} from {peer}"
        )
        self.replicas_taken += 1
        return part

    async def _filled(self, peer: str, region: m.ServedRegion) -> None:
        """Fetch what the provider has of a region, before anybody is told that it is here."""
        self._held_back.add(region.id)
        part = self._begin(peer, region)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FILL_S):
                while part.after is None:
                    await self._news.wait()
        self._held_back.discard(region.id)

    async def _fill(self, peer: str, region: m.ServedRegion, part: HeldPart) -> None:
        """Take a region's rows from its provider, behind what is here of it, for ever."""
        codes, lengths = np.array([region.code]), np.array([region.length])
        while True:
            after = -1 if part.after is None else part.upto
            asked = TakeRows(self.brief.stream.name, region.id, codes, lengths, np.array([after]), _WAIT_S)
            try:
                taken = decode_serving(await self._reach.ask(peer, encode_serving(asked), 3 * _WAIT_S), TakenRows)
                if taken.again_s or not len(taken.codes):
                    await asyncio.sleep(taken.again_s or _AGAIN_S / 3)
                    continue
                rows = unpack_rows(taken.rows, taken.raw_bytes, self.brief.stream.schema.arrow)
            except (FabricError, WireError) as error:
                site_log(self.site).debug("%s is asked again for region %s: %s", peer, region.id, error)
                await asyncio.sleep(_AGAIN_S)
                continue
            # A provider that keeps the region in pieces answers piece by piece: only what all of them reach counts.
            upto = int(taken.upto.min()) if self._whole(region, taken) else after
            order = np.argsort(taken.seqs, kind="stable")
            seqs = taken.seqs[order]
            rows = rows.take(pa.array(order))
            if upto > after:
                part.add(int(taken.after.max()), upto, HeldRows(rows, seqs, self.brief.grid.codes(rows)))
                self._told()

    def _whole(self, region: m.ServedRegion, taken: TakenRows) -> bool:
        found = DzSet.from_expressions(self.brief.grid.space, taken.codes, taken.lengths)
        return found.cells == 1 << (self.brief.grid.space.digits - region.length)

    async def take(self, asker: str, asked: TakeRows, max_bytes: int) -> bytes:
        """Answer with rows; waits for some, for as long as is asked for."""
        reader = asker == READERS
        if reader and asked.demand not in self.core.holdings.slots and asked.demand not in self._left:
            return encode_serving(nothing_taken(moved=True))
        now = time.monotonic()
        waits_s = self.load.wait_s(now)
        if waits_s > _BUSY_S:
            return encode_serving(nothing_taken(again_s=waits_s))
        until, most = now + min(asked.wait_s, 10.0), self._most_rows(max_bytes)
        while not (found := self._read(asked, most)) and (left_s := until - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._news.wait()
        await asyncio.sleep(waits_s)
        data = encode_serving(self._taken(found))
        rows = sum(len(each) for _, _, answer in found for each in answer.found)
        self.load.send(time.monotonic(), len(data), rows, replica=not reader)
        return data

    def _most_rows(self, max_bytes: int) -> int:
        return max(64, min(_MOST_ROWS, int(max_bytes / 4 / max(self.load.row_bytes, 16.0))))

    def _read(self, asked: TakeRows, most: int) -> list[tuple[int, int, PartAnswer]]:
        """What is new of the parts that are asked for, cut where different parts of the shelf have it."""
        found: list[tuple[int, int, PartAnswer]] = []
        space = self.brief.grid.space
        for code, length, after in zip(asked.codes.tolist(), asked.lengths.tolist(), asked.after.tolist(), strict=True):
            if not 0 <= length <= space.digits or not 0 <= code < space.cells:
                raise WireError(f"({code}, {length}) is no expression of {space.digits} digits")
            pieces = [(code, length)]
            while pieces and most > 0:
                at, digits = pieces.pop()
                answer = self.shelf.read(at, 1 << (space.digits - digits), after, most)
                if answer is not None:
                    if answer.upto > after:
                        found.append((at, digits, answer))
                        most -= sum(map(len, answer.found))
                elif digits < space.digits and any(self._touches(at, digits, part) for part in self.shelf):
                    half = 1 << (space.digits - digits - 1)
                    pieces += [(at + half, digits + 1), (at, digits + 1)]
        return found

    def _touches(self, code: int, length: int, part: HeldPart) -> bool:
        region = DzSet.from_expressions(self.brief.grid.space, [code], [length])
        return part.after is not None and bool(region & part.cells) and not region <= part.cells

    def _taken(self, found: list[tuple[int, int, PartAnswer]]) -> TakenRows:
        if not found:
            return nothing_taken()
        pieces = [each for _, _, answer in found for each in answer.found]
        schema = self.brief.stream.schema.arrow
        table = pa.Table.from_batches([each.rows.cast(schema) for each in pieces], schema).combine_chunks()
        batch = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema)
        data, raw = pack_rows(batch)
        columns = [
            (code, length, answer.after, answer.upto, sum(map(len, answer.found))) for code, length, answer in found
        ]
        numbers = np.array(columns, dtype=np.int64).T
        seqs = np.concatenate([np.empty(0, dtype=np.int64), *(each.seqs for each in pieces)])
        return TakenRows(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], seqs, data, raw)

    # -- readers

    def ask(self, low: tuple[int, ...], high: tuple[int, ...], token: str | None = None) -> PlacedParts:
        """Place a reader's query; `token` is that of one that was asked before the parts became others."""
        space = self.brief.grid.space
        if len(low) != 4 or any(not 0 <= a < b <= size for a, b, size in zip(low, high, space.shape, strict=True)):
            return PlacedParts(error=f"[{low}, {high}) is no box of {space.shape} cells")
        if len(self.queries) >= MOST_READERS:
            return PlacedParts(error=f"{self.site} has {MOST_READERS:,} readers already")
        demand, now = self._fresh(), time.monotonic()
        token = token or secrets.token_hex(8)
        parts = self.brief.grid.parts(Demand(demand, low, high))
        self.queries[token] = AskedQuery(token, Placement(parts.demand, now, parts.demand.size), now)
        self._tokens[demand] = token
        self.handle(m.Query(parts, at=now))
        return self._placed(self.queries[token])

    async def watch(self, token: str, seen: int, wait_s: float) -> PlacedParts:
        """Who serves a query, once that is other than what was seen."""
        query = self.queries.get(token)
        if query is None:
            return PlacedParts(error="this query is not known here any more")
        query.looked_s = time.monotonic()
        if query.seen == seen:
            query.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(wait_s, 10.0)):
                    await query.changed.wait()
        return self._placed(query)

    def end(self, token: str) -> None:
        """A reader has left."""
        query = self.queries.pop(token, None)
        if query is None:
            return
        demand = query.placement.demand.id
        del self._tokens[demand]
        for site in {*query.placement.parts, self.site}:
            if site == self.site:
                self.handle(m.Cancel(demand))
            else:
                self.letters.send(site, None, m.Cancel(demand))

    def _hear(self, demand: int, message: Any) -> None:
        query = self.queries.get(self._tokens.get(demand, ""))
        if query is None:
            if isinstance(message, m.ServedParts):  # its reader has left meanwhile
                if message.site == self.site:
                    asyncio.get_running_loop().call_soon(self.handle, m.Cancel(demand))
                else:
                    self.letters.send(message.site, None, m.Cancel(demand))
            return
        before = query.placement.refused
        query.placement.hear(self.brief.grid.space, message, time.monotonic())
        self.refused += query.placement.refused and not before
        query.seen += 1
        query.changed.set()

    def _placed(self, query: AskedQuery) -> PlacedParts:
        placement = query.placement
        sites = {
            site: (
                np.concatenate([each.codes for each in parts]),
                np.concatenate([each.lengths for each in parts]),
            )
            for site, parts in placement.parts.items()
        }
        return PlacedParts(query.token, placement.demand.id, query.seen, sites, placement.refused)
