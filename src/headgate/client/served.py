"""Reading a gridded stream from the sites that serve it: a query at any of them, its parts put together here.

The site that is asked says which sites serve which parts, and says so again whenever that changes. Each part is read
where it is served, behind the number up to which its rows have come, so that a part that moves to a replica goes on
there without a row lost or twice. While nobody says that it serves a part, the site that served it last is asked on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from headgate.client.errors import ClientError
from headgate.client.reach import PartsReach
from headgate.diagnostics import CLIENT, noted
from headgate.fabric import Fabric, FabricError, cancel_all
from headgate.grid.decompose import decompose_batch
from headgate.grid.dzset import DzSet
from headgate.grid.predicate import grid_predicate
from headgate.grid.resolution import Resolution
from headgate.grid.serving.coverage import CellCoverage
from headgate.grid.serving.shelf import NOTHING
from headgate.model import Subscription
from headgate.protocol.serving import (
    READERS,
    AskParts,
    EndParts,
    LookParts,
    PlacedParts,
    TakenRows,
    TakeRows,
    decode_serving,
    encode_serving,
    unpack_rows,
)
from headgate.protocol.serving_brief import ServingBrief, serving_brief
from headgate.relay.tables import Tables
from headgate.wire.frame import WireError
from headgate.wire.snapshot import Snapshot

_LOOK_S: Final = 5.0
_WAIT_S: Final = 2.0
_AGAIN_S: Final = 0.25
_TIMEOUT_S: Final = 10.0
_WAITING: Final = 16


class QueryRefusedError(ClientError):
    """No site could take a query, or a part of it."""

    usual_kind = "busy"


class ServedQuery:
    """One query. Use it as an async context manager and iterate over it: record batches, each row once.

    `sites` are those that serve it now, `taken_bytes` by site what came from each, `moves` how often parts went to
    another site, `gaps` ranges that no site kept any more, with their cells.
    """

    def __init__(
        self,
        reach: PartsReach,
        brief: ServingBrief,
        *,
        region: Mapping[str, Any] | None = None,
        resolution: Mapping[str, Any] | None = None,
        at: str | None = None,
    ) -> None:
        self.stream, self._brief, self._reach = brief.stream, brief, reach
        asked = Subscription("query", brief.stream.name, "", region=region, resolution=resolution)
        self._predicate = grid_predicate(asked, brief.stream, layout=brief.grid.layout)
        wanted = (
            (None, Resolution()) if self._predicate is None else (self._predicate.region, self._predicate.resolution)
        )
        self._low, self._high = brief.grid.box(*wanted)
        _, codes, lengths = decompose_batch(brief.grid.space, [self._low], [self._high])
        self._wanted = DzSet.from_expressions(brief.grid.space, codes, lengths)
        if at is not None and at not in brief.sites:
            known = ", ".join(brief.sites)
            raise ClientError(f"{at!r} serves nothing of {brief.stream.name!r}", hint=f"ask one of {known}")
        self._entries: Sequence[str] = (*([at] if at else ()), *(each for each in brief.sites if each != at))
        self._entry = self._entries[0]
        self._token, self._demand, self._seen = "", -1, -1
        self._have = CellCoverage()
        self._assigned: dict[str, DzSet] = {}
        self._pulling: dict[str, asyncio.Task[None]] = {}
        self._ready: asyncio.Queue[pa.RecordBatch | ClientError] = asyncio.Queue(_WAITING)
        self._following: asyncio.Task[None] | None = None
        self.taken_bytes: dict[str, int] = {}
        self.rows = 0
        self.moves = 0
        self.gaps: list[tuple[int, int, int, int]] = []

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that serve parts of it now."""
        return tuple(sorted(self._assigned))

    @property
    def covered(self) -> int:
        """The number up to which every cell has come, -1 while one has nothing."""
        return min((self._have.least(*each) for each in self._wanted.bounds.tolist()), default=NOTHING)

    async def __aenter__(self) -> Self:
        await self._ask()
        self._following = asyncio.create_task(self._follow(), name="a query's places")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await cancel_all([*self._pulling.values(), *([self._following] if self._following else [])])
        with noted(CLIENT, "a query that ended is forgotten by its site after a while", FabricError, WireError):
            await self._reach.ask(self._entry, encode_serving(EndParts(self.stream.name, self._token)), _TIMEOUT_S)
        await self._reach.close()

    async def __aiter__(self) -> AsyncGenerator[pa.RecordBatch, None]:
        while True:
            found = await self._ready.get()
            if isinstance(found, ClientError):
                raise found
            yield found

    # -- who serves it

    async def _ask(self) -> None:
        """Pose the query at the first site that answers."""
        problem: Exception | None = None
        brief = serving_brief(await self._reach.newest(), self.stream.name)
        served_by = () if brief is None else brief.sites  # others may serve it since it was posed
        for entry in dict.fromkeys((*(each for each in self._entries if each in served_by), *served_by)):
            try:
                data = encode_serving(AskParts(self.stream.name, self._low, self._high))
                placed = decode_serving(await self._reach.ask(entry, data, _TIMEOUT_S), PlacedParts)
            except (FabricError, WireError) as error:
                problem = error
                continue
            if placed.error:
                raise QueryRefusedError(f"{entry} refused the query: {placed.error}", hint="ask again later")
            self._entry, self._token, self._seen = entry, placed.token, -1
            return
        raise ClientError(f"no site that serves {self.stream.name!r} answers: {problem}", kind="unavailable")

    async def _follow(self) -> None:
        """Keep to what the site says about who serves the query, until it is refused."""
        while True:
            try:
                asked = LookParts(self.stream.name, self._token, self._seen, _LOOK_S)
                answer = asyncio.create_task(self._reach.ask(self._entry, encode_serving(asked), _TIMEOUT_S))
                placed = decode_serving(await answer, PlacedParts)
                if placed.error:
                    await self._ask()
                    continue
            except (FabricError, WireError) as error:
                CLIENT.info("%s is asked again where its query is served: %s", self._entry, error)
                await asyncio.sleep(_AGAIN_S)
                with noted(CLIENT, "no site answers, asked again", ClientError):
                    await self._ask()
                continue
            if placed.refused:
                problem = f"no site has room for the query on {self.stream.name!r}"
                await self._ready.put(QueryRefusedError(problem, hint="ask for less of it, or later"))
                return
            if placed.seen != self._seen:
                self._seen, self._demand = placed.seen, placed.demand
                self._assign(placed)

    def _assign(self, placed: PlacedParts) -> None:
        """Read every part where it is served now; one that nobody serves, where it was last."""
        space = self._brief.grid.space
        now = {site: DzSet.from_expressions(space, *each) & self._wanted for site, each in placed.sites.items()}
        lacking = self._wanted
        for cells in now.values():
            lacking = lacking - cells
        for site, cells in self._assigned.items():
            kept = cells & lacking
            if kept:
                now[site] = (now[site] | kept) if site in now else kept
        if self._assigned and any(now[site] - self._assigned[site] if site in self._assigned else True for site in now):
            self.moves += 1
        self._assigned = {site: cells for site, cells in now.items() if cells}
        for site in self._assigned:
            if site not in self._pulling or self._pulling[site].done():
                self._pulling[site] = asyncio.create_task(self._pull(site), name=f"parts at {site}")

    # -- rows

    async def _pull(self, site: str) -> None:
        """Take what a site serves of the query, for as long as it does."""
        while site in self._assigned:
            asked = self._missing(site)
            try:
                data = await self._reach.ask(site, encode_serving(asked), _TIMEOUT_S + _WAIT_S)
                taken = decode_serving(data, TakenRows)
            except (FabricError, WireError) as error:
                CLIENT.info("%s is asked again for its parts: %s", site, error)
                await asyncio.sleep(_AGAIN_S)
                continue
            self.taken_bytes[site] = self.taken_bytes.get(site, 0) + len(data)
            if taken.moved or taken.again_s:
                await asyncio.sleep(max(taken.again_s, _AGAIN_S))
                continue
            found = self._take(asked, taken)
            if found is not None and found.num_rows:
                self.rows += found.num_rows
                await self._ready.put(found)

    def _missing(self, site: str) -> TakeRows:
        """The parts at a site, each behind what has come of it."""
        space, parts = self._brief.grid.space, []
        for start, end in self._assigned[site].bounds.tolist():
            for low, high, upto in self._have.pieces(start, end):
                codes, lengths = DzSet(space, np.array([[low, high]])).expressions()
                parts += [(code, length, upto) for code, length in zip(codes.tolist(), lengths.tolist(), strict=True)]
        codes, lengths, after = (np.array([part[column] for part in parts], dtype=np.int64) for column in range(3))
        return TakeRows(self.stream.name, self._demand, codes, lengths, after, _WAIT_S)

    def _take(self, asked: TakeRows, taken: TakenRows) -> pa.RecordBatch | None:
        """The rows that are new, and of the query; what has come from elsewhere meanwhile is left out."""
        if not len(taken.codes):
            return None
        before = {
            code: (length, after)
            for code, length, after in zip(
                asked.codes.tolist(), asked.lengths.tolist(), asked.after.tolist(), strict=True
            )
        }
        ends = np.cumsum(taken.counts)
        kept = np.zeros(int(ends[-1]), dtype=bool)
        columns = (taken.codes, taken.lengths, taken.after, taken.upto, ends, taken.counts)
        for code, length, after, upto, end, count in zip(*(each.tolist() for each in columns), strict=True):
            past = code + (1 << (self._brief.grid.space.digits - length))
            mark = self._mark_asked(before, code, length)
            if mark is None or any(have != mark for _, _, have in self._have.pieces(code, past)):
                continue
            if after > mark != NOTHING:
                self.gaps.append((code, past, mark, after))
            self._have.mark(code, past, upto)
            kept[end - count : end] = True
        if not kept.any():
            return None
        rows = unpack_rows(taken.rows, taken.raw_bytes, self.stream.schema.arrow)
        rows = rows.filter(pa.array(kept)) if not kept.all() else rows
        if self._predicate is not None:
            rows = rows.filter(pa.array(self._predicate.evaluate(rows, {})))
        return rows

    def _mark_asked(self, before: Mapping[int, tuple[int, int]], code: int, length: int) -> int | None:
        """What was asked for the part that a part of an answer lies in; None where it lies in none."""
        digits = self._brief.grid.space.digits
        for shorter in range(length, -1, -1):
            start = code >> (digits - shorter) << (digits - shorter)
            if start in before and before[start][0] == shorter:
                return before[start][1]
        return None


async def open_query(fabric: Fabric, tables: Tables, snapshot: Snapshot, stream: str, **asked: Any) -> ServedQuery:
    """A query on a stream of a deployment, with the options of `ServedQuery`."""
    if stream not in snapshot.deployment.streams:
        raise ClientError(f"no stream {stream!r}", kind="unknown")
    brief = serving_brief(snapshot, stream)
    if brief is None:
        hint = "give its site a subscription with `serves`, or subscribe to the stream"
        raise ClientError(f"no site serves {stream!r}", hint=hint)
    return ServedQuery(PartsReach(fabric, tables, READERS), brief, **asked)
