"""The files in which nats-server keeps a log, read and damaged as a failing disk does. The server must not be running.

A block (`1.blk`, `2.blk`, ...) is a sequence of records: length 4 (its highest bit says that there are headers),
sequence 8, time 8, length of the subject 2, subject, headers and payload, checksum 8; all numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headgate.wire.logs import Log

_HEAD: Final = struct.Struct("<IQqH")
_HAS_HEADERS: Final = 1 << 31
_CHECKSUM: Final = 8


def _blocks(server_dir: Path, log: Log) -> list[Path]:
    """The blocks of a log, oldest first."""
    (directory,) = (found for found in (server_dir / "data").rglob(log.name) if found.parent.name == "streams")
    return sorted((directory / "msgs").glob("*.blk"), key=lambda block: int(block.stem))


def _records(block: bytes | bytearray) -> Iterator[tuple[int, int, int]]:
    """Sequence, start and end of every record; deletions are records too, with high bits in their sequence."""
    start = 0
    while start < len(block):
        length, sequence, _, _ = _HEAD.unpack_from(block, start)
        end = start + (length & ~_HAS_HEADERS)
        yield sequence, start, end
        start = end


def cut_tail(server_dir: Path, log: Log, count: int, *, index: bool = False) -> None:
    """Cut the last records off a log, as if they had never reached the disk; nor had the index, unless `index`."""
    block = _blocks(server_dir, log)[-1]
    data = block.read_bytes()
    starts = [start for _, start, _ in _records(data)]
    block.write_bytes(data[: starts[-count]])
    if not index:
        (block.parent / "index.db").unlink(missing_ok=True)


def damage(server_dir: Path, log: Log, sequence: int) -> bool:
    """Flip a bit of a stored message; False when there is none with this sequence."""
    for block in _blocks(server_dir, log):
        data = bytearray(block.read_bytes())
        for found, _, end in _records(data):
            if found == sequence:
                data[end - _CHECKSUM - 1] ^= 1
                block.write_bytes(data)
                return True
    return False
