"""A deployment on a bad machine: ``python -m headgate_studies.testing.machines --seed 1 --seconds 120``.

For a fifth of the time the disk is full, or another program holds the lock of the catalog, or the NATS server was
killed and its port taken by another program before it came back; when, which and for how long comes from the seed. Rows
are committed all the while, by the Spark job with `--spark`, else as it commits them (a batch that fails is tried
again), and one subscription is moved from site to site by requests that are repeated until they are answered. Nobody
mends anything by hand. Every reader must get every matched row once and in order, every request must be done once, the
ledger must be right whenever it can be read, and rows must flow again soon after each fault. Only root may mount a
small file system; where that is not allowed the disk stays as it is, and the outcome says so.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.fabric import Crew
from headgate.fabric.place import HOST
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.pipeline.worker import Address
from headgate.relay.root import committed_head
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.testing.fleet_load import BATCH_ROWS, BATCH_S, FleetLoad, Tallies

FULL, LOCKED, PORT = "full disk", "locked catalog", "taken port"
KINDS: Final = (FULL, LOCKED, PORT)
SHARE: Final = 0.2
DISK_MB: Final = 64
RESERVE_BYTES: Final = 8_000_000
_RECOVERED_S: Final = 60.0
_JOB_RECOVERED_S: Final = 180.0  # a job that was paused starts a new Spark session

DEPLOYMENT: Final = """
streams:
  fleet:
    root: root
    source: {format: generator, kind: fleet, seed: 11, rate: 150, limit: 1000000000}
    key: vehicle
    event_time: at
sites: {root: {}, mid: {}, leaf: {}}
plan: {fleet: {mid: root, leaf: mid}}
subscriptions:
  all: {stream: fleet, site: leaf}
  fast: {stream: fleet, site: mid, where: "speed > 30", format: json}
  wanderer: {stream: fleet, site: root, where: "vehicle rlike '[02468]$'"}
"""


@dataclass
class MachinesOutcome(Tallies):
    """What a run did and found."""

    seed: int = 0
    seconds: float = 0.0
    running_s: float = 0.0
    faulty_s: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    ledger_looks: int = 0
    ledger_unreadable: int = 0
    server_restarts: int = 0
    ports: int = 1
    recovery_s: dict[str, float] = field(default_factory=dict)


@contextlib.contextmanager
def small_disk(directory: Path, megabytes: int = DISK_MB) -> Iterator[bool]:
    """A file system of its own in a directory; False where it may not be mounted."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(directory)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(directory)], check=False)  # noqa: S607 - where it is differs


@contextlib.contextmanager
def full_disk(directory: Path) -> Iterator[None]:
    """Another program takes every byte that is free."""
    path = directory / "others"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size):
                    pass
    try:
        yield
    finally:
        path.unlink()


