"""The driver's side of a micro-batch: what tasks have staged becomes a manifest, which the committer commits.

The protocol of pinning and committing is `headgate.protocol.commits`; here it runs on the driver's connection, for code
without an event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from headgate.fabric import SyncFabric
from headgate.pipeline.staged import Staged
from headgate.protocol import commits
from headgate.protocol.records import Pin
from headgate.wire.manifest import Manifest, SourceRange


async def _same_files(last: Manifest | None) -> int:
    return last.files if last else 0


@dataclass(frozen=True, slots=True)
class BatchReading:
    """What a batch read of its sources, for its manifest.

    `files` gives the place of the list of files that goes on from the last manifest's. `memory` is what derived columns
    remembered before the batch, in the form of a manifest.
    """

    ranges: tuple[SourceRange, ...] = ()
    files: Callable[[Manifest | None], Awaitable[int]] = _same_files
    memory: tuple[int, ...] = ()


NO_SOURCE: Final = BatchReading()
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
    staged: Staged,
    reading: BatchReading = NO_SOURCE,
) -> Manifest | None:
    """Append the manifest of a batch, None when the batch was committed before.

    `staged` is what the match pass told.
    """

    async def draft(last: Manifest | None, now_ms: int) -> Manifest:
        found = build_manifest(stream, lineage, batch, pin, staged, last.upto if last else 0, now_ms)
        memory = memory_after(reading.memory, last, staged)
        return replace(found, ranges=reading.ranges, files=await reading.files(last), memory=memory)

    return fabric.run(commits.commit(fabric.fabric, commits.Batch(stream, lineage, batch, reading.ranges), draft))


def memory_after(before: tuple[int, ...], last: Manifest | None, staged: Staged) -> tuple[int, ...]:
    """What derived columns remember after a batch; refused where the last manifest does not say what it began with."""
    if not before:
        return ()
    if last is not None and last.memory and last.memory != before:
        raise commits.LineageError(
            "another driver has committed since this batch began, so that its derived columns are of older rows",
            hint="nothing is lost: the stream is started again",
        )
    after = list(before)
    for each in staged.memory():
        after[each.partition] = each.place
    return tuple(after)


def build_manifest(
    stream: str, lineage: str, batch: int, pin: Pin, staged: Staged, after: int, now_ms: int, *, lags: bool = True
) -> Manifest:
    """The manifest of what was staged, with sequence numbers by prefix sums.

    Without `lags` it does not say how old its rows are, as their event times are of another clock.
    """
    class_ids, class_counts = staged.class_counts()
    mean_ms = staged.mean_event_ms() if lags else None
    return Manifest(
        stream=stream,
        lineage=lineage,
        batch=batch,
        version=pin.version,
        context=pin.context,
        skipped=np.array(pin.skipped, np.uint64),
        partly=pin.left_out.partly,
        withheld=staged.withheld(),
        unsent=staged.unsent(),
        shed_updates=pin.shed_updates,
        partly_shed=staged.total("partly_shed"),
        after=after,
        parts=staged.parts(),
        class_ids=class_ids,
        class_counts=class_counts,
        dead=staged.total("dead"),
        shed=staged.total("shed"),
        dead_parts=staged.dead_letters(),
        time_ms=now_ms,
        lag_ms=0 if mean_ms is None else int(now_ms - mean_ms),
    )
