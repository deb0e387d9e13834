"""Recent rows of streams, read once for several askers."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from headgate.fabric import Fabric
from headgate.model import Stream
from headgate.service.previewing import RecentRows, read_recent

_FRESH_S: Final = 5.0
_KEPT: Final = 16


class RecentStreams:
    """Recent rows of the streams that somebody asked about in the last seconds."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, RecentRows]] = {}
        self._turn = asyncio.Lock()

    async def get(self, fabric: Fabric, stream: Stream) -> RecentRows:
        """The recent rows of a stream, a few seconds old at most; read by one asker at a time."""
        async with self._turn:
            now_s = time.monotonic()
            found = self._known.get(stream.name)
            if found is None or now_s > found[0] + _FRESH_S:
                found = now_s, await read_recent(fabric, stream)
                self._known = {name: each for name, each in self._known.items() if now_s <= each[0] + _FRESH_S}
                if len(self._known) < _KEPT:
                    self._known[stream.name] = found
            return found[1]
