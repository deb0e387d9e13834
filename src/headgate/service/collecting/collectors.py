"""Runs a collector for each stream whose source is a broker that keeps no positions, and says how each is doing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Final

from headgate.diagnostics import SERVICE, noted, stream_log
from headgate.errors import HeadgateError
from headgate.fabric import Crew, Fabric, FabricError, cancel_all
from headgate.model import Deployment, Source
from headgate.pipeline.sources.collected_options import CollectedSettings
from headgate.protocol.reports import CollectorReport
from headgate.service.collecting.collector_queue import CollectorQueue
from headgate.service.collecting.mqtt_session import MqttSession
from headgate.service.collecting.nats_listener import NatsListener

_AGAIN_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
_SAY_S: Final = 5.0


class Collector:
    """Collects the messages of one stream, and connects again for as long as it runs."""

    def __init__(self, fabric: Fabric, stream: str, source: Source) -> None:
        self._fabric = fabric
        self._stream = stream
        self._settings = CollectedSettings.of(source.format, source.options)
        self.queue = CollectorQueue(fabric, stream)
        name = f"headgate-{fabric.logs.namespace}-{stream}"
        self.reader: MqttSession | NatsListener = (
            MqttSession(self._settings, name, self.queue)
            if source.format == "mqtt"
            else NatsListener(self._settings, self.queue)
        )
        self.connected = asyncio.Event()
        self._breaks = 0
        self._since_ms = int(time.time() * 1000)
        self._error: str | None = None

    async def run(self) -> None:
        """Collect until cancelled."""
        await self._fabric.ensure(self._fabric.logs.input(self._stream))
        async with Crew() as crew:
            crew.spawn(self.queue.run())
            crew.spawn(self._tell())
            crew.spawn(self._read())
            await crew.wait()

    async def _read(self) -> None:
        failed = 0
        while True:
            try:
                await self.reader.read(self.connected)
            except HeadgateError as error:
                failed = 0 if self.connected.is_set() else failed + 1
                self._breaks += self.connected.is_set()
                if self.connected.is_set() or self._error != error.message:
                    stream_log(self._stream).warning("%s; tried again", error)
                self._error = error.message
                self._since_ms = int(time.time() * 1000)
                self.connected.clear()
                await self._say()
            await asyncio.sleep(_AGAIN_S[min(failed, len(_AGAIN_S) - 1)])

    async def _tell(self) -> None:
        """Say how it is going: at once when a connection is made, and now and then."""
        while True:
            was = self.connected.is_set()
            if was:
                await asyncio.sleep(_SAY_S)
            else:
                await _until_done(self.connected.wait(), _SAY_S)
            if self.connected.is_set() and not was:
                self._error, self._since_ms = None, int(time.time() * 1000)
            await self._say()

    async def _say(self) -> None:
        report = CollectorReport(
            state="connected" if self.connected.is_set() else "not connected",
            place=self._settings.place,
            stored=self.queue.stored,
            dropped=self.queue.dropped,
            waiting=self.queue.waiting,
            breaks=self._breaks,
            since_ms=self._since_ms,
            error=self._error,
            time_ms=int(time.time() * 1000),
        )
        with noted(SERVICE, "could not say how a source is doing", FabricError):
            await self._fabric.publish(self._fabric.logs.stats("collector", self._stream), report.encode())


async def _until_done(work: Coroutine[Any, Any, object], most_s: float) -> None:
    """Wait until something is done, but no longer than that."""
    task = asyncio.create_task(work)
    await asyncio.wait([task], timeout=most_s)
    task.cancel()


class Collectors:
    """The collectors of a deployment."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._running: dict[str, tuple[Source, asyncio.Task[None]]] = {}
        self.by_stream: dict[str, Collector] = {}

    async def follow(self, deployment: Deployment) -> None:
        """Run the collectors that a revision asks for, and end the others."""
        wanted = {name: each.source for name, each in deployment.streams.items() if each.source.collected}
        for name in [name for name, (source, _) in self._running.items() if wanted.get(name) != source]:
            await cancel_all([self._running.pop(name)[1]])
            del self.by_stream[name]
        for name in wanted.keys() - self._running.keys():
            collector = self.by_stream[name] = Collector(self._fabric, name, wanted[name])
            self._running[name] = wanted[name], asyncio.create_task(collector.run(), name=f"collector {name}")

    async def close(self) -> None:
        """End all of them."""
        await cancel_all([task for _, task in self._running.values()])
        self._running.clear()
