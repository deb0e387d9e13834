"""Every fault in turn on real processes: ``python -m headgate_studies.testing.havoc --minutes 20`` (``make chaos``).

The service with its NATS server is one process, each site's relay another, connected with the rights of its site over
a connection that can be cut and narrowed. Rows are committed all the while, one subscription moves from site to site
every second, and the plan is changed under load. Meanwhile relays, the server, the service and everything are killed,
a relay stays dead while the sites below it are read, sites are cut off alone and together, and links are narrowed to a
quarter.
After each fault the time is taken until rows that were committed after it have come to every reader. In the end each
reader must have every row once and in order, and the ledger no difference. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.fabric import Crew
from headgate.fabric.address import address_of
from headgate.fabric.place import ServerPlace
from headgate.fabric.server import port_file
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.pipeline.worker import Address
from headgate.wire.logs import Logs
from headgate_studies.testing.chaos_page import write_page
from headgate_studies.testing.fleet_load import BATCH_ROWS, FleetLoad, Tallies
from headgate_studies.testing.pipes import Pipe

_PARTS: Final = "headgate_studies.testing.chaos_parts"
_ALGORITHMS: Final = ("brush", "chain", "search")
_RECOVERED_S: Final = 90.0
_BEGIN_S: Final = 300.0
_AGAIN_S: Final = 0.5
_LONG_S: Final = 300.0
_LONG_MINUTES: Final = 15.0

DEPLOYMENT: Final = """
streams:
  fleet:
    root: root
    source: {format: generator, kind: fleet, seed: 11, rate: 150, limit: 1000000000}
    key: vehicle
    event_time: at
sites: {root: {}, mid: {}, side: {}, leaf: {}, far: {}}
plan: {fleet: {mid: root, side: root, leaf: mid, far: leaf}}
subscriptions:
  all-mid: {stream: fleet, site: mid}
  all-side: {stream: fleet, site: side}
  all-leaf: {stream: fleet, site: leaf}
  all-far: {stream: fleet, site: far}
  fast-leaf: {stream: fleet, site: leaf, where: "speed > 30", select: [vehicle, speed]}
  faults-far: {stream: fleet, site: far, where: "status = 'fault'", format: json}
  wanderer: {stream: fleet, site: root, where: "vehicle rlike '[02468]$'"}
"""


@dataclass
class FaultRecord:
    """One kind of fault: how often it was tried, and in seconds how long rows took to flow again."""

    tried: int = 0
    recovery_s: list[float] = field(default_factory=list)


@dataclass
class HavocOutcome(Tallies):
    """What a run did and found."""

    seed: int = 0
    seconds: float = 0.0
    replans: int = 0
    ledger_looks: int = 0
    tried: dict[str, FaultRecord] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The last line."""
        worst = max((each for found in self.tried.values() for each in found.recovery_s), default=0.0)
        count = sum(each.tried for each in self.tried.values())
        return {**asdict(self), "faults": count, "worst_recovery_s": round(worst, 2)}


