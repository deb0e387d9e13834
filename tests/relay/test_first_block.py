"""A site's first block of a stream: what lies before it is owed, or it is not, and the root knows which."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headgate.fabric import Fabric, cancel_all
from headgate.model import Deployment, Plan, Schema, Site, Source, Stream, Subscription, Tree
from headgate.protocol.records import Oldest, RangeRequest
from headgate.protocol.reports import RelayReport
from headgate.relay.entitlement import is_served, owed_from
from headgate.relay.node import RelayNode
from headgate.relay.tables import Tables, publish_snapshot
from headgate.service.purging import Purger, TableRules
from headgate.wire.logs import Logs
from headgate.wire.manifest import Manifest, PartRef, encode_manifest
from headgate.wire.snapshot import Snapshot
from tests.client.helpers import rows
from tests.live import Live, running, small, until

pytestmark = pytest.mark.nats
SQUEEZED = TableRules(keep=1, every_s=3600.0, start=0.0, squeeze=0.0, rest=0.0)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a relay and a client do once in a while they do at once: nothing here is about how often."""
    for place in (
        "relay.upkeep._UPKEEP_S",
        "relay.state.SiteState.stall_s",
        "client.acknowledging._ACK_EVERY_S",
        "service.keeper._STORE_S",
    ):
        monkeypatch.setattr(f"headgate.{place}", 0.05)


