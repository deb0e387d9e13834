"""The files that a source of files has given, kept in the root log, so that a checkpoint without them can be mended.

A source of files knows what is new by the list of all files that it gave before. Each batch appends the files that it
read to `root.STREAM.files`; a list names the one before it, and a manifest names the newest. Lists that no manifest
leads to, of a batch that was not committed, are garbage. Every 64th list repeats everything, so that older ones go.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from headgate.pipeline.checkpoint import FileEntry, SparkCheckpoint, listing_of
from headgate.protocol.commits import LineageError
from headgate.protocol.port import LogPort
from headgate.wire.frame import decode_frame, encode_frame
from headgate.wire.manifest import Manifest, SourceRange

Files = Mapping[int, Sequence[FileEntry]]
"""By the number of a source, the files that it gave."""

WHOLE_EVERY: Final = 64
"""A list of everything is written after so many lists."""


class FileListError(LineageError):
    """A list of files that a manifest leads to is gone from the root log."""


def files_read(checkpoint: SparkCheckpoint, ranges: Sequence[SourceRange]) -> dict[int, list[FileEntry]]:
    """The files of a batch's ranges, for those of its sources that are of files."""
    found: dict[int, list[FileEntry]] = {}
    for source, each in enumerate(ranges):
        start, end = listing_of(each.before), listing_of(each.after)
        if start is None or end is None:
            continue
        entries = checkpoint.files(source, end)
        if entries is None:
            raise LineageError(
                f"the list of files that the running batch reads cannot be read: listing {end} of source {source}",
                where=str(checkpoint.directory),
                hint="the stream is started again with a checkpoint from the root log",
            )
        found[source] = [entry for entry in entries if entry.listing > start]
    return found


class FileLists:
    """Appends lists of files to a stream's root log; one per driver and stream."""

    def __init__(self, port: LogPort, stream: str) -> None:
        self._port = port
        self._stream = stream
        self._since_whole: int | None = None
        self._whole_place = self._whole_before = 0

    async def append(self, last: Manifest | None, new: Files, everything: Callable[[], Files]) -> int:
        """Append what a batch read after those of the last manifest; returns the place for the batch's own manifest.

        `everything` gives all files up to and with the batch's, for the lists that repeat them.
        """
        before = 0 if last is None else last.files
        if not any(new.values()):
            return before
        if self._since_whole is None:
            chain = [1 async for _ in _chain(self._port, self._stream, before)] if before else ()
            self._since_whole = len(chain) if before else WHOLE_EVERY
        whole = not before or self._since_whole >= WHOLE_EVERY
        place = 0 if whole else before
        for number, data in enumerate(_packed(everything() if whole else new, int(self._port.max_payload * 0.5))):
            header = {"before": place, "size": len(data)}
            frame = encode_frame("f", header, [pa.compress(data, codec="zstd", asbytes=True)])
            place = await self._port.publish(self._port.logs.files(self._stream), frame)
            if whole and not number:
                self._whole_place = place
        self._since_whole = 1 if whole else self._since_whole + 1
        return place

    async def purge(self) -> None:
        """Free old lists; to be called when the manifest of the newest is stored.

        Those before the last list of everything but one go, so that a log whose end is cut off has what its last
        manifest leads to.
        """
        if self._whole_place != self._whole_before:
            if self._whole_before:
                logs = self._port.logs
                await self._port.purge(logs.root(self._stream), logs.files(self._stream), self._whole_before)
            self._whole_before = self._whole_place


async def read_files(port: LogPort, stream: str, place: int) -> dict[int, list[FileEntry]]:
    """All files that were read up to the list at a place, by source, in the order of their listings."""
    found: dict[int, dict[FileEntry, None]] = {}
    for lines in reversed([lines async for lines in _chain(port, stream, place)]):
        for line in lines:
            document = json.loads(line)
            found.setdefault(int(document.pop("source")), {})[FileEntry.of(document)] = None
    return {source: list(entries) for source, entries in found.items()}


async def _chain(port: LogPort, stream: str, place: int) -> AsyncIterator[list[str]]:
    """The lines of each list from a place back to the list of everything that it goes on from, newest first."""
    while place:
        stored = await port.get(port.logs.root(stream), place)
        if stored is None:
            raise FileListError(
                f"the list of files that stream {stream!r} has read is incomplete: message {place} of "
                f"{port.logs.root(stream).name} is gone",
                hint="restore the NATS store; or start with --new-lineage to believe the checkpoint; or delete the "
                "checkpoint too, to read all files again",
            )
        frame = decode_frame(stored.data, "f")
        text = pa.decompress(frame.sections[0], frame.header["size"], "zstd", asbytes=True)
        yield bytes(text).decode().split("\n")
        place = int(frame.header["before"])


def _packed(files: Files, room: int) -> Iterator[bytes]:
    """The lines of all files, in pieces that fit a message."""
    piece: list[bytes] = []
    size = 0
    for source, entries in files.items():
        for entry in entries:
            document = {"source": source, "path": entry.path, "timestamp": entry.timestamp, "batchId": entry.listing}
            line = json.dumps(document, separators=(",", ":")).encode()
            if piece and size + len(line) > room:
                yield b"\n".join(piece)
                piece, size = [], 0
            piece.append(line)
            size += len(line) + 1
    if piece:
        yield b"\n".join(piece)
