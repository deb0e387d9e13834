"""The driver's side of a micro-batch: what tasks have staged becomes a manifest, which the committer commits.

The protocol of pinning and committing is `headgate.protocol.commits`; here it runs on the driver's connection, for code
without an event loop.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import numpy as np

from headgate.fabric import SyncFabric
from headgate.pipeline.counts import read_counts
from headgate.protocol import commits
from headgate.protocol.records import Pin
from headgate.reduction import merged
from headgate.wire.manifest import Manifest, PartRef, SourceRange
from headgate.wire.unsent import Unsent, decode_unsent


async def _same_files(last: Manifest | None) -> int:
    return last.files if last else 0


@dataclass(frozen=True, slots=True)
class Reading:
    """What a batch read of its sources, for its manifest.

    `files` gives the place of the list of files that goes on from the last manifest's.
    """

    ranges: tuple[SourceRange, ...] = ()
    files: Callable[[Manifest | None], Awaitable[int]] = _same_files


NO_SOURCE: Final = Reading()
"""Of batches that were made here and not read from a source: their number alone says which they are."""


def pin_batch(fabric: SyncFabric, stream: str, batch: int, control: commits.UpdateControl | None = None) -> Pin:
    """The pin of a micro-batch."""
    pin = fabric.run(commits.pin_batch(fabric.fabric, stream, batch, control))
    fabric.report_quarantine(f"driver-{stream}")
    return pin


def commit(
    fabric: SyncFabric,
    stream: str,
    lineage: str,
    batch: int,
    pin: Pin,
    staged: Sequence[Any],
    reading: Reading = NO_SOURCE,
) -> Manifest | None:
    """Append the manifest of a batch, None when the batch was committed before.

    `staged` are the rows that the match pass returned, in partition order.
    """

    async def draft(last: Manifest | None, now_ms: int) -> Manifest:
        found = build_manifest(stream, lineage, batch, pin, staged, last.upto if last else 0, now_ms)
        return replace(found, ranges=reading.ranges, files=await reading.files(last))

    return fabric.run(commits.commit(fabric.fabric, commits.Batch(stream, lineage, batch, reading.ranges), draft))


def build_manifest(
    stream: str, lineage: str, batch: int, pin: Pin, staged: Sequence[Any], after: int, now_ms: int
) -> Manifest:
    """The manifest of what was staged, with sequence numbers by prefix sums."""
    parts = [row for row in staged if row["kind"] == "part"]
    dead = [row for row in staged if row["kind"] == "dead"]
    class_ids, totals = read_counts(staged)
    events = sum(row["events"] for row in parts)
    mean_ms = sum(row["event_ms"] * row["events"] for row in parts) / events if events else float(now_ms)
    return Manifest(
        stream=stream,
        lineage=lineage,
        batch=batch,
        version=pin.version,
        context=pin.context,
        skipped=np.array(pin.skipped, np.uint64),
        partly=pin.left_out.partly,
        withheld=withheld_of(staged),
        unsent=unsent_of(staged),
        shed_updates=pin.shed_updates,
        partly_shed=sum(row["partly_shed"] for row in staged),
        after=after,
        parts=tuple(PartRef(row["log_sequence"], row["evaluated"], row["kept"]) for row in parts),
        class_ids=class_ids,
        class_counts=totals,
        dead=sum(row["dead"] for row in dead),
        shed=sum(row["shed"] for row in staged),
        dead_parts=tuple(PartRef(row["log_sequence"], 0, row["dead"]) for row in dead),
        time_ms=now_ms,
        lag_ms=int(now_ms - mean_ms),
    )


def unsent_of(staged: Sequence[Any]) -> Unsent | None:
    """What senders have given up, as declared in this batch."""
    declared = (decode_unsent(row["unsent"]) for row in staged if row["unsent"])
    return reduce(merged, declared, None)


def withheld_of(staged: Sequence[Any]) -> dict[str, int]:
    """By what groups of classes tolerate, how many rows were withheld from each."""
    found: dict[str, int] = {}
    for row in staged:
        for tolerance, count in json.loads(row["withheld"] or "{}").items():
            found[tolerance] = found.get(tolerance, 0) + count
    return found
