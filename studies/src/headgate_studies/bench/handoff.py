"""Hand-offs while streaming: two subscriptions move between sites again and again, and relays are killed meanwhile.

A live deployment of four sites, each relay a process of its own, and the Spark job. Each hand-off is one of three: the
subscription moves under a reader that goes on; the reader detaches, is away for some commits and attaches at another
site; it is moved twice while its reader is away. In every `kill_every`-th one the relay of the site that is left, the
new one or the root is killed (signal 9) right after the move. At the end everything that was handed over is compared
with the generator's rows: nothing may be missing, twice or out of order, and the ledger's difference must be 0.

With `light` the rows are committed without Spark, every tenth of a second, and the relays run in this process, where
they are aborted instead of killed: a minute instead of many, and the same hand-offs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.catalog import parse_deployment
from headgate.client import Client, Inbox
from headgate.fabric import Crew, Fabric, FabricError, SyncFabric, cancel_all
from headgate.filters import parse_filter
from headgate.pipeline.commit import commit, pin_batch
from headgate.pipeline.match import MatchPass
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.staged import Staged
from headgate.pipeline.worker import Address
from headgate.relay.node import RelayNode
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs

_SITES: Final = ("root", "north", "south", "east")
_FILTERS: Final = {"everything": "true", "fast": "speed > 30"}
_AWAY_ROWS: Final = 60
_FEED_S: Final = 0.1
_SWITCH_S: Final = 120.0
_DRAIN_S: Final = 180.0


def _deployment(rate: int, seed: int) -> str:
    subscriptions = "\n".join(
        f"  {name}: {{stream: fleet, site: north, where: '{where}', expires: 1 h}}" for name, where in _FILTERS.items()
    )
    return f"""
streams:
  fleet:
    root: root
    source: {{format: generator, kind: fleet, seed: {seed}, rate: {rate}, limit: 1000000000}}
    key: vehicle
    event_time: at
sites: {{root: {{}}, north: {{}}, south: {{}}, east: {{}}}}
plan: {{fleet: {{north: root, south: root, east: south}}}}
subscriptions:
{subscriptions}
"""


@dataclass
class _Relay:
    """One site's relay as a process that is started again when it dies."""

    site: str
    url: str
    log: Path
    process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        while True:
            with self.log.open("ab") as file:
                self.process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "headgate.cli.app", "relay", "--site", self.site, "--nats", self.url,
                    stdout=file, stderr=file,
                )  # fmt: skip
            try:
                await self.process.wait()
            finally:
                if self.process.returncode is None:
                    self.process.kill()
                    await self.process.wait()

    def kill(self) -> bool:
        """Kill it, if it is up."""
        if self.process is None or self.process.returncode is not None:
            return False
        os.kill(self.process.pid, signal.SIGKILL)
        return True


@dataclass
class _Aborted:
    """One site's relay in this process. What it knew is gone when it is aborted, as with a signal, but for the logs."""

    site: str
    url: str
    _task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        while True:
            async with await Fabric.connect(self.url) as fabric:
                self._task = asyncio.create_task(RelayNode(fabric, self.site).run())
                try:
                    await asyncio.wait([self._task])
                finally:
                    await cancel_all([self._task])
            if not self._task.cancelled():
                self._task.result()

    def kill(self) -> bool:
        """Abort it, if it is up."""
        return self._task is not None and not self._task.done() and self._task.cancel()


@dataclass
class _Feeder:
    """Commits the generator's rows as the Spark job does, without Spark."""

    url: str
    rate: int
    seed: int
    batch: int = 0
    _ended: bool = False
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not self._ended:
            await asyncio.to_thread(self._commit)
            self.batch += 1
            await asyncio.sleep(_FEED_S)

    def _commit(self) -> None:
        count = max(1, int(self.rate * _FEED_S))
        rows = generate("fleet", self.seed, self.batch * count, (self.batch + 1) * count, rate=float(self.rate))
        nothing = pa.nulls(rows.num_rows, pa.string())
        marked = rows.append_column("_dead", nothing).append_column("_raw", nothing)
        with SyncFabric(self.url) as fabric:
            pin = pin_batch(fabric, "fleet", self.batch)
            work = MatchPass(Address(self.url, Logs()), "fleet", pin)
            staged = Staged.of(work(iter([marked])))
            commit(fabric, "fleet", "bench", self.batch, pin, staged)

    async def stop(self) -> None:
        """Commit no more."""
        self._ended = True
        if self._task is not None:
            await self._task


