"""The files of a Spark checkpoint that say what a query has read, read and written without Spark.

Spark keeps, below `spark/`: `offsets/N`, the offsets of each source at the end of batch N, written before the batch
runs; `commits/N`, written after it; and for sources of files `sources/I/K`, the files that were found in the source's
K-th listing, of which every tenth (`K.compact`) repeats all before it. Spark does not sync any of them to the disk, so
a power cut can take the newest away or leave them empty. Headgate therefore treats them as a hint that can be written
anew from the root log (`pipeline.record`).
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headgate.wire.manifest import SourceRange

_COMMIT: Final = 'v1\n{"nextBatchWatermarkMs":0}'
_COMPACT: Final = ".compact"
COMPACT_EVERY: Final = 10
"""How many listings of files Spark puts together, by default."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file that a source of files has given: its URI, its time of change and the number of the listing."""

    path: str
    timestamp: int
    listing: int

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> FileEntry:
        """Read Spark's form."""
        return cls(str(document["path"]), int(document["timestamp"]), int(document["batchId"]))

    def to_json(self) -> str:
        """Spark's form."""
        document = {"path": self.path, "timestamp": self.timestamp, "batchId": self.listing}
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def listing_of(offset: str | None) -> int | None:
    """The number of the last listing in the offset of a source of files; -1 at its start, None for other sources.

    >>> listing_of('{"logOffset":9}'), listing_of('{"row": 3}'), listing_of(None)
    (9, None, -1)
    """
    if offset is None:
        return -1
    try:
        parsed = json.loads(offset)
    except ValueError:
        return None
    found = parsed.get("logOffset") if isinstance(parsed, dict) else None
    return found if isinstance(found, int) else None


class SparkCheckpoint:
    """The checkpoint of one query. What cannot be read counts as not there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def offsets(self, batch: int) -> tuple[str, ...] | None:
        """The offset of each source at the end of a batch, None where the file is missing or cut off."""
        lines = _lines(self.directory / "offsets" / str(batch))
        # The version, the query's settings, then a line for each source; a source that gave nothing has a dash.
        if len(lines) < 3 or lines[0] != "v1" or not all(map(_whole, lines[1:])):
            return None
        return tuple(lines[2:])

    def last_planned(self) -> int:
        """The newest batch that has offsets, -1 where none has."""
        return max(_numbers(self.directory / "offsets"), default=-1)

    def last_committed(self) -> int:
        """The newest batch that ended, -1 where none did."""
        return max(_numbers(self.directory / "commits"), default=-1)

    def ranges(self, batch: int, before: Sequence[str | None] = ()) -> tuple[SourceRange, ...]:
        """What a batch reads of each source. Where the offsets of the batch before it are gone, `before` counts."""
        after = self.offsets(batch)
        if after is None:
            raise FileNotFoundError(f"{self.directory}/offsets/{batch} is missing or cut off")
        earlier = (self.offsets(batch - 1) or before) if batch else ()
        starts = [*earlier, *([None] * len(after))][: len(after)]
        return tuple(
            SourceRange(None if start == "-" else start, end) for start, end in zip(starts, after, strict=True)
        )

    def last_listing(self, source: int) -> int:
        """The number of the newest listing of a source of files, -1 where there is none."""
        folder = self.directory / "sources" / str(source)
        return max([*_numbers(folder), *_numbers(folder, _COMPACT)], default=-1)

    def files(self, source: int, upto: int) -> list[FileEntry] | None:
        """All files of a source's listings 0 to `upto`, in order; None where a listing is missing or cut off."""
        folder = self.directory / "sources" / str(source)
        if upto < 0:
            return []
        whole = max((number for number in _numbers(folder, _COMPACT) if number <= upto), default=-1)
        found: list[FileEntry] = []
        for number in range(max(whole, 0), upto + 1):
            lines = _lines(folder / (f"{number}{_COMPACT}" if number == whole else str(number)))
            if not lines or lines[0] != "v1" or not all(map(_whole, lines[1:])):
                return None
            found += [FileEntry.of(json.loads(line)) for line in lines[1:]]
        return found

    def end(self, batch: int) -> None:
        """Note that a batch ended, so that Spark does not run it again."""
        _write(self.directory / "commits" / str(batch), _COMMIT)

    def rewrite(
        self,
        batch: int,
        ranges: Sequence[SourceRange],
        files: Mapping[int, Iterable[FileEntry]] | None = None,
        compact_every: int = COMPACT_EVERY,
    ) -> None:
        """Make the checkpoint say that `batch` was the last, with these ranges and files; the rest is deleted."""
        for name in ("offsets", "commits", "sources"):
            shutil.rmtree(self.directory / name, ignore_errors=True)
        _write(self.directory / "metadata", json.dumps({"id": str(uuid.uuid4())}))
        for source, entries in (files or {}).items():
            upto = listing_of(ranges[source].after)
            assert upto is not None
            self._write_files(source, list(entries), upto, compact_every)
        settings = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}, separators=(",", ":"))
        starts, ends = [each.before or "-" for each in ranges], [each.after for each in ranges]
        for number, offsets in ((batch - 1, starts), (batch, ends)):
            if number >= 0:  # Spark looks at the last two
                _write(self.directory / "offsets" / str(number), "\n".join(["v1", settings, *offsets]))
                self.end(number)

    def _write_files(self, source: int, entries: list[FileEntry], upto: int, compact_every: int) -> None:
        folder = self.directory / "sources" / str(source)
        whole = (upto + 1) // compact_every * compact_every - 1
        for number in range(max(whole, 0), upto + 1):
            wanted = [entry for entry in entries if entry.listing == number or entry.listing < number == whole]
            name = f"{number}{_COMPACT}" if number == whole else str(number)
            _write(folder / name, "\n".join(["v1", *(entry.to_json() for entry in wanted)]))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except (OSError, UnicodeDecodeError):
        return []


def _whole(line: str) -> bool:
    """Whether a line is a whole JSON value, or the dash of a source that has no offset yet."""
    if line == "-":
        return True
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _numbers(folder: Path, suffix: str = "") -> list[int]:
    names = [path.name.removesuffix(suffix) for path in folder.glob(f"*{suffix}")] if folder.is_dir() else []
    return [int(name) for name in names if name.isdigit()]


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all, without the checksum beside it that Spark would compare it with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