class KeptProgram:
    """A program that is started again when it ends, unless it is held down."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self._arguments = arguments
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._up = asyncio.Event()
        self._up.set()

    async def keep(self) -> None:
        """Run it until this is cancelled."""
        try:
            while True:
                await self._up.wait()
                with self._log.open("ab") as file:
                    self._process = await asyncio.create_subprocess_exec(
                        sys.executable, "-m", "headgate.fabric.guard", sys.executable, "-m", _PARTS, *self._arguments,
                        env={**os.environ, "HEADGATE_PARENT": str(os.getpid())}, stdout=file, stderr=file,
                    )  # fmt: skip
                await self._process.wait()
                await asyncio.sleep(_AGAIN_S)
        finally:
            self.kill()
            if self._process is not None:
                await self._process.wait()

    def kill(self, *, hold: bool = False) -> None:
        """End it with signal 9."""
        if hold:
            self._up.clear()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def release(self) -> None:
        """Let it be started again."""
        self._up.set()


class Havoc(FleetLoad):
    """One run: the load, the processes, and who breaks them."""

    def __init__(self, client: Client, state: Path, outcome: HavocOutcome, parts: dict[str, KeptProgram]) -> None:
        deployment = parse_deployment(DEPLOYMENT, "chaos.yaml", GENERATOR_SCHEMAS)
        address = Address(address_of(state / "nats"), Logs("hg"))
        super().__init__(client, deployment, address, outcome.seed, outcome)
        self.outcome = outcome
        self.state = state
        self.parts = parts
        self.pipes: dict[str, Pipe] = {}
        self.everybody = [name for name in deployment.subscriptions if name.startswith("all-")]

    @property
    def faults(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Every kind of fault; each ends when its recovery was seen."""
        return {
            "relay killed": self._kill_relay,
            "relay dead for 12 s, sites below it": self._bury_relay,
            "two relays killed": self._kill_two,
            "server killed": self._kill_server,
            "home and its server killed": self._kill_home,
            "everything killed": self._kill_all,
            "site cut off for 8 s": self._cut_one,
            "two sites cut off for 8 s": self._cut_two,
            "link cut to a quarter for 10 s": self._narrow,
            "plan changed": self._replan,
        }

    def _sites(self, count: int) -> list[str]:
        return self.random.sample([site for site in self.deployment.sites if site != "root"], count)

    async def _kill_relay(self) -> None:
        self.parts[self.random.choice(list(self.deployment.sites))].kill()
        await self.flowing("relay killed")

    async def _bury_relay(self) -> None:
        """The sites below are served by a standby while the relay is dead."""
        kind, site = "relay dead for 12 s, sites below it", self.random.choice(("mid", "leaf"))
        began = time.monotonic()
        self.parts[site].kill(hold=True)
        await self.flowing(kind, [name for name in self.everybody if name != f"all-{site}"])
        await asyncio.sleep(max(12.0 - (time.monotonic() - began), 0.0))
        self.parts[site].release()
        await self.flowing("relay back after 12 s")

    async def _kill_two(self) -> None:
        for site in self._sites(2):
            self.parts[site].kill()
        await self.flowing("two relays killed")

    async def _kill_server(self) -> None:
        place = ServerPlace.read(port_file(self.state))
        if place is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(place.pid, 9)
        await self.flowing("server killed")

    async def _kill_home(self) -> None:
        self.parts["home"].kill()
        await self.flowing("home and its server killed")

    async def _kill_all(self) -> None:
        for part in self.parts.values():
            part.kill()
        await self.flowing("everything killed")

    async def _cut_one(self) -> None:
        await self._cut("site cut off for 8 s", 8.0, self._sites(1))

    async def _cut_two(self) -> None:
        await self._cut("two sites cut off for 8 s", 8.0, self._sites(2))

    async def cut_long(self) -> None:
        """A partition of five minutes."""
        await self._cut("site cut off for five minutes", _LONG_S, ["leaf"])

    async def _cut(self, kind: str, seconds: float, sites: list[str]) -> None:
        for site in sites:
            self.pipes[site].cut()
        await asyncio.sleep(seconds)
        for site in sites:
            self.pipes[site].join()
        await self.flowing(kind)

    async def _narrow(self) -> None:
        """Leave a quarter of what a site's connection carries; rows come late, and none is lost."""
        pipe = self.pipes[self._sites(1)[0]]
        before = pipe.bytes
        await asyncio.sleep(3.0)
        pipe.rate_bytes_per_s = max((pipe.bytes - before) / 3.0 / 4.0, 2000.0)
        await asyncio.sleep(10.0)
        pipe.join()
        await self.flowing("link cut to a quarter for 10 s")

    async def _replan(self) -> None:
        algorithm = _ALGORITHMS[self.outcome.replans % len(_ALGORITHMS)]
        with contextlib.suppress(HeadgateError):  # a plan that fits no more is proposed again the next time
            found = await self.client.control("plan-propose", algorithm=algorithm)
            await self.client.control("plan-approve", proposal=found["proposal"]["id"])
            self.outcome.replans += 1
        await self.flowing("plan changed")

    async def flowing(self, kind: str, names: list[str] | None = None) -> None:
        """Wait until rows that were committed after now have come, and note how long that took."""
        began, wanted = time.monotonic(), self.outcome.rows + 2 * BATCH_ROWS
        record = self.outcome.tried.setdefault(kind, FaultRecord())
        record.tried += 1
        waiting = list(self.everybody if names is None else names)
        while waiting := [name for name in waiting if self.reached(name) < wanted]:
            if time.monotonic() - began > _RECOVERED_S:
                self.outcome.wrong.append(f"{', '.join(waiting)} got nothing for {_RECOVERED_S:.0f} s after: {kind}")
                break
            await asyncio.sleep(0.05)
        record.recovery_s.append(round(time.monotonic() - began, 2))

    async def _begun(self) -> None:
        """Wait until every reader has rows: programs take their time to start on a busy machine."""
        async with asyncio.timeout(_BEGIN_S):
            while any(not self.reached(name) for name in self.everybody):  # noqa: ASYNC110 - readers are polled
                await asyncio.sleep(0.1)

    async def watch(self) -> None:
        """Look at the ledger all the while."""
        while True:
            with contextlib.suppress(HeadgateError, TimeoutError):
                async with asyncio.timeout(15.0):
                    self.balance(await self.status())
                self.outcome.ledger_looks += 1
            await asyncio.sleep(1.0)

    async def run(self, seconds: float) -> None:
        """Feed, read, move and break for so long; then drain and compare."""
        began = time.monotonic()
        async with Crew() as crew:
            for name in self.seqs:
                crew.spawn(self.read(name))
            crew.spawn(self.watch())
            feeding, moving = crew.spawn(self.feed()), crew.spawn(self.move())
            await self._begun()
            if seconds >= 60 * _LONG_MINUTES:
                await self.cut_long()
            order: list[str] = []
            while time.monotonic() - began < seconds:
                order = order or self.random.sample(sorted(self.faults), len(self.faults))
                kind = order.pop()
                print(f"{time.monotonic() - began:6.1f} s  {kind}", flush=True)
                await self.faults[kind]()
            self.stopping = True
            await asyncio.gather(feeding, moving)
            await self.drain()
        self.compare()