@dataclass
class _Roamer:
    """A subscription that moves, and everything that its readers were handed."""

    name: str
    client: Client
    site: str = "north"
    moves: int = 0
    seqs: list[int] = field(default_factory=list)
    given_up: int = 0
    switched_s: list[float] = field(default_factory=list)
    inbox: Inbox | None = None
    _task: asyncio.Task[None] | None = None

    async def attach(self, site: str | None = None) -> None:
        """Start reading, at another site if one is given."""
        if site is not None:
            self.site, self.moves = site, self.moves + 1
        inbox = await self.client.attach(self.name, site=site)
        assert isinstance(inbox, Inbox)  # its stream has one root
        self.inbox = inbox
        self._task = asyncio.create_task(self._read(inbox))

    async def _read(self, inbox: Inbox) -> None:
        async for delivery in inbox:
            self.seqs += delivery.seqs.tolist()
            self.given_up += sum(delivery.given_up.values())

    async def detach(self) -> None:
        """Stop reading for now."""
        await self.client.detach(self.name)
        if self._task is not None:
            await self._task

    async def move(self, site: str) -> None:
        """Move, whether anybody reads or not."""
        await self.client.move(self.name, site)
        self.site, self.moves = site, self.moves + 1

    async def settled(self) -> None:
        """Wait until the reader reads at the new site."""
        began = time.monotonic()
        async with asyncio.timeout(_SWITCH_S):
            while self.inbox is None or self.inbox.tally.stay < self.moves:
                await asyncio.sleep(0.02)
                if self._task is not None and self._task.done():
                    self._task.result()
        self.switched_s.append(time.monotonic() - began)


def run(
    handoffs: int = 100,
    kill_every: int = 5,
    rate: int = 200,
    seed: int = 7,
    limit_s: float = 3600.0,
    light: bool = False,
) -> dict[str, Any]:
    """So many hand-offs, shared by two subscriptions; in every `kill_every`-th one a relay is killed.

    After `limit_s` no further one is begun: `handoffs` in the figures says how many there were.
    """
    figures = asyncio.run(_run(handoffs, kill_every, rate, seed, limit_s, light=light))
    print(
        f"{figures['handoffs']} hand-offs ({figures['detached']} while away), {figures['kills']} relays killed,"
        f" {figures['rows']:,} rows: {figures['lost']} lost, {figures['duplicates']} twice,"
        f" ledger difference {figures['ledger_difference']}"
    )
    return figures


