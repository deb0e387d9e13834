"""A model of Spark's micro-batches that runs without Spark, on a real checkpoint directory and a real root log.

It plans a batch by writing `offsets/N`, runs it, and notes its end in `commits/N`, in Spark's files and order, and it
starts from what it finds there, as Spark does. Everything of Headgate around it is the real thing: `record.resume`
before it starts, the lists of files, the commit, and the readers of `nats` and `generator`. A batch stages the names of
its rows, so that what was committed can be compared with what was produced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql.streaming.datasource import ReadAllAvailable

from headgate.fabric import SyncFabric
from headgate.model import Stream
from headgate.pipeline.checkpoint import COMPACT_EVERY, FileEntry, SparkCheckpoint, listing_of
from headgate.pipeline.commit import BatchReading, commit
from headgate.pipeline.filelists import FileLists, files_read
from headgate.pipeline.resuming import note, resume
from headgate.pipeline.staged import Staged, StagedRow, encode_staged
from headgate.protocol.records import Pin
from headgate.wire.manifest import Manifest, decode_manifest


class KilledError(Exception):
    """The driver was killed here."""


class ModelSource(Protocol):
    """A source of named rows."""

    def latest(self, start: str | None, checkpoint: SparkCheckpoint) -> str | None:
        """The newest offset, None or the start where there is nothing new."""
        ...

    def read(self, start: str | None, end: str, checkpoint: SparkCheckpoint) -> list[str]:
        """The rows of a range, by name."""
        ...

    def ended(self, end: str) -> None:
        """A batch up to an offset has ended."""
        ...

    def stop(self) -> None:
        """The query has ended."""
        ...


class ReaderSource:
    """A reader of Headgate's own, `nats` or `generator`; `name_of` names a row."""

    def __init__(self, make: Callable[[], Any], name_of: Callable[[dict[str, Any]], str]) -> None:
        self._reader = make()
        self._name_of = name_of

    def latest(self, start: str | None, checkpoint: SparkCheckpoint) -> str | None:  # noqa: ARG002 - files need it
        """What the reader says."""
        before = self._reader.initialOffset() if start is None else json.loads(start)
        after = self._reader.latestOffset(before, ReadAllAvailable())
        return start if after == before else json.dumps(after)

    def read(self, start: str | None, end: str, checkpoint: SparkCheckpoint) -> list[str]:  # noqa: ARG002 - as above
        """What the reader gives."""
        before = self._reader.initialOffset() if start is None else json.loads(start)
        parts = self._reader.partitions(before, json.loads(end))
        return [self._name_of(row) for part in parts for batch in self._reader.read(part) for row in batch.to_pylist()]

    def ended(self, end: str) -> None:
        """Let the reader delete what was committed, where it may."""
        if hasattr(self._reader, "commit"):
            self._reader.commit(json.loads(end))

    def stop(self) -> None:
        """Close the reader's connection."""
        self._reader.stop()


