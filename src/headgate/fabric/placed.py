"""A site's own server and home's as one connection: every log is asked for where it lies.

A site that is a host of its own has a server with what concerns it alone: blocks for its children, its site log, its
inboxes. The catalog, reports and acknowledgements are at home, and other sites are asked through home.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nats.js import api

from headgate.fabric.client import Fabric
from headgate.fabric.streaming import LogStream
from headgate.protocol.port import LogInfo, Stored
from headgate.wire.logs import Log

Handler = Callable[[bytes], Awaitable[bytes]]


class HostFabric(Fabric):
    """The connections of the relay of a site with a server of its own: `home`, and `own`. Closing it closes both.

    `directory` is where that server keeps its files.
    """

    def __init__(self, home: Fabric, own: Fabric, directory: Path) -> None:
        super().__init__(home._client, home.logs)  # noqa: SLF001 # it is one itself
        self.home, self.own, self.directory = home, own, directory
        self.user, self.codec, self.quarantine, self.streams = home.user, home.codec, home.quarantine, own.streams
        self.revisions = home.revisions

    def _at(self, name: str) -> Fabric:
        """Where a log, or a subject, is."""
        return self.own if self.logs.is_hosted(name) else self.home

    async def close(self) -> None:
        """Close both connections."""
        await self.own.close()
        await self.home.close()

    async def publish(self, subject: str, data: bytes, **how: Any) -> int:
        """Append to a log."""
        return await self._at(subject).publish(subject, data, **how)

    async def carry(self, stored: Stored, expect: int) -> int:
        """Append a message as another server has stored it."""
        return await self.own.carry(stored, expect)

    async def last(self, log: Log, subject: str) -> Stored | None:
        """The last message of a subject."""
        return await self._at(log.name).last(log, subject)

    async def get(self, log: Log, sequence: int) -> Stored | None:
        """The message with that sequence."""
        return await self._at(log.name).get(log, sequence)

    async def read(
        self, log: Log, subject: str, after: int, *, limit: int = 256, max_bytes: int = 16 << 20
    ) -> list[Stored]:
        """The next messages of a subject after a sequence."""
        return await self._at(log.name).read(log, subject, after, limit=limit, max_bytes=max_bytes)

    async def lasts(self, log: Log, subjects: Sequence[str]) -> dict[str, Stored]:
        """The last message of each of some subjects."""
        return await self._at(log.name).lasts(log, subjects)

    async def subjects(self, log: Log, pattern: str) -> dict[str, int]:
        """Subjects of a log that hold messages."""
        return await self._at(log.name).subjects(log, pattern)

    async def names(self, subject: str) -> list[str]:
        """The logs that take messages of a subject."""
        return await self._at(subject).names(subject)

    async def purge(self, log: Log, subject: str, below: int) -> None:
        """Delete a subject's messages with a sequence below this one."""
        await self._at(log.name).purge(log, subject, below)

    async def clear(self, log: Log, subject: str) -> None:
        """Delete every message of a subject."""
        await self._at(log.name).clear(log, subject)

    async def ensure(self, log: Log, marks: Mapping[str, str] | None = None, first: int | None = None) -> None:
        """Make a log."""
        await self._at(log.name).ensure(log, {**self.marks, **(marks or {})}, first)

    async def info(self, log: Log) -> api.StreamInfo | None:
        """What the server knows of a log."""
        return await self._at(log.name).info(log)

    async def usage(self, log: Log) -> LogInfo | None:
        """How full a log is."""
        return await self._at(log.name).usage(log)

    async def listen(self, subject: str, *wake: asyncio.Event) -> Callable[[], Awaitable[None]]:
        """Set events when something is published on a subject."""
        return await self._at(subject).listen(subject, *wake)

    def stream(self, log: Log, subject: str) -> LogStream:
        """A reader that the server sends messages to as they are stored."""
        return self._at(log.name).stream(log, subject)

    async def request(self, subject: str, data: bytes, timeout_s: float = 10.0) -> bytes:
        """Ask a service, through home."""
        return await self.home.request(subject, data, timeout_s)

    async def serve(self, subject: str, handler: Handler) -> Callable[[], Awaitable[None]]:
        """Answer requests, through home; what sites below send up comes to the site's own server."""
        at = self.own if subject.startswith(self.logs.upward("x")[:-1]) else self.home
        return await at.serve(subject, handler)
