"""A row on its way: which logs of its path have it, which cover its number without it, which are not that far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from headgate.fabric import Fabric, FabricError
from headgate.protocol.port import Stored
from headgate.relay.routes import build_routes
from headgate.relay.tables import TableCache
from headgate.wire.block import Block, renamed
from headgate.wire.frame import WireError
from headgate.wire.logs import Log
from headgate.wire.snapshot import Snapshot

HAS: Final = "has"
WITHOUT: Final = "without"
PASSED: Final = "passed"
NOT_YET: Final = "not-yet"


@dataclass(frozen=True, slots=True)
class Stop:
    """One log on a row's path: the site whose log it is, and what it says of the row.

    `has` it, covers its number `without` it, has `passed` it (what covered it is purged), or has `not-yet` come to it.
    """

    site: str
    sender: str
    state: str
    time_ms: int | None = None
    given_up: Mapping[str, int] = field(default_factory=dict)
    digest: Mapping[str, Any] = field(default_factory=dict)
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A row that a subscription matched."""

    stream: str
    seq: int
    name: str
    id: int
    class_id: int


def path_of(snapshot: Snapshot, stream: str, site: str) -> list[str]:
    """The sites from the root to a site, as the plan of a version says."""
    tree = snapshot.plan.trees.get(stream) if snapshot.plan else None
    path = [site]
    while tree is not None and path[0] in tree.parents:
        path.insert(0, tree.parents[path[0]])
    return path


async def follow(fabric: Fabric, tables: TableCache, snapshot: Snapshot, wanted: Wanted) -> tuple[list[Stop], Stop]:
    """What the logs of the links on a row's path say, from the root down, and what the subscription's inbox says."""
    subscription = snapshot.deployment.subscriptions[wanted.name]
    logs = fabric.logs
    stops = []
    for parent, child in pairwise(path_of(snapshot, wanted.stream, subscription.site)):
        log, subject = logs.site(child), logs.link(parent, child, wanted.stream)
        stops.append(await _stop(fabric, tables, log, subject, wanted, child, parent, link=True))
    site = subscription.site
    subject = logs.delivery(site, *subscription.present.inbox_of(wanted.id))
    return stops, await _stop(fabric, tables, logs.inbox(site), subject, wanted, site, site, link=False)


async def _stop(
    fabric: Fabric, tables: TableCache, log: Log, subject: str, wanted: Wanted, site: str, sender: str, *, link: bool
) -> Stop:
    stored, covered = await _covering(fabric, log, subject, wanted.seq)
    if stored is None:
        return Stop(site, sender, PASSED if covered >= wanted.seq else NOT_YET)
    snapshot = await tables.snapshot(fabric.codec.version(stored.data))
    schema = _schema(snapshot, wanted, site, link=link)
    block = None if schema is None else _decoded(fabric, stored, schema)
    time_ms = int(stored.time_s * 1000)
    if block is None:
        return Stop(site, sender, PASSED, time_ms)
    if not link:  # what a shared inbox says of its owner it says of everybody who reads it
        block = renamed(block, int(subject.rsplit(".", 1)[1].partition("-")[0]), wanted.id)
    if _has(block, wanted):
        return Stop(site, sender, HAS, time_ms)
    digest = block.digests[wanted.id].show() if wanted.id in block.digests else {}
    return Stop(
        site, sender, WITHOUT, time_ms, dict(block.declared.get(wanted.id, {})), digest, block.after + 1, block.upto
    )


async def _covering(fabric: Fabric, log: Log, subject: str, seq: int) -> tuple[Stored | None, int]:
    """The message that covers a number, None where there is none; and how far the subject covers."""
    place, covered = 0, 0
    try:
        while batch := await fabric.read(log, subject, place):
            place = batch[-1].sequence
            for stored in batch:
                try:
                    after, upto = fabric.codec.coverage(stored.data)
                except WireError:
                    continue
                if after < seq <= upto:
                    return stored, upto
                covered = max(covered, upto)
    except FabricError:  # a site that was never up has no log
        return None, covered
    return None, covered


def _schema(snapshot: Snapshot, wanted: Wanted, site: str, *, link: bool) -> pa.Schema | None:
    """The columns of a message of a link or of an inbox."""
    if link:
        routes = build_routes(snapshot, site, wanted.stream)
        return None if routes is None else routes.schema
    mine = snapshot.deployment.subscriptions.get(wanted.name)
    return None if mine is None else snapshot.deployment.streams[mine.stream].schema.select(mine.select).arrow


def _decoded(fabric: Fabric, stored: Stored, schema: pa.Schema) -> Block | None:
    try:
        return fabric.codec.block(stored.data, schema)
    except WireError:
        return None


def _has(block: Block, wanted: Wanted) -> bool:
    """Whether a block has the row, for this subscription."""
    rows = [number for number, seq in enumerate(block.seqs.tolist()) if seq == wanted.seq]
    if not rows or block.classes is None:
        return bool(rows)
    ids = block.classes.row(rows[0]).tolist()
    patch = block.patches.get(wanted.id)
    return wanted.class_id in ids and (patch is None or wanted.seq not in patch.without.tolist())