@contextlib.contextmanager
def locked_catalog(path: Path) -> Iterator[None]:
    """Another program is in a transaction that writes."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as other:
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")


@contextlib.contextmanager
def taken_port(runtime: Runtime) -> Iterator[None]:
    """The server is killed, and another program listens on its port before it is back."""
    assert runtime.server is not None
    port, pid = runtime.server.port, runtime.server.pid
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if pid is not None:
            os.kill(pid, 9)
        for _ in range(1000):
            with contextlib.suppress(OSError):
                other.bind((HOST, port))
                other.listen(8)
                break
            time.sleep(0.001)
        yield


class Campaign(FleetLoad):
    """One run: feeding, moving, reading, watching and breaking side by side."""

    def __init__(self, runtime: Runtime, client: Client, directory: Path, outcome: MachinesOutcome) -> None:
        assert runtime.server is not None
        deployment = runtime.catalog.snapshot().deployment
        address = Address(runtime.server.url, Logs(runtime.settings.namespace))
        super().__init__(client, deployment, address, outcome.seed, outcome)
        self.runtime = runtime
        self.directory = directory
        self.outcome = outcome

    async def status(self) -> dict[str, Any]:
        """As the service says it."""
        return await self.runtime.status()

    async def follow_job(self) -> None:
        """See how much the Spark job has committed."""
        while not self.stopping:
            with contextlib.suppress(HeadgateError):
                self.outcome.rows = await committed_head(self.runtime.fabric, "fleet") or 0
            await asyncio.sleep(BATCH_S)

    async def watch(self) -> None:
        """Look at the ledger all the while."""
        while True:
            try:
                async with asyncio.timeout(15.0):
                    self.balance(await self.runtime.status())
                self.outcome.ledger_looks += 1
            except (HeadgateError, TimeoutError):
                self.outcome.ledger_unreadable += 1
            if self.runtime.failure.done():
                self.outcome.wrong.append(f"a part of the deployment ended: {self.runtime.failure.exception()!r}")
                return
            await asyncio.sleep(0.3)

    async def harm(self, seconds: float, kinds: list[str]) -> None:
        """Break one thing after another, for a fifth of the time, each kind at least once."""
        assert self.runtime.server is not None
        began, ports = time.monotonic(), {self.runtime.server.port}
        order = self.random.sample(kinds, len(kinds))
        lengths = (seconds * SHARE / len(kinds) * 0.6, seconds * SHARE / len(kinds))
        while order or time.monotonic() - began < seconds:
            kind = order.pop() if order else self.random.choice(kinds)
            length_s = min(self.random.uniform(*lengths), 12.0)
            await asyncio.sleep(length_s * (1 / SHARE - 1) * self.random.uniform(0.75, 1.0))
            broken = {
                FULL: lambda: full_disk(self.directory),
                LOCKED: lambda: locked_catalog(self.directory / "state" / "catalog.db"),
                PORT: lambda: taken_port(self.runtime),
            }[kind]()
            at = time.monotonic()
            with broken:
                await asyncio.sleep(length_s)
                self._told(kind)
            self.outcome.faulty_s += time.monotonic() - at
            self.outcome.faults[kind] = self.outcome.faults.get(kind, 0) + 1
            await self._recovered(kind)
            ports.add(self.runtime.server.port)
        self.outcome.ports = len(ports)
        self.outcome.running_s = round(time.monotonic() - began, 1)

    def _told(self, kind: str) -> None:
        if kind == FULL and self.runtime.machine.paused_ms is None:
            self.outcome.wrong.append("the disk was full, and nobody said so")

    async def _recovered(self, kind: str) -> None:
        """Wait until rows that were committed after the fault have arrived, and note how long that took."""
        began = time.monotonic()
        wanted = self.outcome.rows + 2 * BATCH_ROWS
        limit_s = _RECOVERED_S if self.runtime.job is None else _JOB_RECOVERED_S
        while self.reached("all") < wanted:
            if time.monotonic() - began > limit_s or self.runtime.failure.done():
                self.outcome.wrong.append(f"nothing was delivered for {limit_s:.0f} s after a {kind}")
                return
            await asyncio.sleep(0.05)
        took = round(time.monotonic() - began, 2)
        self.outcome.recovery_s[kind] = max(took, self.outcome.recovery_s.get(kind, 0.0))

    async def run(self, seconds: float, kinds: list[str]) -> None:
        """Run, drain and compare."""
        async with Crew() as crew:
            for name in self.seqs:
                crew.spawn(self.read(name))
            crew.spawn(self.watch())
            spark = self.runtime.job is not None
            feeding = crew.spawn(self.follow_job() if spark else self.feed())
            moving = crew.spawn(self.move())
            await self.harm(seconds, kinds)
            self.stopping = True
            await asyncio.gather(feeding, moving)
            if spark:
                await self.runtime.stop_job()
                self.outcome.rows = await committed_head(self.runtime.fabric, "fleet") or 0
            await self.drain()
        self.compare()
        self._count_moves()

    def _count_moves(self) -> None:
        """Every move was made once."""
        self.outcome.server_restarts = self.runtime.machine.restarts
        with contextlib.closing(sqlite3.connect(self.directory / "state" / "catalog.db")) as catalog:
            query = "SELECT change FROM revision WHERE change LIKE 'move %' ORDER BY revision"
            made = [change for (change,) in catalog.execute(query)]
        if made != [f"move wanderer to {site}" for site in self.moved]:
            self.outcome.wrong.append(f"{len(self.moved)} moves were asked for, the catalog has {len(made)}")


async def run_campaign(seed: int, seconds: float, directory: Path, *, spark: bool = False) -> MachinesOutcome:
    """One run in an empty directory."""
    outcome, began = MachinesOutcome(seed=seed), time.monotonic()
    with small_disk(directory) as mounted:
        kinds = list(KINDS) if mounted else [LOCKED, PORT]
        if not mounted:
            outcome.skipped.append(f"{FULL}: a file system cannot be mounted here")
        state = directory / "state"
        reserve_bytes = RESERVE_BYTES if mounted else 0
        settings = Settings(state_dir=state, job=spark, partitions=1, disk_reserve_bytes=reserve_bytes)
        deployment = parse_deployment(DEPLOYMENT, "machines.yaml", GENERATOR_SCHEMAS)
        async with open_runtime(settings, deployment) as runtime, await Client.connect(state_dir=state) as client:
            if spark:
                await runtime.wait_ready()
            await Campaign(runtime, client, directory, outcome).run(seconds, kinds)
    outcome.seconds = round(time.monotonic() - began, 1)
    outcome.faulty_s = round(outcome.faulty_s, 1)
    outcome.wrong = list(dict.fromkeys(outcome.wrong))
    return outcome


def main() -> None:
    """Run and print one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--spark", action="store_true", help="let the real Spark job commit the rows")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headgate machines ") as place:
        outcome = asyncio.run(run_campaign(given.seed, given.seconds, Path(place), spark=given.spark))
    print(json.dumps(asdict(outcome)))
    sys.exit(1 if outcome.wrong else 0)


if __name__ == "__main__":
    main()
