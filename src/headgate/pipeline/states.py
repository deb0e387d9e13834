"""The state that a worker matches with: a stream's index at a version, and at a place of its context log.

The index is mapped from the driver's files and brought forward by deltas; when that cannot be, it is compiled from the
published snapshot, and the reason is told. Either way the rows are the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headgate.fabric import SyncFabric
from headgate.matching import ContextState, ContextUpdate, MatchingError
from headgate.matching.definitions import grouped
from headgate.matching.live import LiveIndex
from headgate.model import Stream
from headgate.pipeline.classes import index_of, reading_of, stricter_than
from headgate.protocol.published import require_snapshot
from headgate.wire.codec import decode_stream
from headgate.wire.context import decode_context
from headgate.wire.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class IndexRef:
    """Which saved index a version of the catalog stands for, and where the files are; travels with the task.

    `base` is the place in the context log that the index was compiled at: updates up to it may be gone from the log.
    """

    directory: str
    version: int
    base: int = 0
    files: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    """Its files where Spark carries them to executors (`headgate.pipeline.sharing`); none where workers see them."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream and its state, under a version of the catalog. `trouble` says why it was compiled and not mapped."""

    stream: Stream
    state: ContextState
    version: int
    ref: IndexRef | None = None
    mapped: bool = False
    trouble: str = ""


def read_snapshot(fabric: SyncFabric, version: int) -> Snapshot:
    """The published snapshot of a version."""
    return fabric.run(require_snapshot(fabric.fabric, version))


def read_updates(fabric: SyncFabric, stream: str, after: int, upto: int) -> Iterator[ContextUpdate]:
    """The context updates of a stream at places (after, upto] of its root log; one that cannot be read changes nothing.

    What was set aside is published here, as the processes of Spark's tasks have nobody else who does it.
    """
    logs, place = fabric.logs, after
    while place < upto and (batch := fabric.read(logs.root(stream), logs.context(stream), place)):
        for stored in batch:
            changes = fabric.quarantine.take(logs.root(stream), stored, decode_context)
            if stored.sequence <= upto:
                yield ContextUpdate(stored.sequence, changes or {}, int(stored.time_s * 1000))
        place = batch[-1].sequence
    fabric.report_quarantine(f"job-{stream}")


def hold(
    fabric: SyncFabric, name: str, version: int, ref: IndexRef | None, held: StreamState | None, context: int
) -> StreamState:
    """The state of a stream under a version with the context log read up to a place, from what is held if possible."""
    if held is None or held.state.base > context or (held.version, held.ref) != (version, ref):
        held = _forward(held, version, ref, context) or _fresh(fabric, name, version, ref)
    held.state.record(read_updates(fabric, name, held.state.head, context))
    return held


def hold_stricter(
    fabric: SyncFabric, name: str, version: int, tolerance: float, held: StreamState | None, context: int
) -> StreamState:
    """The state of the classes that tolerate less alone: a small index, compiled by who first needs it."""
    if held is None or held.version != version or held.state.base > context:
        snapshot = read_snapshot(fabric, version)
        stream = snapshot.deployment.streams[name]
        index = LiveIndex.build(reading_of(stream), grouped(stricter_than(snapshot, name, tolerance).values()))
        held = StreamState(stream, ContextState(index, snapshot.contexts.get(name, 0), time.perf_counter), version)
    held.state.record(read_updates(fabric, name, held.state.head, context))
    return held


def _forward(held: StreamState | None, version: int, ref: IndexRef | None, context: int) -> StreamState | None:
    """What is held, brought to a later version in place; None when it cannot be.

    Deltas are written for the arrays of the files, so only a mapped index takes them.
    """
    if held is None or held.ref is None or ref is None or not held.mapped or held.state.base > context:
        return None
    if held.ref.directory != ref.directory or held.state.head < ref.base:
        return None
    from headgate.matching.compiled.saved import SavedIndexes

    saved = SavedIndexes(Path(ref.directory))
    try:
        steps = saved.steps(ref.version)
        if held.ref.version not in steps:
            return None
        deltas = [saved.delta(each) for each in steps[steps.index(held.ref.version) + 1 :]]
        stream = decode_stream(held.stream.name, saved.document(ref.version)["stream"])
    except (MatchingError, OSError):
        return None  # opening it anew says what is wrong
    for delta in deltas:
        held.state.advance(delta)
    return replace(held, version=version, ref=ref, stream=stream)


def _fresh(fabric: SyncFabric, name: str, version: int, ref: IndexRef | None) -> StreamState:
    trouble = ""
    if ref is not None:
        from headgate.matching.compiled.saved import SavedIndexes

        saved = SavedIndexes(Path(ref.directory))
        try:
            base = int(saved.document(saved.steps(ref.version)[0])["context"])
            stream = decode_stream(name, saved.document(ref.version)["stream"])
            index = saved.open(ref.version, reading_of(stream))
            return StreamState(stream, ContextState(index, base, time.perf_counter), version, ref, mapped=True)
        except (MatchingError, OSError) as error:
            trouble = f"index version {ref.version} is compiled from the catalog: {error}"
    snapshot = read_snapshot(fabric, version)
    state = ContextState(index_of(snapshot, name), snapshot.contexts.get(name, 0), time.perf_counter)
    return StreamState(snapshot.deployment.streams[name], state, version, ref, trouble=trouble)