class Relays:
    """The relays of a deployment, each of which runs only while a test wants it to."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.nodes: dict[str, RelayNode] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, *names: str) -> None:
        """Start relays, or start them anew with nothing but their logs."""
        for site in names:
            await cancel_all([self._tasks[site]] if site in self._tasks else [])
            self.nodes[site] = RelayNode(self.live.client.fabric, site)
            self._tasks[site] = asyncio.create_task(self.nodes[site].run())

    async def commit(self, batch: int) -> None:
        """Commit ten rows."""
        await self.live.commit("fleet", rows(10 * batch, 10 * batch + 10), batch)

    async def plan(self, **parents: str) -> None:
        """Put another tree in force."""
        self.live.runtime.catalog.set_plan(Plan({"fleet": Tree("fleet", "root", parents)}))
        await self.live.runtime.control.publish()

    async def taken(self, site: str, blocks: int) -> None:
        """Wait until a relay has taken so many blocks from its log."""

        async def done() -> bool:
            return self.nodes[site].machine.state.meters.blocks >= blocks

        await until(done)

    async def stop(self, *names: str) -> None:
        """Stop some relays, or all."""
        await cancel_all([self._tasks[site] for site in names or self._tasks])


def _run(directory: Path, nats_url: str, work: Callable[[Relays], Awaitable[None]], **wanted: dict[str, Any]) -> None:
    async def run() -> None:
        async with running(small(**wanted), directory, nats_url, relays=False, tables=SQUEEZED) as live:
            relays = Relays(live)
            try:
                await work(relays)
            finally:
                await relays.stop()

    asyncio.run(run())


async def state_of(fabric: Fabric, site: str) -> dict[str, tuple[int, int]]:
    """What a relay has last reported as settled."""
    stored = await fabric.last(fabric.logs.state, fabric.logs.stats("relay", site))
    assert stored is not None
    return dict(RelayReport.decode(stored.data).settled)


async def _squeezed(live: Live) -> dict[str, int]:
    """Where root logs are told to begin when there is no room for their past."""
    fabric = live.client.fabric
    await Purger(live.runtime.fabric, live.runtime.tables, live.runtime.control.room, SQUEEZED).look()
    stored = await fabric.last(fabric.logs.state, fabric.logs.oldest)
    assert stored is not None
    return Oldest.decode(stored.data).places


def test_a_first_block_that_a_later_one_overtakes_is_still_owed(tmp_path: Path, nats_url: str) -> None:
    async def work(relays: Relays) -> None:
        live = relays.live
        await relays.commit(0)  # will wait for `mid`, which does not run yet
        await relays.plan(mid="root", leaf="root")
        await relays.commit(1)
        assert await _squeezed(live) == {}  # nobody has had anything: the root may not forget it
        await relays.start("root", "leaf")
        live.readers.start(["mine", "two"])
        await relays.taken("leaf", 1)
        await relays.start("leaf")  # killed with the later block in its hands
        await relays.taken("leaf", 1)
        await relays.start("mid")
        await relays.commit(2)
        await relays.taken("leaf", 3)
        status = await live.settle()
        for name in ("mine", "two"):
            assert live.seqs(name) == list(range(1, 31))
            line = status["subscriptions"][name]
            assert (line["matched"], line["delivered"], line["difference"]) == (30, 30, 0)
        # Once more from the logs alone: nothing of it is new.
        await relays.start("leaf")
        await relays.commit(3)
        status = await live.settle()
        assert live.seqs("mine") == list(range(1, 41))
        assert status["subscriptions"]["mine"]["difference"] == 0

    _run(tmp_path, nats_url, work, mine={"site": "leaf"}, two={"site": "leaf", "select": ["speed"]})


def test_a_relay_that_runs_while_a_stream_begins_anew_forgets_what_it_knew_of_it(tmp_path: Path, nats_url: str) -> None:
    async def work(relays: Relays) -> None:
        live = relays.live
        await relays.start("root", "mid", "leaf")
        live.readers.start(["mine"])
        await relays.commit(0)
        await live.settle()
        await relays.stop("root", "mid")  # they would send the leaf again what is taken off its log
        before = relays.nodes["leaf"].machine
        catalog, fabric = live.runtime.catalog, live.client.fabric
        await fabric.clear(fabric.logs.site("leaf"), fabric.logs.links_of("leaf", "fleet"))
        now = catalog.snapshot().identity.incarnations["fleet"]
        catalog.begin_incarnations({"fleet": now.next("a trial", 1, 1)})
        await live.runtime.control.publish()

        async def anew() -> bool:
            return relays.nodes["leaf"].machine is not before and bool(relays.nodes["leaf"].machine.state.incarnations)

        await until(anew)
        state = relays.nodes["leaf"].machine.state
        assert await state_of(fabric, "leaf") != {}  # the old relay had stated how far it had come
        assert state.core.coverage("fleet") is None  # and the new one does not begin from there
        assert state.incarnations["fleet"] != now.id

    _run(tmp_path, nats_url, work, mine={"site": "leaf"})


def test_who_joins_later_is_owed_what_came_since_by_whatever_path_and_nothing_before(
    tmp_path: Path, nats_url: str
) -> None:
    async def work(relays: Relays) -> None:
        live = relays.live
        await relays.start("root", "leaf")
        live.readers.start(["here"])
        await relays.commit(0)
        await relays.commit(1)
        for name, start in (("later", "now"), ("all", "earliest")):
            wanted = {"stream": "fleet", "site": "leaf", "start": start}
            await live.client.control("subscribe", name=name, subscription=wanted)
        live.readers.start(["later", "all"])
        await relays.plan(mid="root", leaf="mid")
        await relays.commit(2)  # the first that the leaf is owed; `mid` does not run yet
        await relays.plan(leaf="root")
        await relays.commit(3)
        await relays.taken("leaf", 1)

        async def passed_over() -> bool:
            gap = relays.nodes["leaf"].machine.state.core.gap("fleet")
            return gap is not None and (gap.after, gap.upto) == (20, 30)

        await until(passed_over)
        await relays.start("mid")
        status = await live.settle()
        assert live.seqs("later") == list(range(21, 41))
        assert live.seqs("all") == live.seqs("here") == list(range(1, 41))
        assert {name: each["difference"] for name, each in status["subscriptions"].items()} == dict.fromkeys(
            ("here", "later", "all"), 0
        )
        assert status["subscriptions"]["later"]["starts"] == 20

    _run(tmp_path, nats_url, work, here={"site": "root"})


VERSIONS = [1, 1, 1, 1, 1, 2, 3, 3, 5, 5, 5, 5, 5, 5, 5, 6, 8]
SERVED = {3, 6}
NONE = np.zeros(0, dtype=np.uint64)


def test_the_root_knows_from_where_on_a_site_is_owed(nats_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.relay.entitlement._BATCH", 3)
    stream = Stream("s", Schema.of({"x": "int"}), Source("generator"), "lab")
    sites = {name: Site(name) for name in ("lab", "leaf")}
    plan = Plan({"s": Tree("s", "lab", {"leaf": "lab"})})
    wanted = {"mine": Subscription("mine", "s", "leaf")}

    async def work() -> None:
        async with await Fabric.connect(nats_url, Logs("owed")) as fabric:
            logs = fabric.logs
            for log in (logs.state, logs.tables, logs.root("s")):
                await fabric.ensure(log)
            for version in sorted(set(VERSIONS)):
                mine = wanted if version in SERVED else {}
                ids = dict.fromkeys(mine, 1)
                await publish_snapshot(
                    fabric, Snapshot(version, Deployment({"s": stream}, sites, subscriptions=mine), plan, ids, ids)
                )
            for number, version in enumerate(VERSIONS):
                await fabric.publish(logs.part("s"), b"")
                made = Manifest("s", "l", number, version, 10 * number, (PartRef(0, 10, 0),), NONE, NONE)
                await fabric.publish(logs.commit("s"), encode_manifest(made))
            tables, end = Tables(fabric), 10 * len(VERSIONS)
            for after in range(0, end, 15):
                for upto in range(after + 5, end + 1, 35):
                    owed = [seq for seq in range(after, upto) if VERSIONS[seq // 10] in SERVED]
                    request = RangeRequest(stream="s", after=after, upto=upto, owed="leaf")
                    found = await owed_from(fabric, request, lambda version: is_served(tables, version, "leaf", "s"))
                    assert found.begins == min([*owed, upto]), (after, upto)
                    run = [seq for seq in owed if VERSIONS[seq // 10] == found.version]
                    assert found.ends == (max(run) + 1 if owed else upto), (after, upto)

    asyncio.run(work())
