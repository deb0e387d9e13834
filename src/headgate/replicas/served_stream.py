"""One stream at one site: the parts that it owns are filled, and its engine is begun anew when the parts change.

Rows, what was measured, and the queries that were asked here outlive a change of the parts; where queries are served is
then decided again. What a reader has it keeps, so it goes on where it was.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import numpy as np

from headgate.client import Client, ClientError
from headgate.client.reach import PartsReach
from headgate.diagnostics import site_log
from headgate.errors import HeadgateError
from headgate.fabric import FabricError, cancel_all
from headgate.grid.dzset import DzSet
from headgate.grid.serving.shelf import NOTHING, HeldPart, HeldRows, Shelf
from headgate.grid.serving.tiling import partition_of
from headgate.protocol.reports import HeldCount, HeldReplica, ServedStreamReport
from headgate.protocol.serving import TakenRows, TakeRows, decode_serving, encode_serving, unpack_rows
from headgate.protocol.serving_brief import OwnPart, ServingBrief
from headgate.replicas.load import UNMEASURED, FillingPart, SendingLoad
from headgate.replicas.serving_site import ServingSite
from headgate.wire.frame import WireError

KEPT_ROWS: Final = 200_000
"""How many rows a site keeps of a stream, for readers who come and parts that move."""
_AGAIN_S: Final = 1.0
_KEPT_S: Final = 30.0
_TIMEOUT_S: Final = 10.0


class ServedStream:
    """What a site does for one stream. `follow` is called with every other brief, `look` every second."""

    def __init__(self, site: str, brief: ServingBrief, client: Client, reach: PartsReach) -> None:
        self.site = site
        self._client, self._reach = client, reach
        self._filling: dict[str, asyncio.Task[None]] = {}
        self._ended: dict[object, float] = {}
        self.shelf = Shelf(KEPT_ROWS)
        self.load = SendingLoad(brief.bytes_per_s(site))
        self.serving = ServingSite(brief, site, self.shelf, self.load, reach)
        self._fill_own(brief, ())

    async def follow(self, brief: ServingBrief) -> None:
        """Serve other parts from now on; queries that were asked here are placed again."""
        before = self.serving
        self.load.bytes_per_s = brief.bytes_per_s(self.site)
        await before.close()
        self.serving = ServingSite(brief, self.site, self.shelf, self.load, self._reach)
        self._fill_own(brief, before.brief.sites)
        for token, query in before.queries.items():
            demand = query.placement.demand
            self.serving.ask(demand.low, demand.high, token)
            if token in self.serving.queries:
                self.serving.queries[token].seen += query.seen + 1

    def look(self, now: float) -> None:
        """What time brings."""
        for key in [key for key, since in self._ended.items() if since < now - _KEPT_S]:
            del self._ended[key]
            self.shelf.parts.pop(key, None)
        self.serving.look(now)

    async def close(self) -> None:
        """End everything."""
        await self.serving.close()
        await cancel_all(list(self._filling.values()))

    def report(self) -> ServedStreamReport:
        """What `headgate status` shows."""
        serving, load = self.serving, self.load
        space, holdings = serving.brief.grid.space, serving.core.holdings
        return ServedStreamReport(
            generation=serving.brief.generation,
            owns={
                part.subscription: HeldCount(**self._row(part.subscription)) for part in serving.brief.own(self.site)
            },
            replicas={
                space.text(each.region.code, each.region.length): HeldReplica(
                    origin=each.peer,
                    load=holdings.clients.weight(each.region.code, each.region.length) / load.capacity,
                    **self._row(each.region.id),
                )
                for each in holdings.sources.values()
            },
            sends_to=sorted({each.peer for each in holdings.sinks.values()}),
            readers=len(holdings.demands),
            asked=len(serving.queries),
            refused=serving.refused,
            bytes_per_s=round(load.used_bytes_per_s),
            bandwidth_bytes_per_s=round(load.bytes_per_s),
            load=round(1 - holdings.budget.free / max(1, holdings.budget.capacity), 3),
            capacity_cells=load.capacity if load.capacity < UNMEASURED else None,
            sent_bytes=load.sent_bytes,
            replica_bytes=load.replica_bytes,
            replicas_taken=serving.replicas_taken,
            letters=serving.letters.sent,
        )

    def _row(self, key: object) -> dict[str, int]:
        part = self.shelf.parts.get(key)
        return {"rows": 0, "upto": 0} if part is None else {"rows": part.count, "upto": max(0, part.upto)}

    # -- the parts that the site owns

    def _fill_own(self, brief: ServingBrief, before: tuple[str, ...]) -> None:
        mine = {part.subscription: part for part in brief.own(self.site)}
        for name, part in mine.items():
            if name not in self._filling:
                cells = partition_of(brief.grid.space, [("rest", brief.grid.whole), ("own", part.tile)]).cells("own")
                self.shelf.parts[name] = HeldPart(cells)
                peers = tuple(sorted({*before, *brief.sites} - {self.site}))
                self._filling[name] = asyncio.create_task(self._fill(part, peers), name=f"part {name}")
        for key in self.shelf.parts.keys() - mine.keys():
            if not isinstance(key, str) or key not in self._ended:
                self._ended[key] = time.monotonic()
        for name in self._filling.keys() - mine.keys():
            self._filling.pop(name).cancel()

    async def _fill(self, part: OwnPart, peers: tuple[str, ...]) -> None:
        """Read the subscription of a part into the shelf, and first what others have of the time before it."""
        held, log = self.shelf.parts[part.subscription], site_log(self.site)
        earlier: asyncio.Task[None] | None = None
        try:
            while True:
                filling, asked_s = FillingPart(), time.monotonic()
                try:
                    inbox = await self._client.subscribe(part.subscription)
                    async for delivery in inbox:
                        steady = filling.take(asked_s, time.monotonic())
                        self.serving.add(part.subscription, delivery, steady=steady)
                        inbox.done()
                        asked_s = time.monotonic()
                        if earlier is None:
                            earlier = asyncio.create_task(self._fetch_earlier(held, peers))
                except (ClientError, FabricError, HeadgateError) as error:
                    log.warning("the part %s is read again: %s", part.subscription, error)
                await asyncio.sleep(_AGAIN_S)
        finally:
            await cancel_all([] if earlier is None else [earlier])

    async def _fetch_earlier(self, held: HeldPart, peers: tuple[str, ...]) -> None:
        """Take from other sites what they keep of a part's cells from before it began here: who served them before."""
        for peer in peers:
            try:
                await self._fetch_from(peer, held)
            except (FabricError, WireError) as error:
                site_log(self.site).info("%s gives nothing of an earlier time: %s", peer, error)

    async def _fetch_from(self, peer: str, held: HeldPart) -> None:
        space, schema = self.serving.brief.grid.space, self.serving.brief.stream.schema.arrow
        codes, lengths = held.cells.expressions()
        begins = held.after or 0
        for code, length in zip(codes.tolist(), lengths.tolist(), strict=True):
            found: list[HeldRows] = []
            after, first = NOTHING, NOTHING
            while after < begins:
                place = np.array([code]), np.array([length]), np.array([after])
                asked = TakeRows(self.serving.brief.stream.name, -1, *place)
                taken = decode_serving(await self._reach.ask(peer, encode_serving(asked), _TIMEOUT_S), TakenRows)
                if len(taken.codes) != 1 or int(taken.lengths[0]) != length:
                    break  # nothing, or not all of it in one piece
                rows = unpack_rows(taken.rows, taken.raw_bytes, schema)
                found.append(HeldRows(rows, taken.seqs, self.serving.brief.grid.codes(rows)))
                first = int(taken.after[0]) if first == NOTHING else first
                after = int(taken.upto[0])
            if found and after >= begins:
                key = ("earlier", code, length)
                cells = DzSet.from_expressions(space, [code], [length])
                part = self.shelf.parts.setdefault(key, HeldPart(cells, held.after, held.upto, held.chunks.copy()))
                part.precede(first, after, found)
                self._ended[key] = time.monotonic()