async def _run(handoffs: int, kill_every: int, rate: int, seed: int, limit_s: float, *, light: bool) -> dict[str, Any]:
    chance = random.Random(seed)
    deployment = parse_deployment(_deployment(rate, seed), "handoff.yaml", GENERATOR_SCHEMAS)
    counts = {"handoffs": 0, "detached": 0, "kills": 0}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(Path(directory), relays=False, job=not light, trigger_s=0.5)
        async with open_runtime(settings, deployment) as runtime:
            assert runtime.server is not None
            url = runtime.server.url
            async with Crew() as crew, await Client.connect(url, namespace=settings.namespace) as client:
                relays: dict[str, _Relay | _Aborted] = {}
                for site in _SITES:
                    own = Path(directory) / f"relay-{site}.log"
                    relays[site] = _Aborted(site, url) if light else _Relay(site, url, own)
                    crew.spawn(relays[site].run(), f"relay {site}")
                feeder = _Feeder(url, rate, seed)
                if light:
                    feeder.start()
                else:
                    await runtime.wait_ready(timeout_s=600.0)
                roamers = [_Roamer(name, client) for name in _FILTERS]
                for roamer in roamers:
                    await roamer.attach()
                while counts["handoffs"] < handoffs and time.monotonic() - began < limit_s:
                    roamer = roamers[counts["handoffs"] % len(roamers)]
                    counts["handoffs"] += 1
                    await _hand_off(runtime, roamer, relays, chance, counts, kill_every)
                    if counts["handoffs"] % 10 == 0:
                        print(f"{counts['handoffs']} hand-offs, {time.monotonic() - began:.0f} s")
                await feeder.stop()
                await runtime.stop_job()
                status = await _drained(runtime)
                for roamer in roamers:
                    await roamer.detach()
    figures: dict[str, Any] = {**counts, "rows": status["streams"]["fleet"]["rows_in"]}
    figures |= _compared(roamers, deployment.streams["fleet"].schema, figures["rows"], rate, seed)
    switched = np.array([each for roamer in roamers for each in roamer.switched_s])
    return {
        **figures,
        "ledger_difference": sum(abs(each["difference"]) for each in status["subscriptions"].values()),
        "moves": sum(each["moves"] for each in status["subscriptions"].values()),
        "switch_s_median": round(float(np.median(switched)), 2),
        "switch_s_worst": round(float(switched.max()), 2),
        "seconds": round(time.monotonic() - began, 1),
    }


async def _hand_off(
    runtime: Runtime,
    roamer: _Roamer,
    relays: dict[str, _Relay | _Aborted],
    chance: random.Random,
    counts: dict[str, int],
    kill_every: int,
) -> None:
    old = roamer.site
    new = chance.choice([site for site in _SITES if site != old])
    kind = chance.randrange(3)
    victim = relays[chance.choice((old, new, "root"))] if counts["handoffs"] % kill_every == 0 else None
    if kind == 0:
        await roamer.move(new)
        counts["kills"] += victim is not None and victim.kill()
    else:
        counts["detached"] += 1
        await roamer.detach()
        await _more_rows(runtime, _AWAY_ROWS)
        if kind == 2:
            between = chance.choice([site for site in _SITES if site != old])
            await roamer.move(between)
            await _more_rows(runtime, _AWAY_ROWS)
            new = chance.choice([site for site in _SITES if site != between])
        await roamer.attach(new)
        counts["kills"] += victim is not None and victim.kill()
    await roamer.settled()


async def _more_rows(runtime: Runtime, count: int) -> None:
    """Wait until so many more rows are in."""

    async def rows_in() -> int:
        return int((await runtime.status())["streams"]["fleet"]["rows_in"])

    wanted = await rows_in() + count
    async with asyncio.timeout(_SWITCH_S):
        while await rows_in() < wanted:  # noqa: ASYNC110 - a log is polled
            await asyncio.sleep(0.2)


async def _drained(runtime: Runtime) -> dict[str, Any]:
    """The status once nothing is in flight."""
    async with asyncio.timeout(_DRAIN_S):
        while True:
            with contextlib.suppress(FabricError):
                status = await runtime.status()
                if not any(each["in_flight"] for each in status["subscriptions"].values()):
                    return status
            await asyncio.sleep(0.3)


def _compared(roamers: list[_Roamer], schema: Any, rows: int, rate: int, seed: int) -> dict[str, int]:
    """What was handed over against what each filter takes of the generator's rows."""
    everything = generate("fleet", seed, 0, rows, rate=float(rate))
    found = {"matched": 0, "lost": 0, "duplicates": 0, "unasked": 0, "out_of_order": 0, "given_up": 0}
    for roamer in roamers:
        hits = parse_filter(_FILTERS[roamer.name], schema).evaluate(everything)
        expected = {int(place) + 1 for place in np.flatnonzero(hits)}
        got = np.array(roamer.seqs, dtype=np.int64)
        found["matched"] += len(expected)
        found["lost"] += len(expected - set(roamer.seqs)) - roamer.given_up
        found["duplicates"] += len(got) - len(set(roamer.seqs))
        found["unasked"] += len(set(roamer.seqs) - expected)
        found["out_of_order"] += int(np.sum(np.diff(got) <= 0))
        found["given_up"] += roamer.given_up
    return found
