"""From a manifest to a block: how the root's relay reads the root log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import numpy as np
import pyarrow as pa

from headgate.fabric import Fabric
from headgate.matching import ClassLists
from headgate.relay.routes import Routes
from headgate.wire.block import EXPIRED, Block, Commit
from headgate.wire.manifest import Manifest, decode_manifest
from headgate.wire.part import decode_part

EARLIEST: Final = "earliest"
"""The start of a subscription that wants what the root log still holds of its delivery class."""


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
    )


async def load_block(fabric: Fabric, manifest: Manifest, schema: pa.Schema, routes: Routes) -> Block:
    """The rows of a manifest. Where its parts were purged, all of its rows are declared expired."""
    named = [(base, part) for base, part in zip(manifest.bases(), manifest.parts, strict=True) if part.log_sequence]
    log = fabric.logs.root(manifest.stream)
    stored = await asyncio.gather(*(fabric.get(log, part.log_sequence) for _, part in named))
    commits = (commit_of(manifest),)
    if any(message is None for message in stored):
        return Block(
            manifest.stream,
            manifest.after,
            manifest.upto,
            commits,
            np.zeros(0, dtype=np.uint64),
            pa.RecordBatch.from_pylist([], schema=schema),
            ClassLists.empty(0),
            _expired(manifest, routes),
        )
    parts = [decode_part(message.data, schema) for message in stored if message is not None]
    # Positions count from 0, sequence numbers from 1: the first row after `base` is base + 1.
    seqs = [part.positions + np.uint64(base + 1) for (base, _), part in zip(named, parts, strict=True)]
    rows = pa.Table.from_batches([part.rows for part in parts], schema=schema).combine_chunks().to_batches()
    return Block(
        manifest.stream,
        manifest.after,
        manifest.upto,
        commits,
        np.concatenate(seqs) if seqs else np.zeros(0, dtype=np.uint64),
        rows[0] if rows else pa.RecordBatch.from_pylist([], schema=schema),
        ClassLists.concat(part.classes for part in parts) if parts else ClassLists.empty(0),
    )


def _expired(manifest: Manifest, routes: Routes) -> dict[int, dict[str, int]]:
    everyone = [*routes.local, *(receiver for child in routes.children for receiver in child.receivers)]
    counts = manifest.matched(np.array([receiver.class_id for receiver in everyone], dtype=np.uint64))
    return {
        receiver.id: {EXPIRED: int(count)} for receiver, count in zip(everyone, counts.tolist(), strict=True) if count
    }


async def committed(fabric: Fabric, stream: str, upto: int) -> AsyncIterator[Manifest]:
    """The manifests that the root log still holds up to a sequence number, oldest first."""
    logs = fabric.logs
    place = 0
    while batch := await fabric.read(logs.root(stream), logs.commit(stream), place):
        place = batch[-1].sequence
        for stored in batch:
            manifest = decode_manifest(stored.data)
            if manifest.upto > upto:
                return
            if manifest.evaluated:
                yield manifest


async def manifests(fabric: Fabric, stream: str, after: int = 0) -> AsyncIterator[tuple[int, Manifest]]:
    """Manifests of a stream with their place in the root log: what is there after a place, then what comes."""
    logs = fabric.logs
    async for batch in fabric.follow(logs.root(stream), logs.commit(stream), after):
        for stored in batch:
            yield stored.sequence, decode_manifest(stored.data)
