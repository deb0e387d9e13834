"""The memory of a site on a real connection, and who is woken by what comes into it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from headgate.diagnostics import FABRIC
from headgate.fabric import Fabric, cancel_all
from headgate.fabric.runner import Runner
from headgate.gateway.follower import FollowMachine
from headgate.gateway.memory import MEMORY_BYTES, SiteMemory
from headgate.protocol.port import Stored
from headgate.relay.tables import Tables

_ACKS_AT_A_TIME: Final = 64
_AGAIN_S: Final = 1.0
_SLICE: Final = 64


class Listener(Protocol):
    """Somebody who waits for what comes into memory."""

    def hear(self) -> None:
        """Something has come."""
        ...


class SiteFeed:
    """Follows one site while somebody reads there."""

    def __init__(self, fabric: Fabric, tables: Tables, site: str, max_bytes: int = MEMORY_BYTES) -> None:
        self.memory = SiteMemory(max_bytes)
        self.site = site
        self.acks = asyncio.Semaphore(_ACKS_AT_A_TIME)
        """Held while an acknowledgement is on its way: so many at a time, whatever the number of readers."""
        self._fabric = fabric
        self._tables = tables
        self._waiting: dict[str, dict[Listener, None]] = {}
        self._due: deque[Listener] = deque()
        self._task: asyncio.Task[None] | None = None
        self._machine: FollowMachine | None = None

    @property
    def head(self) -> Stored | None:
        """The catalog's newest revision as it is stored, None while it is not known."""
        return None if self._machine is None else self._machine.head

    @property
    def published(self) -> dict[str, int]:
        """What there is of that revision in the log of tables."""
        return {} if self._machine is None else self._machine.published

    def _follow(self) -> FollowMachine:
        fabric = self._fabric
        return FollowMachine(self.site, self.memory, fabric.logs, fabric.max_payload, fabric.codec, fabric.quarantine)

    @property
    def readers(self) -> int:
        """How many read here."""
        return len(self._waiting.get(self._fabric.logs.head, ()))

    def attach(self, subject: str, listener: Listener) -> None:
        """Hold what comes on a subject, and wake somebody by it."""
        self._waiting.setdefault(subject, {})[listener] = None
        if subject != self._fabric.logs.head:
            self.memory.watch(subject)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"gateway {self.site}")

    def detach(self, subject: str, listener: Listener) -> None:
        """Somebody listens no more."""
        self._waiting[subject].pop(listener, None)
        if not self._waiting[subject]:
            del self._waiting[subject]
        if subject != self._fabric.logs.head:
            self.memory.leave(subject)

    async def _run(self) -> None:
        fabric = self._fabric
        while True:
            machine = self._machine = self._follow()
            streams = {machine.subject: fabric.logs.inbox(self.site)} if fabric.streams else {}
            async with Runner(
                fabric, machine, self._tables.snapshot, streams=streams, consumer=self._arrived
            ) as runner:
                await asyncio.wait([runner.failure])
                FABRIC.error("the gateway of %s begins anew: %r", self.site, runner.failure.exception())
            self._machine = None
            self.memory.forget()
            await asyncio.sleep(_AGAIN_S)

    def _arrived(self, subjects: list[str], done: Callable[[], None]) -> None:
        """Something came on these subjects: wake those who wait for it, some at a time."""
        begin = not self._due
        for subject in subjects:
            self._due.extend(self._waiting.get(subject, ()))
        if begin and self._due:
            asyncio.get_running_loop().call_soon(self._wake)
        done()

    def _wake(self) -> None:
        for _ in range(min(_SLICE, len(self._due))):
            self._due.popleft().hear()
        if self._due:
            asyncio.get_running_loop().call_soon(self._wake)

    async def close(self) -> None:
        """Follow the site no more."""
        task, self._task = self._task, None
        if task is not None:
            await cancel_all([task])
        self._machine = None
        self.memory.forget()
