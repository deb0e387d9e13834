"""A relay that dies: the site below it is served by its standby, the plan follows, and goes back with the relay."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.live import Live, running, sites

from headgate.fabric import cancel_all
from headgate.model import Plan, Tree
from headgate.pipeline.sources import generate
from headgate.relay.node import RelayNode
from headgate.service.replanning import Rules

pytestmark = [pytest.mark.nats, pytest.mark.long]

CHAIN = {"mid": "root", "leaf": "mid"}
DOCUMENT: dict[str, Any] = {
    "sites": sites("root", "mid", "leaf"),
    "streams": {"fleet": {"root": "root", "source": {"format": "generator", "kind": "fleet", "seed": 3, "limit": 100}}},
    "subscriptions": {"at-leaf": {"site": "leaf", "stream": "fleet"}, "at-mid": {"site": "mid", "stream": "fleet"}},
}


class Feeding:
    """Commits batches until something is so."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.batch = 0

    async def until(self, parents: dict[str, str]) -> None:
        """The plan has these parents."""
        async with asyncio.timeout(60.0):
            while (plan := self.live.runtime.catalog.snapshot().plan) is None or plan.trees["fleet"].parents != parents:
                await self.more()

    async def more(self) -> None:
        """A batch of ten rows."""
        await self.live.commit("fleet", generate("fleet", 3, 10 * self.batch, 10 * (self.batch + 1)), self.batch)
        self.batch += 1
        await asyncio.sleep(0.1)


def test_a_dead_relay_is_planned_around_until_it_is_back(tmp_path: Path, nats_url: str) -> None:
    async def run() -> None:
        async with running(DOCUMENT, tmp_path, nats_url, replan=Rules(every_s=3600.0)) as live:
            runtime, feeding = live.runtime, Feeding(live)
            runtime.catalog.set_plan(Plan({"fleet": Tree("fleet", "root", CHAIN)}))
            snapshot = await runtime.control.publish()
            assert snapshot.plan is not None
            assert snapshot.plan.trees["fleet"].standbys == {"leaf": ("root",)}
            live.readers.start(["at-leaf", "at-mid"])
            for _ in range(30):
                await feeding.more()
            assert (await runtime.status())["sites"]["leaf"]["standbys"] == {}
            await cancel_all([task for task in runtime._tasks if task.get_name() == "relay mid"])
            await feeding.until({"mid": "root", "leaf": "root"})
            assert runtime.bypass.moved == {("fleet", "leaf"): ("mid", "root")}
            fabric, tables = runtime.nodes["mid"].fabric, runtime.tables
            node = runtime.nodes["mid"] = RelayNode(fabric, "mid", tables=tables)
            runtime._spawn(node.run(), "relay mid")
            await feeding.until(CHAIN)
            assert not runtime.bypass.busy
            await live.settle()
            for name in ("at-leaf", "at-mid"):
                assert live.seqs(name) == list(range(1, 10 * feeding.batch + 1))

    asyncio.run(run())
