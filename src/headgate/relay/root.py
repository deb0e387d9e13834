"""From a manifest to a block: how the root's relay reads the root log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headgate.matching import ClassLists
from headgate.protocol.port import LogPort, Stored
from headgate.relay.routes import Routes
from headgate.wire.block import Block, Commit
from headgate.wire.frame import WireError
from headgate.wire.manifest import Manifest, classes_withheld
from headgate.wire.part import Part


def commit_of(manifest: Manifest) -> Commit:
    """A manifest as those below the root see it."""
    return Commit(
        manifest.after,
        manifest.upto,
        manifest.version,
        manifest.time_ms,
        manifest.lag_ms,
        manifest.shed + manifest.gaps,
        manifest.shed_updates,
        manifest.partly_shed,
        manifest.told,
    )


async def load_block(port: LogPort, manifest: Manifest, schema: pa.Schema, routes: Routes) -> Block:
    """The rows of a manifest. Where a part was purged or cannot be read, its commit says how many rows were matched."""
    named = [(base, part) for base, part in zip(manifest.bases(), manifest.parts, strict=True) if part.log_sequence]
    log = port.logs.root(manifest.stream)
    stored = await port.gather(*(port.get(log, part.log_sequence) for _, part in named))
    commit = replace(commit_of(manifest), unevaluated=_unevaluated(manifest, routes))
    found = [(base, _part(port, each, schema)) for (base, _), each in zip(named, stored, strict=True)]
    parts = [part for _, part in found if part is not None]
    if len(parts) < len(named):
        commit = replace(commit, whole=_matched(manifest, routes))
    # Positions count from 0, sequence numbers from 1: the first row after `base` is base + 1.
    seqs = [part.positions + np.uint64(base + 1) for base, part in found if part is not None]
    rows = pa.Table.from_batches([part.rows for part in parts], schema=schema).combine_chunks().to_batches()
    return Block(
        manifest.stream,
        manifest.after,
        manifest.upto,
        (commit,),
        np.concatenate(seqs) if seqs else np.zeros(0, dtype=np.uint64),
        rows[0] if rows else pa.RecordBatch.from_pylist([], schema=schema),
        ClassLists.concat(part.classes for part in parts) if parts else ClassLists.empty(0),
    )


def _part(port: LogPort, stored: Stored | None, schema: pa.Schema) -> Part | None:
    """A part, None where it is not there any more or cannot be read."""
    try:
        return None if stored is None else port.codec.part(stored.data, schema)
    except WireError:
        return None


def _matched(manifest: Manifest, routes: Routes) -> dict[int, int]:
    """How many rows of a manifest each subscription is owed."""
    everyone = routes.receivers
    counts = manifest.matched(np.array([receiver.class_id for receiver in everyone], dtype=np.uint64))
    return {receiver.id: int(count) for receiver, count in zip(everyone, counts.tolist(), strict=True) if count}


def _unevaluated(manifest: Manifest, routes: Routes) -> dict[int, int]:
    """How many rows of a manifest were not looked at for each subscription, where there are any."""
    counts = classes_withheld(manifest.withheld)
    if not counts:
        return {}
    return {each.id: counts[each.class_id] for each in routes.receivers if each.class_id in counts}


async def committed(port: LogPort, stream: str, upto: int) -> AsyncIterator[Manifest]:
    """The manifests that the root log still holds of rows up to a sequence number, oldest first."""
    logs = port.logs
    place = 0
    while batch := await port.read(logs.root(stream), logs.commit(stream), place):
        place = batch[-1].sequence
        for _, manifest in readable(port, batch):
            if manifest.after >= upto:
                return
            if manifest.evaluated:
                yield manifest


def readable(port: LogPort, batch: Iterable[Stored]) -> Iterator[tuple[int, Manifest]]:
    """The manifests of some messages with their places; what is none is passed over (the root's relay names it)."""
    for stored in batch:
        try:
            yield stored.sequence, port.codec.manifest(stored.data)
        except WireError:
            continue


async def place_behind(port: LogPort, stream: str, upto: int) -> int:
    """The place of the first manifest that ends behind a sequence number, or of the last one; 0 where there is none.

    Manifests only go up along a root log. One that cannot be read counts as behind it.
    """
    log, subject = port.logs.root(stream), port.logs.commit(stream)
    last = await port.last(log, subject)
    found, low, high = 0 if last is None else last.sequence, 0, 0 if last is None else last.sequence
    while low < high:
        middle = (low + high) // 2
        batch = await port.read(log, subject, middle, limit=1)
        if any(manifest.upto <= upto for _, manifest in readable(port, batch)):
            low = batch[0].sequence
        else:
            found, high = batch[0].sequence if batch else found, middle
    return found


async def committed_head(port: LogPort, stream: str) -> int | None:
    """The last sequence number that was committed, None when nothing was; what cannot be read is passed over."""
    log, subject = port.logs.root(stream), port.logs.commit(stream)
    stored = await port.last(log, subject)
    if stored is None:
        return None
    for _, manifest in readable(port, [stored]):
        return manifest.upto
    head, place = None, 0
    while batch := await port.read(log, subject, place):
        place = batch[-1].sequence
        for _, manifest in readable(port, batch):
            head = manifest.upto
    return head
