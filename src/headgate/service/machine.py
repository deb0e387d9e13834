"""The machine under a deployment: room on its disk, and the embedded server.

When the room falls below a reserve, intake is paused: the Spark job is stopped and the logs that clients publish into
take nothing more, while what was committed is still delivered with what is left. When there is room again, intake goes
on by itself. A nats-server that could not write a log does not write that log again until it is started anew, so it is,
once there is room. One that has ended is started again too, at another port if its own was taken.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import EmbeddedServer, Fabric, FabricError
from headgate.protocol.reports import MachineReport, ServerProcess

RESERVE_BYTES: Final = 64_000_000
"""The room that intake leaves on the disk: for delivering what was committed, for acknowledgements and the catalog."""
_LAST_PART: Final = 4
_WATCH_S: Final = 0.2
_RETRY_S: Final = 1.0
_REPORT_S: Final = 5.0
_REPORT_TIMEOUT_S: Final = 2.0

_log = logging.getLogger(__name__)

Step = Callable[[], Awaitable[None]]


class NoDiskError(HeadgateError):
    """The disk is almost full: what would take more of it is refused."""

    usual_kind = "full"


@dataclass(frozen=True, slots=True)
class Disk:
    """Room for a directory: what is free, and what is kept in reserve."""

    free_bytes: int
    reserve_bytes: int

    @classmethod
    def read(cls, directory: Path, reserve_bytes: int) -> Disk:
        """Ask the file system."""
        found = os.statvfs(directory)
        return cls(found.f_bavail * found.f_frsize, reserve_bytes)

    @property
    def short(self) -> bool:
        """Whether less than the reserve is free."""
        return self.free_bytes < self.reserve_bytes

    @property
    def ample(self) -> bool:
        """Whether there is enough to go on after it was short: a quarter more than the reserve."""
        return self.free_bytes >= self.reserve_bytes + self.reserve_bytes // 4

    @property
    def last(self) -> bool:
        """Whether so little is left that a write may have failed between two looks."""
        return self.free_bytes < self.reserve_bytes // _LAST_PART

    def __str__(self) -> str:
        return f"{self.free_bytes / 1e6:,.1f} MB are free, {self.reserve_bytes / 1e6:,.1f} MB are kept in reserve"


class MachineWatch:
    """Watches the disk and the embedded server of a deployment, and mends what can be mended."""

    def __init__(
        self,
        fabric: Fabric,
        directory: Path,
        server: EmbeddedServer | None,
        reserve_bytes: int,
        pause: Step,
        resume: Step,
    ) -> None:
        """`pause` stops the intake and `resume` lets it go on; both may be called again when they have failed."""
        self._fabric = fabric
        self._directory = directory
        self._server = server
        self._reserve_bytes = reserve_bytes
        self._pause = pause
        self._resume = resume
        self._down_said = False
        self._retry_s = self._report_s = 0.0
        self._reported: Any = None
        self.disk = Disk.read(directory, reserve_bytes)
        self.paused_ms: int | None = None
        self._applied = True  # whether the intake is as `paused_ms` says
        self.failing: str | None = None
        self.restarts = 0

    @property
    def report(self) -> MachineReport:
        """What is known, for `status`."""
        server = self._server
        return MachineReport(
            time_ms=int(time.time() * 1000),
            directory=str(self._directory),
            free_bytes=self.disk.free_bytes,
            reserve_bytes=self.disk.reserve_bytes,
            paused_ms=self.paused_ms,
            failing=self.failing,
            server=None if server is None else ServerProcess(port=server.port, pid=server.pid),
            restarts=self.restarts,
        )

    def check(self) -> None:
        """Refuse what would take room while there is too little."""
        if self.paused_ms is not None:
            raise NoDiskError(
                f"the disk of {self._directory} is almost full ({self.disk}), so nothing was changed",
                hint="make room on it: everything goes on by itself then",
            )

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_WATCH_S)

    async def look(self) -> None:
        """Look once, and do what is due."""
        try:
            self.disk = await asyncio.to_thread(Disk.read, self._directory, self._reserve_bytes)
        except OSError as error:
            _log.warning("cannot ask for the room of %s: %s", self._directory, error)
        if self._server is not None:
            await self._keep_server(self._server)
        if self.paused_ms is None and self.disk.short:
            _log.warning("intake is paused: the disk of %s is almost full (%s)", self._directory, self.disk)
            self.paused_ms, self._applied = int(time.time() * 1000), False
        elif self.paused_ms is not None and self.disk.ample and self.failing is None:
            _log.warning("intake goes on: there is room in %s again (%s)", self._directory, self.disk)
            self.paused_ms, self._applied = None, False
        if not self._applied and time.monotonic() >= self._retry_s:
            await self._apply()
        await self._report()

    async def _apply(self) -> None:
        """Bring the intake to what is decided; what fails, as NATS is away, is tried again."""
        try:
            await (self._resume if self.paused_ms is None else self._pause)()
            self._applied = True
        except HeadgateError as error:
            _log.warning("the intake is not %s yet: %s", "on" if self.paused_ms is None else "paused", error)
            self._retry_s = time.monotonic() + _RETRY_S

    async def _keep_server(self, server: EmbeddedServer) -> None:
        """Start the server again when it has ended, and when it has to be because it could not write."""
        if server.pid is None:
            await self._start(server)
            return
        if await asyncio.to_thread(server.renew):
            _log.info("the certificates were replaced: the NATS server reads them again")
        if self.failing is None:
            self.failing = await asyncio.to_thread(server.write_error)
            if self.failing is None and self.disk.last:
                self.failing = "the disk was full, so logs may have failed to be written"
            if self.failing is not None:
                _log.warning("the NATS server cannot store: %s (%s)", self.failing, self.disk)
        if self.failing is not None and self.disk.ample:
            _log.warning("the NATS server is started again, as there is room: %s", self.disk)
            await asyncio.to_thread(server.stop)
            await self._start(server)

    async def _start(self, server: EmbeddedServer) -> None:
        if time.monotonic() < self._retry_s:
            return
        try:
            await asyncio.to_thread(server.start)
        except FabricError as error:
            if not self._down_said:
                _log.warning("the NATS server is down and cannot be started yet: %s", error)
            self._down_said, self._retry_s = True, time.monotonic() + _RETRY_S
            self.failing = f"the NATS server is down: {error}"
            return
        _log.warning("the NATS server was started again, at port %d", server.port)
        self._down_said, self.failing = False, None
        self.restarts += 1

    async def _report(self) -> None:
        """Leave what is known in the log of states, when it has changed and now and then."""
        report = self.report
        said = (report.paused_ms, report.failing, report.server, report.restarts)
        if said == self._reported and time.monotonic() < self._report_s:
            return
        self._report_s = time.monotonic() + _REPORT_S
        with noted(
            SERVICE, "the next report of the machine counts", FabricError
        ):  # a request for it is answered without the log; the next report counts
            subject = self._fabric.logs.stats("machine", "_")
            await self._fabric.publish(subject, report.encode(), timeout_s=_REPORT_TIMEOUT_S)
            self._reported = said
