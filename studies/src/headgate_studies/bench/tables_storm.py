"""A storm: random plans, moves, kills, late sites and absent readers, while versions go as early as they ever may."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.fabric import cancel_all
from headgate.model import Plan, Tree
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.worker import Address
from headgate.relay.node import RelayNode
from headgate.service.demo.run import Readers, drained
from headgate.service.purging import TableRules
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

_ROWS: Final = 20
_DRAIN_S: Final = 90.0
# Only the newest version is kept for its own sake, and root logs keep no past: what is named is all that stays.
_RULES: Final = TableRules(keep=1, every_s=0.1, start=0.0, squeeze=0.0, rest=0.0)


@dataclass
class _Storm:
    """One run: what is down, and how many batches were committed."""

    runtime: Runtime
    client: Client
    chance: random.Random
    batches: int = 0
    kills: int = 0
    relays: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def start(self, site: str) -> None:
        """Start a site's relay, with nothing but its logs."""
        self.relays[site] = asyncio.create_task(RelayNode(self.runtime.fabric, site).run())

    async def kill(self, site: str) -> None:
        """End a site's relay at whatever it is doing."""
        await cancel_all([self.relays.pop(site)])
        self.kills += 1

    async def commit(self, direct: DirectCommits) -> None:
        """Commit a batch under the newest version."""
        rows = generate("fleet", 5, _ROWS * self.batches, _ROWS * (self.batches + 1))
        await asyncio.to_thread(direct.commit, "fleet", rows, self.batches)
        self.batches += 1

    async def step(self) -> None:
        """Change something."""
        what, chance = self.chance.random(), self.chance
        if what < 0.5:
            first, second = chance.sample(["one", "two"], 2)
            tree = Tree("fleet", "root", {first: "root", second: chance.choice(["root", first])})
            self.runtime.catalog.set_plan(Plan({"fleet": tree}))
            await self.runtime.control.publish()
        elif what < 0.6:
            await self.client.move("away", chance.choice(["one", "two", "root"]))
        elif what < 0.7:
            site = chance.choice(["root", "one", "two"])
            if site in self.relays:
                await self.kill(site)
            else:
                self.start(site)
        elif what < 0.75:
            reader = Readers(self.client, keep=False)
            reader.start(["away"])
            await asyncio.sleep(2 * chance.random())
            reader.check()
            await reader.stop()
        if chance.random() < 0.2:
            await asyncio.sleep(chance.random())

    async def settle(self, *readers: Readers) -> dict[str, Any]:
        """Wait until everything that was matched is accounted for; the status then, or when that took too long."""
        end = time.monotonic() + _DRAIN_S
        while True:
            status = await self.runtime.status()
            for each in readers:
                each.check()
            for task in self.relays.values():
                if task.done():
                    task.result()
            if (drained(status) and status["streams"]["fleet"]["head"]) or time.monotonic() > end:
                return status
            await asyncio.sleep(0.1)


async def storm(directory: Path, document: str, seed: int, steps: int, there: list[str]) -> dict[str, float]:
    """Rows that are missing or too many at the end, batches, kills and versions deleted."""
    settings = Settings(state_dir=directory, job=False, relays=False, tables=_RULES)
    deployment = parse_deployment(document, "storm.yaml", GENERATOR_SCHEMAS)
    async with open_runtime(settings, deployment) as runtime:
        assert runtime.server is not None
        async with await Client.connect(runtime.server.url) as client:
            found = _Storm(runtime, client, random.Random(seed))
            readers = last = Readers(client, keep=False)
            try:
                with DirectCommits(Address(runtime.server.url, Logs())) as direct:
                    # Some sites come up late: their first rows may overtake each other on paths of several plans.
                    for site in ("root", *found.chance.sample(["one", "two"], 1)):
                        found.start(site)
                    readers.start(there)
                    for _ in range(steps):
                        await found.step()
                        if found.chance.random() < 0.7:
                            await found.commit(direct)
                for site in set(deployment.sites) - set(found.relays):
                    found.start(site)
                last = Readers(client, keep=False)
                last.start(["away"])
                status = await found.settle(readers, last)
            finally:
                await last.stop()
                await readers.stop()
                await cancel_all(list(found.relays.values()))
    lines = status["subscriptions"].values()
    if any(each["in_flight"] for each in lines):
        raise HeadgateError(f"storm {seed}: rows are still in flight", hint="run it again with that seed alone")
    return {
        "batches": float(found.batches),
        "kills": float(found.kills),
        "deleted": float(runtime.purger.purger.purged if runtime.purger else 0),
        "difference": float(sum(abs(each["difference"]) for each in lines)),
    }
