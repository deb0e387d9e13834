"""Where a stream goes on after a start: the root log is the record of what was read, the checkpoint only a hint.

Before a query starts, the last manifest is compared with the checkpoint. Where the checkpoint is behind it, or is
missing, cut off or of another state, it is written anew from the manifest, and the query goes on with the first row
that was not committed. Where the checkpoint is ahead of the root log, rows that were committed are gone from the log:
the stream is refused, or with `--new-lineage` goes on and declares them. Nothing is decided by a batch's number alone.
"""

from __future__ import annotations

import shutil
import sys
import time
import uuid
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Final

import numpy as np

from headgate.fabric import SyncFabric
from headgate.model import Stream
from headgate.pipeline.checkpoint import SparkCheckpoint, listing_of
from headgate.pipeline.filelists import FileListError, FileLists, Files, files_read, read_files
from headgate.protocol.commits import LineageError, same_offsets
from headgate.protocol.published import head_revision
from headgate.protocol.records import Record
from headgate.wire.frame import WireError
from headgate.wire.manifest import Manifest, PartRef, decode_manifest, encode_manifest
from headgate.wire.record import Count

FILE_FORMATS: Final = frozenset({"csv", "json", "xml", "text", "orc", "parquet", "avro", "binaryfile"})
"""Sources of files: the root log keeps their lists of files."""

REBUILT: Final = FILE_FORMATS | {"generator", "mqtt", "nats", "nats-core", "netcdf", "zarr"}
"""Sources whose checkpoint can be written anew: the offsets in a manifest, and lists of files, say all there is."""

FORGETFUL: Final = frozenset({"socket"})
"""Sources that keep nothing and whose offsets count from each connection: every start of a query begins anew."""


class CheckpointVerdict(Enum):
    """What to do with a checkpoint before a query starts."""

    KEEP = "the checkpoint says what the last manifest says"
    REWRITE = "the checkpoint is written anew from the last manifest"
    TAKE = "the checkpoint is taken as it is, although the root log does not lead up to it"


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """What there is of a checkpoint: its lineage (None for none) and the newest batch that it says was committed.

    It `agrees` if what it says of the last manifest's batch is what that manifest says.
    """

    lineage: str | None
    committed: int
    agrees: bool = True


def judge(
    stream: str, source: str, last: Manifest | None, found: CheckpointState, *, accept: bool
) -> CheckpointVerdict:
    """What to do with a checkpoint, or a `LineageError` that says what happened and what to restore."""
    if last is None:
        if found.committed < 0 or accept:
            return CheckpointVerdict.TAKE
        raise _ahead(stream, found.committed, "has no committed batch")
    if found.lineage != last.lineage and (found.lineage is not None or accept):
        if accept:
            return CheckpointVerdict.TAKE
        raise LineageError(
            f"stream {stream!r} was committed by the checkpoint {last.lineage}, this one is {found.lineage}",
            hint="restore its own checkpoint directory; or delete this one, and it is made anew from the root log; or "
            "start with --new-lineage to read with this checkpoint, which may repeat or leave out rows",
        )
    if found.committed > last.batch:
        if accept:
            return CheckpointVerdict.TAKE
        raise _ahead(stream, found.committed, f"ends with batch {last.batch}")
    if found.agrees or not last.ranges:
        return CheckpointVerdict.KEEP
    if source in REBUILT:
        return CheckpointVerdict.REWRITE
    raise LineageError(
        f"the checkpoint of stream {stream!r} does not say what its last commit, batch {last.batch}, has read, and "
        f"from a source {source!r} it cannot be made anew",
        hint="restore the checkpoint directory as it was after that batch; or delete it and start with --new-lineage, "
        "which reads the source from its start",
    )


def _ahead(stream: str, committed: int, log_state: str) -> LineageError:
    return LineageError(
        f"the checkpoint of stream {stream!r} says that batch {committed} was committed, but its root log {log_state}: "
        "the log was restored from an older state or made anew, and the rows between are gone from it",
        hint="restore the NATS store that belongs to the checkpoint; or start with --new-lineage, which goes on after "
        "the checkpoint and declares the rows between as lost",
    )


