"""Recent rows of streams, and rows that were drawn from them, read once for several askers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

from headgate.fabric import Fabric
from headgate.model import Stream
from headgate.service.previewing import RecentRows, read_recent
from headgate.service.sampled_share import SampledShare, read_sample, sampled_share
from headgate.wire.row_sample import RowSample
from headgate.wire.snapshot import Snapshot

_FRESH_S: Final = 5.0
_KEPT: Final = 16
_KEPT_SHARES: Final = 1000


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


@dataclass(slots=True)
class _Drawn:
    """A stream's sample, when it was read, and what it said of subscriptions of one revision and its contexts."""

    read_s: float
    sample: RowSample | None
    shares: dict[tuple[str, int, int], SampledShare | None] = field(default_factory=dict)


class SampledShares:
    """Which share of its stream's rows a subscription matches, by the rows that were drawn last."""

    def __init__(self) -> None:
        self._drawn: dict[str, _Drawn] = {}
        self._turn = asyncio.Lock()

    async def get(self, fabric: Fabric, snapshot: Snapshot, name: str) -> SampledShare | None:
        """The share of one subscription, None where nothing was drawn; worked out once for a sample."""
        subscription = snapshot.deployment.subscriptions[name]
        stream = snapshot.deployment.streams[subscription.stream]
        key = (name, snapshot.revision, snapshot.contexts.get(stream.name, 0))
        async with self._turn:
            now_s = time.monotonic()
            drawn = self._drawn.get(stream.name)
            if drawn is None or now_s > drawn.read_s + _FRESH_S:
                drawn = _Drawn(now_s, await read_sample(fabric, stream))
                self._drawn = {each: old for each, old in self._drawn.items() if now_s <= old.read_s + _FRESH_S}
                if len(self._drawn) < _KEPT:
                    self._drawn[stream.name] = drawn
            if key not in drawn.shares:
                found = await asyncio.to_thread(sampled_share, subscription, stream, drawn.sample)
                if len(drawn.shares) >= _KEPT_SHARES:
                    drawn.shares.clear()
                drawn.shares[key] = found
            return drawn.shares[key]