async def _connected(state: Path) -> Client:
    """A connection to the service as soon as it answers."""
    while True:
        with contextlib.suppress(HeadgateError, OSError):
            client = await Client.connect(state_dir=state)
            with contextlib.suppress(HeadgateError):
                await client.control("status")
                return client
            await client.close()
        await asyncio.sleep(0.3)


@contextlib.asynccontextmanager
async def _havoc(directory: Path, outcome: HavocOutcome) -> AsyncIterator[Havoc]:
    """Everything started."""
    state, file = directory / "state", directory / "chaos.yaml"
    await asyncio.to_thread(file.write_text, DEPLOYMENT)
    parts = {"home": KeptProgram("home", str(state), str(file), log=directory / "home.log")}

    def port() -> int | None:
        place = ServerPlace.read(port_file(state))
        return None if place is None else place.port

    async with Crew() as crew, contextlib.AsyncExitStack() as stack:
        crew.spawn(parts["home"].keep())
        async with asyncio.timeout(120.0):
            client = await stack.enter_async_context(await _connected(state))
        havoc = Havoc(client, state, outcome, parts)
        for site in havoc.deployment.sites:
            pipe = havoc.pipes[site] = await stack.enter_async_context(Pipe(port))
            parts[site] = KeptProgram("relay", str(state), site, str(pipe.port), log=directory / f"{site}.log")
            crew.spawn(parts[site].keep())
        yield havoc


async def run_havoc(seed: int, seconds: float, directory: Path) -> HavocOutcome:
    """One run in an empty directory."""
    outcome, began = HavocOutcome(seed=seed), time.monotonic()
    async with _havoc(directory, outcome) as havoc:
        await havoc.run(seconds)
    outcome.seconds = round(time.monotonic() - began, 1)
    outcome.wrong = list(dict.fromkeys(outcome.wrong))
    return outcome


def main() -> None:
    """Run and print one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--page", type=Path, help="the page whose table is written from the outcome")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headgate chaos ") as place:
        outcome = asyncio.run(run_havoc(given.seed, 60.0 * given.minutes, Path(place)))
    document = outcome.document()
    if given.page is not None and not outcome.wrong:
        write_page(given.page, document)
    print(json.dumps(document))
    sys.exit(1 if outcome.wrong else 0)


if __name__ == "__main__":
    main()
