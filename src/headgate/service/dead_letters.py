"""Dead letters of a stream, read from the root log: only those that a manifest names, in its order."""

from __future__ import annotations

import pyarrow as pa

from headgate.fabric import Fabric
from headgate.wire.frame import decode_frame
from headgate.wire.manifest import decode_manifest


def read_letters(data: bytes) -> list[str]:
    """The lines of a part of dead letters."""
    frame = decode_frame(data, "x")
    text = pa.decompress(frame.sections[0], frame.header["size"], "zstd", asbytes=True)
    return bytes(text).decode().split("\n")


async def read_dead_letters(fabric: Fabric, stream: str) -> list[str]:
    """Every dead letter that the root log still holds, oldest first, each as one JSON object with its reason."""
    logs = fabric.logs
    log = logs.root(stream)
    lines: list[str] = []
    place = 0
    while batch := await fabric.read(log, logs.commit(stream), place):
        place = batch[-1].sequence
        for stored in batch:
            manifest = fabric.quarantine.take(log, stored, decode_manifest)
            for part in () if manifest is None else manifest.dead_parts:
                message = await fabric.get(log, part.log_sequence)
                if message is not None:
                    lines.extend(fabric.quarantine.take(log, message, read_letters) or ())
    return lines
