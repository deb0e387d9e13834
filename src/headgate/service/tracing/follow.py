"""Follows sampled rows of a running deployment until something has become of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from fractions import Fraction
from typing import Final

from headgate.client import Client
from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import Crew
from headgate.protocol.acks import read_tally
from headgate.service.tracing.row_trace import RowTrace, is_sampled, trace_of
from headgate.service.why.answer import fate_of
from headgate.service.why.path import HAS, Stop
from headgate.wire.manifest import Manifest, decode_manifest

_NOT_YET: Final = ("in-flight", "waiting")
_LEFT_OUT: Final = ("unmatched", "thinned", "before", "unwanted")
_LOOK_S: Final = 0.2
_AT_A_TIME: Final = 4


class RowFollower:
    """Follows rows of some subscriptions, or of all."""

    def __init__(self, client: Client, share: Fraction, names: Collection[str] = (), patience_s: float = 60.0) -> None:
        """A row is followed for at most `patience_s`; what became of it by then is told."""
        self._client = client
        self._share = share
        self._names = frozenset(names)
        self._patience_s = patience_s
        self._found: asyncio.Queue[RowTrace] = asyncio.Queue()
        self._turns = asyncio.Semaphore(_AT_A_TIME)

    async def run(self) -> AsyncIterator[RowTrace]:
        """The ways of rows that are committed from now on, as they end."""
        snapshot = await self._client.snapshot()
        streams = {
            each.stream
            for name, each in snapshot.deployment.subscriptions.items()
            if not self._names or name in self._names
        }
        async with Crew() as crew:
            for stream in sorted(streams):
                crew.spawn(self._follow(stream, crew))
            while True:
                yield await self._found.get()

    async def _follow(self, stream: str, crew: Crew) -> None:
        fabric, logs = self._client.fabric, self._client.fabric.logs
        log, subject = logs.root(stream), logs.commit(stream)
        last = await fabric.last(log, subject)
        async for batch in fabric.follow(log, subject, last.sequence if last else 0):
            for stored in batch:
                manifest = fabric.quarantine.take(log, stored, decode_manifest)
                if manifest is None:
                    continue
                rows = range(manifest.after + 1, manifest.upto + 1)
                for seq in [seq for seq in rows if is_sampled(stream, seq, self._share)]:
                    crew.spawn(self._trace(manifest, seq))

    async def _trace(self, manifest: Manifest, seq: int) -> None:
        snapshot = await self._client.tables.snapshot(manifest.version)
        for name, each in snapshot.deployment.subscriptions.items():
            if each.stream == manifest.stream and (not self._names or name in self._names):
                with noted(SERVICE, f"row {seq} to {name} was not followed", HeadgateError):
                    await self._trace_to(name, manifest, seq)

    async def _trace_to(self, name: str, manifest: Manifest, seq: int) -> None:
        deadline_s = time.monotonic() + self._patience_s
        seen: dict[int, Stop] = {}
        while True:
            snapshot = await self._client.snapshot()
            if name not in snapshot.subscription_ids:
                return
            async with self._turns:
                fate = await fate_of(self._client.fabric, self._client.tables, snapshot, name, manifest, seq)
            if fate.fate in _LEFT_OUT:
                return
            # What a log had is purged once it was passed on: the first look counts.
            seen |= {place: stop for place, stop in enumerate(fate.path) if stop.state == HAS and place not in seen}
            if fate.fate not in _NOT_YET or time.monotonic() > deadline_s:
                break
            await asyncio.sleep(_LOOK_S)
        fate = replace(fate, path=tuple(seen.get(place, stop) for place, stop in enumerate(fate.path)))
        tally = await read_tally(self._client.fabric, snapshot.subscription_ids[name])
        event_time = snapshot.deployment.streams[manifest.stream].event_time
        self._found.put_nowait(trace_of(fate, manifest.time_ms, event_time, tally.time_ms or None))