def resume(
    fabric: SyncFabric, stream: Stream, directory: Path, *, accept: bool = False, compact_every: int = 10
) -> str:
    """Bring a stream's checkpoint directory into agreement with its root log before its query starts.

    Returns the lineage of its batches. With `accept`, a checkpoint that the root log does not lead up to is taken as it
    is: a manifest without rows says so in the root log, and declares the rows that the log has lost. The checkpoint of
    a source that is forgetful is never used again.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if stream.source.format in FORGETFUL:
        shutil.rmtree(directory / "spark", ignore_errors=True)
        (directory / "lineage").unlink(missing_ok=True)
        accept = True
    logs, checkpoint = fabric.logs, SparkCheckpoint(directory / "spark")
    stored = fabric.last(logs.root(stream.name), logs.commit(stream.name))
    last = decode_manifest(stored.data) if stored else None
    known = _lineage(directory)
    files: Files = {}
    try:
        if last is not None and last.files and known in (None, last.lineage):
            files = fabric.run(read_files(fabric.fabric, stream.name, last.files))
        found = CheckpointState(known, checkpoint.last_committed(), last is None or _agrees(checkpoint, last, files))
        verdict = judge(stream.name, stream.source.format, last, found, accept=accept)
    except FileListError:
        if not accept:
            raise
        found, verdict = CheckpointState(known, checkpoint.last_committed()), CheckpointVerdict.TAKE
    if verdict is CheckpointVerdict.TAKE or last is None:
        # The books tell batches of one lineage apart by their number, so numbers that were used need another one.
        used = last is not None and known == last.lineage and found.committed <= last.batch
        lineage = _make_lineage(directory, None if used else known)
        if found.committed < 0 and not _readable(checkpoint, -1):
            shutil.rmtree(checkpoint.directory, ignore_errors=True)  # a first batch that was cut off is planned again
        if last is not None or found.committed >= 0:
            ours = last is None or known == last.lineage
            lost_rows = max(0, _noted_rows(directory) - (last.upto if last else 0)) if ours else 0
            taken = _taken(fabric, stream.name, checkpoint, last, lineage, lost_rows)
            fabric.publish(logs.commit(stream.name), encode_manifest(taken), expect=stored.sequence if stored else 0)
        return lineage
    _make_lineage(directory, last.lineage)
    if verdict is CheckpointVerdict.REWRITE:
        checkpoint.rewrite(last.batch, last.ranges, files, compact_every)
        print(
            f"headgate: the checkpoint of stream {stream.name!r} did not fit its root log and was made anew from batch "
            f"{last.batch} there",
            file=sys.stderr,
            flush=True,
        )
    elif last.ranges and stream.source.format in REBUILT:
        checkpoint.end(last.batch)
    return last.lineage


def _taken(
    fabric: SyncFabric, stream: str, checkpoint: SparkCheckpoint, last: Manifest | None, lineage: str, lost_rows: int
) -> Manifest:
    """The manifest of a checkpoint that is taken as it is: its last batch without rows, and how many rows are gone."""
    batch = checkpoint.last_committed()
    after = checkpoint.offsets(batch) if batch >= 0 else ()
    if after is None:
        raise LineageError(
            f"the checkpoint of stream {stream!r} says that batch {batch} has ended, but its offsets cannot be read",
            where=str(checkpoint.directory),
            hint="restore the directory; or delete it, and it is made anew from the root log",
        )
    ranges = checkpoint.ranges(batch) if batch >= 0 else ()
    files = files_read(checkpoint, [replace(each, before=None) for each in ranges])
    none = np.zeros(0, np.uint64)
    return Manifest(
        stream=stream,
        lineage=lineage,
        batch=batch,
        version=last.version if last else fabric.run(head_revision(fabric.fabric)) or 0,
        after=last.upto if last else 0,
        parts=(PartRef(0, lost_rows, 0),) if lost_rows else (),
        class_ids=none,
        class_counts=none,
        gaps=lost_rows,
        time_ms=int(time.time() * 1000),
        context=last.context if last else 0,
        untold=last.told if last is not None and not last.evaluated else None,
        ranges=ranges,
        files=fabric.run(FileLists(fabric.fabric, stream).append(None, files, lambda: files)),
    )


def _agrees(checkpoint: SparkCheckpoint, last: Manifest, files: Files) -> bool:
    """Whether a checkpoint says what was read up to the last manifest, and no file of a later batch is cut off."""
    offsets = checkpoint.offsets(last.batch)
    if offsets is None or not same_offsets(offsets, [each.after for each in last.ranges]):
        return False
    if last.batch and checkpoint.offsets(last.batch - 1) is None:  # without it Spark does not start
        return False
    for source, each in enumerate(last.ranges):
        upto = listing_of(each.after)
        if upto is None:
            continue
        listed = checkpoint.files(source, max(upto, checkpoint.last_listing(source)))
        if listed is None or {entry for entry in listed if entry.listing <= upto} != set(files.get(source, ())):
            return False
    return _readable(checkpoint, last.batch)


def _readable(checkpoint: SparkCheckpoint, after: int) -> bool:
    """Whether the offsets of every batch after one are whole."""
    return all(checkpoint.offsets(batch) is not None for batch in range(after + 1, checkpoint.last_planned() + 1))


# What lies beside Spark's own files


def _lineage(directory: Path) -> str | None:
    """The identity of a checkpoint directory, None where it has none or the file was cut off."""
    path = directory / "lineage"
    return (path.read_text(encoding="utf-8").strip() or None) if path.exists() else None


def _make_lineage(directory: Path, known: str | None) -> str:
    lineage = known or uuid.uuid4().hex
    if _lineage(directory) != lineage:
        fresh = directory / "lineage.new"
        fresh.write_text(lineage, encoding="utf-8")
        fresh.replace(directory / "lineage")
    return lineage


class CommitNote(Record, frozen=True, kw_only=True):
    """The last commit, as noted beside a checkpoint."""

    kind_name = "commit-note"
    batch: Count
    upto: Count


def note(directory: Path, manifest: Manifest) -> None:
    """Note a commit beside the checkpoint; it is needed only where the root log has lost it."""
    fresh = directory / "committed.new"
    fresh.write_bytes(CommitNote(batch=manifest.batch, upto=manifest.upto).encode())
    fresh.replace(directory / "committed")


def _noted_rows(directory: Path) -> int:
    """The last sequence number that was noted, 0 where nothing was."""
    try:
        return CommitNote.decode((directory / "committed").read_bytes()).upto
    except (OSError, WireError):
        return 0
