"""The past of a delivery class that nobody had when its rows were committed: the kept rows are matched again.

A stream that says how long it keeps its rows (`keep`) has all of them in its root log, not only those that somebody
wanted. The root's relay matches them for whoever subscribes with an earlier start, and the keeper of the books counts
them in the same way: both take the commits that the subscription's start takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching import ClassLists
from headgate.model import Schema, Stream
from headgate.model.start import EARLIEST, NOW, takes
from headgate.protocol.port import FabricError, LogPort
from headgate.relay.root import committed, load_block
from headgate.relay.routes import Routes
from headgate.relay.tables import TableCache
from headgate.wire.block import Block
from headgate.wire.manifest import Manifest
from headgate.wire.snapshot import Snapshot

MARGIN_S: Final = 60.0
"""Rows stay for so much longer than their stream says, for who has begun to read them."""


async def resolve_start(port: LogPort, stream: Stream, start: str) -> str:
    """A start in the past of a stream that keeps its rows, as the number of the first row that is taken.

    So nobody who counts or sends that past can take another beginning. What is older than the stream keeps its rows is
    not taken. Where nothing is kept from the start on, it is `now`.
    """
    if start == NOW or stream.keep_s is None:
        return start
    oldest_ms = (port.wall_s - stream.keep_s) * 1000
    async for manifest in committed(port, stream.name, 1 << 62):
        if manifest.time_ms >= oldest_ms and takes(start, manifest.upto, manifest.time_ms):
            return str(manifest.after + 1) if start == EARLIEST or not start.isdigit() else start
    return NOW


def matches_again(snapshot: Snapshot, newest: Snapshot, manifest: Manifest, class_id: int) -> bool:
    """Whether the rows of a commit are to be matched again for a class: nobody had it, and all rows are kept."""
    stream = newest.deployment.streams.get(manifest.stream)
    if stream is None or stream.keep_s is None:
        return False
    known = any(
        snapshot.class_ids[name] == class_id
        for name, each in snapshot.deployment.subscriptions.items()
        if each.stream == manifest.stream
    )
    return not known and all(part.kept == part.evaluated for part in manifest.parts)


def match_again(block: Block, newest: Snapshot, class_id: int) -> Block:
    """The block with the class at the rows that its filter takes, by the newest columns of the stream."""
    stream = newest.deployment.streams[block.stream]
    hits = np.flatnonzero(_hits(conform(block.rows, stream.schema), newest, stream, class_id))
    offsets = np.searchsorted(hits, np.arange(block.rows.num_rows + 1)).astype(np.int64)
    return replace(block, classes=ClassLists(offsets, np.full(len(hits), class_id, np.uint32)))


def _hits(rows: pa.RecordBatch, newest: Snapshot, stream: Stream, class_id: int) -> npt.NDArray[np.bool_]:
    try:
        from headgate.pipeline.classes import definitions_of, filters_of
    except ImportError as error:
        raise FabricError(
            f"the past of a new filter on {stream.name!r} cannot be matched here: {error}",
            hint="install headgate[job] at the stream's root",
        ) from error
    wanted = definitions_of(newest, stream.name).get(class_id)
    if wanted is None:  # whoever asked has unsubscribed meanwhile
        return np.zeros(rows.num_rows, np.bool_)
    return filters_of(stream)(wanted.template).evaluate(rows, wanted.context)


def conform(rows: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """The rows in the columns of a schema: what an earlier one had not is null, what has a wider type now is cast."""
    if rows.schema.equals(schema.arrow):
        return rows
    there = set(rows.schema.names)
    columns = [
        rows.column(field.name).cast(field.type) if field.name in there else pa.nulls(rows.num_rows, field.type)
        for field in schema.arrow
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


async def past_counts(
    port: LogPort, tables: TableCache, class_id: int, manifests: Sequence[Manifest], newest: Snapshot
) -> list[int]:
    """How many rows of each commit a class takes: as it was matched, or by matching its rows again."""
    found = []
    for manifest in manifests:
        snapshot = await tables.snapshot(manifest.version)
        if matches_again(snapshot, newest, manifest, class_id):
            schema = snapshot.deployment.streams[manifest.stream].schema.arrow
            nobody = Routes("", manifest.stream, manifest.version, None, schema, (), ())
            block = match_again(await load_block(port, manifest, schema, nobody), newest, class_id)
            assert block.classes is not None
            found.append(len(block.classes.rows_matched()))
        else:
            found.append(int(manifest.matched(np.array([class_id], dtype=np.uint64))[0]))
    return found