class FileSource:
    """Spark's source of files: each listing is kept in the checkpoint, and a file that was listed is not new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def latest(self, start: str | None, checkpoint: SparkCheckpoint) -> str | None:
        """List the folder; new files become the next listing."""
        last = checkpoint.last_listing(0)
        seen = checkpoint.files(0, last)
        if seen is None:
            raise RuntimeError("Incomplete log file")  # as Spark says
        known = {entry.path for entry in seen}
        new = [path for path in sorted(self._folder.glob("*.txt")) if path.as_uri() not in known]
        if new:
            last += 1
            entries = [FileEntry(path.as_uri(), path.stat().st_mtime_ns // 1_000_000, last) for path in new]
            folder = checkpoint.directory / "sources" / "0"
            folder.mkdir(parents=True, exist_ok=True)
            whole = (last + 1) % COMPACT_EVERY == 0
            lines = ["v1", *(entry.to_json() for entry in ([*seen, *entries] if whole else entries))]
            (folder / (f"{last}.compact" if whole else str(last))).write_text("\n".join(lines))
        return start if last < 0 else json.dumps({"logOffset": last})

    def read(self, start: str | None, end: str, checkpoint: SparkCheckpoint) -> list[str]:
        """The lines of the files of some listings."""
        first, last = listing_of(start), listing_of(end)
        assert first is not None
        assert last is not None
        entries = checkpoint.files(0, last)
        if entries is None:
            raise RuntimeError("Incomplete log file")  # as Spark says
        paths = [Path(entry.path.removeprefix("file://")) for entry in entries if entry.listing > first]
        return [line for path in paths for line in path.read_text().splitlines()]

    def ended(self, end: str) -> None:
        """Nothing is deleted."""

    def stop(self) -> None:
        """Nothing is open."""


@dataclass
class ModelQuery:
    """One start of a stream's query; `accept` is `--new-lineage`."""

    fabric: SyncFabric
    stream: Stream
    directory: Path
    source: ModelSource
    accept: bool = False

    def __post_init__(self) -> None:
        self.checkpoint = SparkCheckpoint(self.directory / "spark")
        self.lineage = resume(self.fabric, self.stream, self.directory, accept=self.accept)
        self.lists = FileLists(self.fabric.fabric, self.stream.name)

    def run(self, batches: int, kill: str = "") -> None:
        """Run what was planned before, then new batches, until nothing is new; `kill` dies in the last one there."""
        batch, start, planned = self._restart()
        for number in range(batches):
            end = planned or self.source.latest(start, self.checkpoint)
            if end is None or end == start:
                return
            if planned is None:
                self._write("offsets", batch, json.dumps({"batchWatermarkMs": 0}), end)
            dies = kill if number == batches - 1 else ""
            if dies == "planned":
                raise KilledError
            self._commit(batch, self.source.read(start, end, self.checkpoint), dies)
            self._write("commits", batch, "{}")
            self.source.ended(end)
            batch, start, planned = batch + 1, end, None

    def _restart(self) -> tuple[int, str | None, str | None]:
        """The next batch, the offset that it starts from, and where it was to end if it was planned before."""
        last = self.checkpoint.last_planned()
        if last < 0:
            return 0, None, None
        offsets = self.checkpoint.offsets(last)
        before = self.checkpoint.offsets(last - 1) if last else None
        if offsets is None or (last and before is None):
            raise RuntimeError(f"batch {last} of the offset log is incomplete")  # as Spark says
        if self.checkpoint.last_committed() == last:
            return last + 1, offsets[0], None
        start = None if before is None or before[0] == "-" else before[0]
        return last, start, offsets[0]

    def _commit(self, batch: int, rows: Sequence[str], dies: str) -> None:
        """Stage and commit as the driver's `Batches` does, without matching."""
        ranges = self.checkpoint.ranges(batch)
        new = files_read(self.checkpoint, ranges)

        async def place(last: Manifest | None) -> int:
            whole = [replace(each, before=None) for each in ranges]
            return await self.lists.append(last, new, lambda: files_read(self.checkpoint, whole))

        told = []
        if rows:
            logs = self.fabric.logs
            sequence = self.fabric.publish(logs.part(self.stream.name), "\n".join(rows).encode())
            told = [StagedRow(kind="part", log_sequence=sequence, evaluated=len(rows), kept=len(rows))]
        if dies == "staged":
            raise KilledError
        staged = Staged.of([encode_staged(told)])
        manifest = commit(
            self.fabric, self.stream.name, self.lineage, batch, Pin(1), staged, BatchReading(ranges, place)
        )
        if dies == "committed":
            raise KilledError
        if manifest is not None:
            note(self.directory, manifest)
            self.fabric.run(self.lists.purge())

    def _write(self, folder: str, batch: int, *lines: str) -> None:
        path = self.checkpoint.directory / folder / str(batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["v1", *lines]))


def committed_rows(fabric: SyncFabric, stream: str) -> tuple[list[str], int]:
    """The names of all committed rows in order, and how many sequence numbers were declared lost."""
    logs, place, names, lost, head = fabric.logs, 0, list[str](), 0, 0
    while batch := fabric.read(logs.root(stream), logs.commit(stream), place):
        place = batch[-1].sequence
        for stored in batch:
            manifest = decode_manifest(stored.data)
            if manifest.after != head:
                raise AssertionError(f"manifest {manifest.batch} begins after {manifest.after}, not after {head}")
            head, lost = manifest.upto, lost + manifest.gaps
            for part in manifest.parts:
                if part.log_sequence:
                    message = fabric.get(logs.root(stream), part.log_sequence)
                    names += message.data.decode().split("\n") if message else []
    return names, lost
