"""Finding a row that was published and not read yet: in the outbox of a site, or in the input of its stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.fabric import Fabric, FabricError
from headgate.model import Stream
from headgate.pipeline.sources.payloads import PayloadMessage, decode_arrow
from headgate.protocol.port import NoLogError, Stored
from headgate.service.outboxes import read_taken
from headgate.service.why.rows import Choose, Sought, typed
from headgate.wire.manifest import Manifest
from headgate.wire.parcel import ROWS, Parcel, SiteIntake

_AT_A_TIME: Final = 16


@dataclass(frozen=True, slots=True)
class UnreadRow:
    """A row that was published and not read yet: where its message lies, and since when.

    `site` is where it was published, None for the stream's own input. It is `rising` while it lies in the site's
    outbox, with so many messages of the stream before it.
    """

    row: Mapping[str, Any]
    place: int
    time_ms: int
    site: str | None = None
    rising: bool = False
    before: int = 0


@dataclass(frozen=True, slots=True)
class UnreadSearch:
    """What was found, sites that did not answer, and whether all was looked at."""

    found: UnreadRow | None = None
    silent: tuple[str, ...] = ()
    whole: bool = True


async def search_outboxes(fabric: Fabric, stream: Stream, sites: Sequence[str], sought: Sought) -> UnreadSearch:
    """The newest chosen row that waits at a site for its way up to the root."""
    if not stream.source.published:
        return UnreadSearch()
    taken, turns = await read_taken(fabric, stream.name), asyncio.Semaphore(_AT_A_TIME)

    async def look(site: str) -> UnreadSearch:
        async with turns:
            try:
                return await _in_outbox(fabric, stream, site, taken.get(site, SiteIntake()).upto, sought)
            except NoLogError:  # nothing was ever published there
                return UnreadSearch()
            except FabricError:
                return UnreadSearch(silent=(site,))

    answers = await asyncio.gather(*map(look, sites))
    newest = max((each.found for each in answers if each.found), key=lambda each: each.time_ms, default=None)
    silent = tuple(site for each in answers for site in each.silent)
    return UnreadSearch(newest, silent, all(each.whole for each in answers))


async def _in_outbox(fabric: Fabric, stream: Stream, site: str, taken: int, sought: Sought) -> UnreadSearch:
    """What the root has `taken` may still lie there for a moment: that is looked for at the root."""
    log, subject = fabric.logs.outbox(site), fabric.logs.published_at(site, stream.name)
    newest, place, before = None, taken, 0
    while batch := await fabric.read(log, subject, place):
        if sought.is_over:
            return UnreadSearch(newest, whole=False)
        place = batch[-1].sequence
        rows = await asyncio.to_thread(_newest_of_each, [each.data for each in batch], stream, sought.choose)
        for number, (stored, row) in enumerate(zip(batch, rows, strict=True), before):
            if row is not None:
                newest = UnreadRow(row, stored.sequence, _ms(stored), site, rising=True, before=number)
        before += len(batch)
    return UnreadSearch(newest)


async def search_input(fabric: Fabric, stream: Stream, manifests: Sequence[Manifest], sought: Sought) -> UnreadSearch:
    """The newest chosen row in the stream's input that is not committed yet."""
    if not (stream.source.published or stream.source.collected):
        return UnreadSearch()
    logs, newest = fabric.logs, None
    for subject in (logs.published(stream.name), logs.carried(stream.name)):
        place, carried = _read_upto(manifests), subject == logs.carried(stream.name)
        while batch := await fabric.read(logs.input(stream.name), subject, place):
            if sought.is_over:
                return UnreadSearch(newest, whole=False)
            place = batch[-1].sequence
            messages = [
                (stored, site, data)
                for stored in batch
                for site, data in (_carried(fabric, stream, stored) if carried else [(None, stored.data)])
            ]
            rows = await asyncio.to_thread(_newest_of_each, [data for *_, data in messages], stream, sought.choose)
            for (stored, site, _), row in zip(messages, rows, strict=True):
                if row is not None and (newest is None or stored.sequence >= newest.place):
                    newest = UnreadRow(row, stored.sequence, _ms(stored), site)
    return UnreadSearch(newest)


def _carried(fabric: Fabric, stream: Stream, stored: Stored) -> list[tuple[str | None, bytes]]:
    """The messages of a parcel, each with the site where it was published."""
    parcel = fabric.quarantine.take(fabric.logs.input(stream.name), stored, Parcel.decode)
    return [] if parcel is None else [(parcel.origin, item.data) for item in parcel.items if item.kind == ROWS]


def _ms(stored: Stored) -> int:
    return int(stored.time_s * 1000)


def _read_upto(manifests: Sequence[Manifest]) -> int:
    """How far the input log was read, as the newest manifest says."""
    for manifest in reversed(manifests):
        for each in manifest.ranges:
            try:
                found = json.loads(each.after)
            except ValueError:
                continue
            if isinstance(found, dict) and isinstance(found.get("sequence"), int):
                return int(found["sequence"])
    return 0


def _newest_of_each(messages: Sequence[bytes], stream: Stream, choose: Choose) -> list[Mapping[str, Any] | None]:
    return [_newest(each, stream, choose) for each in messages]


def _newest(data: bytes, stream: Stream, choose: Choose) -> Mapping[str, Any] | None:
    """The last chosen row of a published message."""
    rows = _published(data, stream)
    chosen = np.flatnonzero(choose(rows)) if rows.num_rows else np.zeros(0, dtype=np.int64)
    if not len(chosen):
        return None
    row: Mapping[str, Any] = rows.slice(int(chosen[-1]), 1).to_pylist()[0]
    return row


def _published(data: bytes, stream: Stream) -> pa.RecordBatch:
    if stream.source.options.get("payload", "arrow") == "arrow":
        schema = pa.schema([*stream.schema.arrow, ("_raw", pa.string()), ("_error", pa.string())])
        batches = list(decode_arrow([PayloadMessage(0, data)], schema))
        table = pa.Table.from_batches(batches, schema=schema).select(stream.schema.names).combine_chunks()
        found = table.to_batches()
        return found[0] if found else typed([], stream)
    rows = []
    for line in data.split(b"\n"):
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return typed([row for row in rows if isinstance(row, dict)], stream)
