"""Where a subscription that is asked for starts in a stream that keeps its rows."""

from __future__ import annotations

from typing import Any

from headgate.model.start import parse_start
from headgate.protocol.port import LogPort
from headgate.relay.history import resolve_start
from headgate.wire.snapshot import Snapshot


async def resolved(port: LogPort, snapshot: Snapshot | None, document: Any) -> Any:
    """A subscription's document, with a start in the past as the number of the first row that is kept from there on."""
    if snapshot is None or not isinstance(document, dict) or "start" not in document:
        return document
    stream = snapshot.deployment.streams.get(str(document.get("stream")))
    if stream is None:
        return document
    return {**document, "start": await resolve_start(port, stream, parse_start(document["start"]))}
