"""The driver's side of a micro-batch: pin a version before it, commit one manifest after it.

A batch is committed once, whatever is replayed: the last manifest is read first, a batch that is not newer is dropped,
and the append is fenced by the manifest that was read, so that an older driver that still runs cannot get between.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from headgate import faults
from headgate.errors import HeadgateError
from headgate.fabric import FencedError, SyncFabric
from headgate.wire.manifest import Manifest, PartRef, decode_manifest, encode_manifest


class LineageError(HeadgateError):
    """The checkpoint that numbers the batches is not the one that numbered the committed ones."""


def pin_version(fabric: SyncFabric, stream: str, batch: int) -> int:
    """The version that a micro-batch runs under: chosen by the first who asks, the same for every replay."""
    logs = fabric.logs
    while True:
        stored = fabric.last(logs.state, logs.pin(stream))
        known: dict[str, Any] = json.loads(stored.data) if stored else {"batch": -1}
        if known["batch"] == batch:
            return int(known["version"])
        head = fabric.last(logs.state, logs.head)
        if head is None:
            raise HeadgateError("no version of the catalog is published", hint="is the service running?")
        version = int(head.data)
        try:
            pinned = json.dumps({"batch": batch, "version": version}).encode()
            fabric.publish(logs.pin(stream), pinned, expect=stored.sequence if stored else 0)
        except FencedError:
            continue
        return version


def commit(
    fabric: SyncFabric,
    stream: str,
    lineage: str,
    batch: int,
    version: int,
    staged: Sequence[Any],
    *,
    new_lineage: bool = False,
) -> Manifest | None:
    """Append the manifest of a batch, None when the batch was committed before.

    `staged` are the rows that the match pass returned, in partition order. `new_lineage` accepts a checkpoint that
    starts anew: its batches go on from the last sequence number.
    """
    logs = fabric.logs
    while True:
        stored = fabric.last(logs.root(stream), logs.commit(stream))
        last = decode_manifest(stored.data) if stored else None
        if last is not None and last.lineage != lineage and not new_lineage:
            raise LineageError(
                f"stream {stream!r} was committed by the checkpoint {last.lineage}, this one is {lineage}",
                hint="restore the checkpoint directory, or start with --new-lineage to go on from the source's start",
            )
        if last is not None and last.lineage == lineage and batch <= last.batch:
            return None
        manifest = build_manifest(stream, lineage, batch, version, staged, last.upto if last else 0)
        faults.reach("driver.before_manifest")
        try:
            fabric.publish(logs.commit(stream), encode_manifest(manifest), expect=stored.sequence if stored else 0)
        except FencedError:
            continue
        faults.reach("driver.after_manifest")
        return manifest


def build_manifest(stream: str, lineage: str, batch: int, version: int, staged: Sequence[Any], after: int) -> Manifest:
    """The manifest of what was staged, with sequence numbers by prefix sums."""
    parts = [row for row in staged if row["kind"] == "part"]
    dead = [row for row in staged if row["kind"] == "dead"]
    ids = np.concatenate([np.frombuffer(row["class_ids"], dtype="<u4") for row in parts] or [np.zeros(0, "<u4")])
    counts = np.concatenate([np.frombuffer(row["class_counts"], dtype="<i8") for row in parts] or [np.zeros(0, "<i8")])
    class_ids, places = np.unique(ids, return_inverse=True)
    totals = np.zeros(len(class_ids), dtype=np.uint64)
    np.add.at(totals, places, counts.astype(np.uint64))
    events = sum(row["events"] for row in parts)
    now_ms = int(time.time() * 1000)
    mean_ms = sum(row["event_ms"] * row["events"] for row in parts) / events if events else float(now_ms)
    return Manifest(
        stream=stream,
        lineage=lineage,
        batch=batch,
        version=version,
        after=after,
        parts=tuple(PartRef(row["log_sequence"], row["evaluated"], row["kept"]) for row in parts),
        class_ids=class_ids.astype(np.uint64),
        class_counts=totals,
        dead=sum(row["dead"] for row in dead),
        shed=sum(row["shed"] for row in staged),
        dead_parts=tuple(PartRef(row["log_sequence"], 0, row["dead"]) for row in dead),
        time_ms=now_ms,
        lag_ms=int(now_ms - mean_ms),
    )
