"""Dead letters of a stream, read from the root log: only those that a manifest names, in its order."""

from __future__ import annotations

import pyarrow as pa

from headgate.fabric import Fabric
from headgate.wire.frame import decode_frame
from headgate.wire.manifest import decode_manifest


async def read_dead_letters(fabric: Fabric, stream: str) -> list[str]:
    """Every dead letter that the root log still holds, oldest first, each as one JSON object with its reason."""
    logs = fabric.logs
    lines: list[str] = []
    place = 0
    while batch := await fabric.read(logs.root(stream), logs.commit(stream), place):
        place = batch[-1].sequence
        for stored in batch:
            for part in decode_manifest(stored.data).dead_parts:
                message = await fabric.get(logs.root(stream), part.log_sequence)
                if message is not None:
                    frame = decode_frame(message.data, "x")
                    text = pa.decompress(frame.sections[0], frame.header["size"], "zstd", asbytes=True)
                    lines.extend(bytes(text).decode().split("\n"))
    return lines
