"""Relays in processes of their own, where one event loop is not enough for all sites of a deployment.

Each process runs the relays of its part of the sites: a site belongs to the process that the checksum of its name says,
for good, so that new sites find their process without anybody being asked. It runs until it is told to stop:
``python -m headgate.service.relay_processes``, configured by the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import zlib
from collections.abc import Coroutine, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from headgate.client import Client
from headgate.diagnostics import SERVICE, configure
from headgate.errors import HeadgateError
from headgate.fabric import Fabric, cancel_all, keep_quarantine
from headgate.fabric.address import directory_of
from headgate.fabric.connecting import join
from headgate.fabric.rolekeys import has_keys, site_credentials
from headgate.fabric.vitals import freeze_startup, keep_vitals
from headgate.private import open_private
from headgate.relay.output import QueueLimits
from headgate.relay.tables import Tables
from headgate.service.processes import ChildProcess
from headgate.service.relays import Relays
from headgate.service.settings import Settings
from headgate.wire.identity import DEPLOYMENT_KEY
from headgate.wire.logs import Logs

CONFIG: Final = "HEADGATE_RELAYS_CONFIG"
"""The environment variable with the configuration of the process, which has the credentials for NATS, as JSON."""


@dataclass(frozen=True, slots=True)
class RelayPart:
    """What a process of relays needs to know: where the deployment is, and which part of how many it runs."""

    url: str
    namespace: str
    state_dir: str
    part: int
    parts: int
    nats_options: Mapping[str, Any] = field(default_factory=dict)
    limits: QueueLimits = field(default_factory=QueueLimits)
    log_level: str = "warning"
    log_format: str = "text"

    @classmethod
    def read(cls, text: str) -> Self:
        """The configuration of a text."""
        found = json.loads(text)
        return cls(**{**found, "limits": QueueLimits(**found["limits"])})

    @property
    def name(self) -> str:
        """What the process is called in reports and log files."""
        return f"relays-{self.part + 1}"

    def has(self, site: str) -> bool:
        """Whether a site belongs to it.

        >>> parts = [RelayPart("", "hg", "", part, 2) for part in range(2)]
        >>> [[part.has(site) for part in parts].count(True) for site in ("paris", "lyon", "oslo")]
        [1, 1, 1]
        """
        return zlib.crc32(site.encode()) % self.parts == self.part


class RelayProcess(ChildProcess):
    """The process of a part of the relays. It is started again when it dies, until `stop`."""

    def __init__(self, part: RelayPart) -> None:
        super().__init__(f"process {part.part + 1} of {part.parts} of the relays")
        self._part = part

    async def _start(self) -> asyncio.subprocess.Process:
        with open_private(Path(self._part.state_dir) / f"{self._part.name}.log") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "headgate.fabric.guard",
                sys.executable,
                "-m",
                "headgate.service.relay_processes",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, CONFIG: json.dumps(asdict(self._part))},
                start_new_session=True,
            )


class SitesByKeys:
    """Connections with the rights of single sites, by the keys of the server on this machine."""

    def __init__(self, directory: Path, namespace: str) -> None:
        self._directory, self._namespace = directory, namespace

    async def connect(self, url: str, site: str, **options: Any) -> Fabric:
        """A connection as the relay of a site."""
        credentials = site_credentials(self._directory, self._namespace, site)
        return await join(url, Logs(self._namespace), credentials, **options)


async def run(part: RelayPart) -> None:
    """Run the relays of a part of the sites until told to stop, or until one of them fails."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[None] = loop.create_future()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.cancel)
    tasks: list[asyncio.Task[None]] = []

    def spawn(work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(ended)
        tasks.append(task)

    def ended(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not stop.done():
            stop.set_exception(error)

    directory = directory_of(part.url)
    sites = SitesByKeys(directory, part.namespace) if directory is not None and has_keys(directory) else None
    settings = Settings(Path(part.state_dir), limits=part.limits, nats_options=part.nats_options)
    async with await Client.connect(part.url, namespace=part.namespace, **part.nats_options) as client:
        fabric, tables = client.fabric, Tables(client.fabric)
        relays = Relays(settings, fabric, tables, sites, part.url, mine=part.has)

        async def follow() -> None:
            async for snapshot in tables.heads():
                fabric.marks = {DEPLOYMENT_KEY: snapshot.identity.deployment}
                await relays.follow(snapshot.deployment, spawn)

        spawn(follow(), "revisions")
        spawn(keep_quarantine(fabric, part.name), "unreadable messages")
        spawn(keep_vitals(fabric, part.name), "vitals")
        freeze_startup()
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await stop
        finally:
            await cancel_all(tasks)
            await relays.close()


def main() -> int:
    """Read the configuration and run."""
    part = RelayPart.read(os.environ.pop(CONFIG))
    configure(part.log_level, part.log_format)
    try:
        asyncio.run(run(part))
    except HeadgateError as error:
        SERVICE.error("%s has ended: %s", part.name, error)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
