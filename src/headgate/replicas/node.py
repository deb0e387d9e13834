"""A site's part in serving gridded streams, beside its relay: asked by readers and other sites, at home and here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headgate.diagnostics import noted, site_log
from headgate.fabric import Fabric, FabricError, cancel_all
from headgate.fabric.placed import HostFabric
from headgate.fabric.serving import MOST_REQUESTS, RequestCall
from headgate.protocol.reports import GridReport
from headgate.relay.tables import Tables

if TYPE_CHECKING:
    from headgate.replicas.served_stream import ServedStream
    from headgate.wire.snapshot import Snapshot

_LOOK_S: Final = 1.0


class ReplicaNode:
    """Serves what the site owns of gridded streams; does nothing where it owns nothing. `run` works until cancelled.

    `reading` is the connection by which the site's own parts are read, where that is another one than `fabric`.
    """

    def __init__(
        self,
        fabric: Fabric,
        site: str,
        tables: Tables | None = None,
        *,
        reading: Fabric | None = None,
        connecting: Mapping[str, Any] | None = None,
    ) -> None:
        self._fabric, self._site = fabric, site
        self._tables = tables or Tables(fabric)
        self._reading = reading or fabric
        self._connecting = connecting
        self.streams: dict[str, ServedStream] = {}
        self.problems: Mapping[str, str] = {}
        self._handling: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Follow what the site is to serve."""
        tasks: list[asyncio.Task[None]] = []
        try:
            async for snapshot in self._tables.heads():
                mine = any(
                    each.serves_bytes_per_s is not None and each.site == self._site
                    for each in snapshot.deployment.subscriptions.values()
                )
                if mine and not tasks:
                    await self._open()
                    tasks.append(asyncio.create_task(self._look(), name=f"parts of {self._site}"))
                if mine or self.streams:
                    await self._follow(snapshot)
        finally:
            await cancel_all([*tasks, *self._handling])
            for stream in self.streams.values():
                await stream.close()
            if tasks:
                await self._reach.close()
                for end in self._ends:
                    await end()

    async def _open(self) -> None:
        """Answer at home, and at the site's own server where it has one. What only serving needs is imported here."""
        from headgate.client import Client
        from headgate.client.reach import PartsReach

        self._client = Client(self._reading)
        self._reach = PartsReach(self._fabric, self._tables, self._site, self._connecting, self._site)
        home = self._fabric.home if isinstance(self._fabric, HostFabric) else self._fabric
        places = [home, self._fabric.own] if isinstance(self._fabric, HostFabric) else [home]
        asked = home.logs.grid(self._site, "*")
        self._ends: list[Callable[[], Awaitable[None]]] = [await each.receive(asked, self._take) for each in places]

    async def _follow(self, snapshot: Snapshot) -> None:
        from headgate.protocol.serving_brief import serving_briefs
        from headgate.replicas.served_stream import ServedStream

        briefs, self.problems = serving_briefs(snapshot)
        for name, why in self.problems.items():
            site_log(self._site).warning("%s is served as before: %s", name, why)
        for name, brief in briefs.items():
            running = self.streams.get(name)
            if self._site not in brief.sites:
                if running is not None:
                    await self.streams.pop(name).close()
            elif running is None:
                self.streams[name] = ServedStream(self._site, brief, self._client, self._reach)
            elif running.serving.brief.generation != brief.generation:
                await running.follow(brief)
        for name in self.streams.keys() - briefs.keys() - self.problems.keys():
            await self.streams.pop(name).close()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            for stream in self.streams.values():
                stream.look(time.monotonic())
            report = {name: stream.report() for name, stream in self.streams.items()}
            told = GridReport(time_ms=int(time.time() * 1000), streams=report, problems=dict(self.problems))
            with noted(site_log(self._site), "what a site serves is reported later", FabricError):
                logs = self._reading.logs
                await self._reading.publish(logs.stats("grid", self._site), told.encode())

    async def _take(self, call: RequestCall) -> None:
        if len(self._handling) >= 16 * MOST_REQUESTS:
            await call.reply(b"", f"{len(self._handling)} requests wait for an answer already: try again")
            return
        task = asyncio.create_task(call.answer(lambda _: self._answer(call)))
        self._handling.add(task)
        task.add_done_callback(self._handling.discard)

    async def _answer(self, call: RequestCall) -> bytes:
        from headgate.protocol import serving as s

        asker, asked = call.subject.rsplit(".", 1)[1], s.decode_serving(call.data)
        stream = self.streams.get(getattr(asked, "stream", ""))
        if stream is None:
            raise FabricError(f"{self._site} serves no such stream")
        serving = stream.serving
        match asked:
            case s.ServingLetter():
                return s.encode_serving(s.LetterTaken(asked.sender == asker and serving.letters.receive(asked)))
            case s.AskParts():
                return s.encode_serving(serving.ask(asked.low, asked.high))
            case s.LookParts():
                return s.encode_serving(await serving.watch(asked.token, asked.seen, asked.wait_s))
            case s.EndParts():
                serving.end(asked.token)
                return s.encode_serving(s.PlacedParts(asked.token))
            case s.TakeRows():
                return await serving.take(asker, asked, self._fabric.max_payload)
        raise FabricError(f"a {type(asked).__name__} is nothing that a site is asked")
