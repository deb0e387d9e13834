"""Versions of the catalog go when nothing names them, and only then: with readers away, sites cut off, and kills."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.live import Live, running, small, until

from headgate import faults
from headgate.client.errors import ClientError
from headgate.fabric import Fabric, FabricError, SyncFabric
from headgate.model import Deployment, Schema, Site, Source, Stream, Subscription
from headgate.pipeline.commit import pin_batch
from headgate.pipeline.sources import generate
from headgate.protocol.port import GoneError
from headgate.protocol.published import load_snapshot
from headgate.protocol.records import Pin, Purging, RangeRequest
from headgate.protocol.reports import RelayReport
from headgate.relay.asking import fetch_blocks
from headgate.relay.holds import HeldRanges
from headgate.relay.node import RelayNode
from headgate.relay.tables import Tables, publish_snapshot
from headgate.service.purging import Purger, TableRules
from headgate.service.tables_room import TablesRoom
from headgate.wire.logs import Logs
from headgate.wire.message import block_range
from headgate.wire.sealed import read_number
from headgate.wire.snapshot import Snapshot, SnapshotWriter

pytestmark = pytest.mark.nats
RULES = TableRules(keep=2, every_s=3600.0, start=0.0, rest=0.0)
SQUEEZED = TableRules(keep=2, every_s=3600.0, start=0.0, squeeze=0.0, rest=0.0)


async def _versions(fabric: Fabric) -> list[int]:
    found = await fabric.subjects(fabric.logs.tables, f"{fabric.logs.namespace}.tables.*")
    return sorted(int(subject.rsplit(".", 1)[1]) for subject in found if "-" not in subject)


async def _change(live: Live, times: int = 1) -> int:
    """Make revisions that change nothing for the rows; returns the last."""
    for _ in range(times):
        other = {"stream": "fleet", "site": "root", "where": f"speed > {1000 + live.runtime.catalog.head()}"}
        await live.client.control("subscribe", name="other", change=True, subscription=other)
    return live.runtime.catalog.head()


async def _commit(live: Live, batch: int, rows: int = 50) -> int:
    """Commit rows under the newest version; returns that."""
    await live.commit("fleet", generate("fleet", 3, rows * batch, rows * (batch + 1)), batch)
    return live.runtime.catalog.head()


async def _settled(live: Live, upto: int, *sites: str) -> None:
    """Wait until relays have stated that they passed everything on."""

    async def stated() -> bool:
        reports = [await live.client.fabric.last(logs.state, logs.stats("relay", site)) for site in sites]
        found = [RelayReport.decode(each.data).settled if each else {} for each in reports]
        return all(each.get("fleet", (0, 0))[0] >= upto for each in found)

    logs = live.client.fabric.logs
    await until(stated)


async def _arrived(live: Live, name: str, messages: int) -> None:
    """Wait until so many messages are in the inbox of a subscription that nobody reads."""
    fabric, snapshot = live.client.fabric, live.runtime.catalog.snapshot()
    site, identity = snapshot.deployment.subscriptions[name].site, snapshot.subscription_ids[name]
    subject = fabric.logs.delivery(site, identity)

    async def stored() -> bool:
        return (await fabric.subjects(fabric.logs.inbox(site), subject)).get(subject, 0) >= messages

    await until(stored)


def forgotten(upto: int) -> RangeRequest:
    """The question of a site how far a root has forgotten a range."""
    return RangeRequest(stream="fleet", after=0, upto=upto, child="leaf", past=True)


def _purger(live: Live) -> Purger:
    """A purger on the deployment's own connection, which looks when it is told to."""
    runtime = live.runtime
    return Purger(runtime.fabric, runtime.tables, runtime.control.room, runtime.settings.tables)


async def _look(live: Live) -> list[int]:
    """Look twice, as nothing goes at first sight; returns what is left."""
    purger = _purger(live)
    await purger.look()
    await purger.look()
    return await _versions(live.client.fabric)


async def _cut_off(live: Live, site: str) -> None:
    """Kill a site's relay."""
    task = next(task for task in reversed(live.runtime._tasks) if task.get_name() == f"relay {site}")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _restart(live: Live, site: str) -> None:
    """Start a site's relay, with nothing but its logs."""
    live.runtime._spawn(RelayNode(live.runtime.fabric, site).run(), f"relay {site}")


@pytest.mark.long
def test_named_versions_stay_for_those_who_are_away_and_all_others_go(tmp_path: Path, nats_url: str) -> None:
    document = small(100, away={"site": "leaf", "select": ["speed"]}, there={"site": "mid"}, other={"site": "root"})

    async def run() -> None:
        async with running(document, tmp_path, nats_url, tables=SQUEEZED) as live:
            logs = live.client.fabric.logs
            live.readers.start(["there", "other"])
            first = await _commit(live, 0)
            await _arrived(live, "away", 1)
            with pytest.raises(FabricError, match="root has nothing of 'fleet'"):  # rows are the parent's to send
                await fetch_blocks(live.client.fabric, "root", forgotten(50))
            # From here on the site log of `leaf` is all that names some versions.
            await _cut_off(live, "leaf")
            await _change(live, 3)
            second = await _commit(live, 1)
            await _change(live, 3)
            third = await _commit(live, 2)
            head = await _change(live, 4)
            await _settled(live, 150, "root", "mid")

            async def only_named() -> bool:
                return await _look(live) == [first, second, third, head - 1, head]

            await until(only_named)
            status = await live.runtime.status()
            assert status["tables"]["versions"] == 5
            assert "'leaf'" in status["tables"]["held_by"]
            assert all(each["difference"] == 0 for each in status["subscriptions"].values())

            _restart(live, "leaf")
            live.readers.start(["away"])
            status = await live.settle()
            assert live.seqs("away") == list(range(1, 151))
            assert live.rows("away").column_names == ["speed"]
            assert all(each["difference"] == 0 for each in status["subscriptions"].values())

            async def let_go() -> bool:
                return await _look(live) == [third, head - 1, head]

            await until(let_go)  # of the past that the root log kept, too
            assert await live.client.fabric.subjects(logs.root("fleet"), logs.commit("fleet")) == {
                logs.commit("fleet"): 1
            }
            with pytest.raises(GoneError, match=f"version {first} of the catalog is gone"):
                await Tables(live.client.fabric).snapshot(first)
            # Sites that come back are told that nothing is owed to them there, readers that they come too late.
            answer = await fetch_blocks(live.client.fabric, "root", forgotten(120))
            assert [block_range(each) for each in answer] == [(0, 100)]
            begin = live.readers.deliveries["other"][0].position
            with pytest.raises(ClientError, match="rows 51 to 100 of 'fleet' are no longer kept"):  # noqa: PT012
                async with asyncio.timeout(20):
                    async for _ in await live.client.subscribe("other", position=begin, peek=True):
                        pass
            # The log of `leaf` still has blocks of versions that are gone: all of them are settled.
            await _cut_off(live, "leaf")
            _restart(live, "leaf")
            await _commit(live, 3)
            status = await live.settle()
            assert live.seqs("away") == list(range(1, 201))
            assert all(each["difference"] == 0 for each in status["subscriptions"].values())

    asyncio.run(run())


def test_a_change_that_does_not_fit_is_refused_whole_and_says_what_is_in_the_way(tmp_path: Path, nats_url: str) -> None:
    document = small(100, away={"site": "root"}, there={"site": "root"}, other={"site": "root"})
    rules = TableRules(keep=2, every_s=3600.0, start=0.0, limit_bytes=78_000, rest=0.0)

    async def run() -> None:
        async with running(document, tmp_path, nats_url, tables=rules) as live:
            live.readers.start(["there", "other"])
            await _commit(live, 0)
            await _change(live, 2)
            await _commit(live, 1)
            await _arrived(live, "away", 2)
            with pytest.raises(ClientError, match=r"no room for another revision.*try again"):
                await _change(live, 100)
            head, fabric = live.runtime.catalog.head(), live.client.fabric
            stored = await fabric.last(fabric.logs.state, fabric.logs.head)
            assert stored is not None
            assert read_number(stored.data) == head == (await _versions(fabric))[-1] > 10

            purger = _purger(live)
            await purger.look()
            with pytest.raises(ClientError, match=r"the oldest is held by the inbox of .* 'away'.*`expires`"):
                await _change(live)
            assert live.runtime.catalog.head() == head
            assert (await live.runtime.status())["tables"]["full"]
            await purger.look()
            assert await _change(live) == head + 1
            await _commit(live, 2)
            live.readers.start(["away"])
            status = await live.settle()
            assert status["subscriptions"]["away"]["delivered"] == 150
            assert all(each["difference"] == 0 for each in status["subscriptions"].values())

    asyncio.run(run())


STREAM = Stream("s", Schema.of({"x": "int"}), Source("generator"), "lab")
DEPLOYMENT = Deployment({"s": STREAM}, {"lab": Site("lab")})
KILLED = """
import asyncio, sys
from headgate.fabric import Fabric
from headgate.wire.logs import Logs
from headgate.relay.tables import Tables
from headgate.service.purging import Purger, TableRules
from headgate.service.tables_room import TablesRoom
from headgate.wire.message import block_range

async def work():
    async with await Fabric.connect(sys.argv[1], Logs(sys.argv[2])) as fabric:
        rules = TableRules(keep=2, start=0.0, rest=0.0)
        purger = Purger(fabric, Tables(fabric), TablesRoom(fabric.logs.tables_bytes), rules)
        for _ in range(2):
            await purger.look()

asyncio.run(work())
"""


def test_a_kill_in_the_middle_leaves_nothing_that_hurts(nats_url: str) -> None:
    logs = Logs("killedpurge")

    async def publish(fabric: Fabric) -> None:
        for log in (logs.state, logs.tables, logs.root("s")):
            await fabric.ensure(log)
        for version in range(1, 7):
            await publish_snapshot(fabric, Snapshot(version, DEPLOYMENT), most=60)
        await fabric.publish(logs.pin("s"), Pin(2, batch=3).encode())

    async def look(fabric: Fabric) -> list[int]:
        purger = Purger(fabric, Tables(fabric), TablesRoom(fabric.logs.tables_bytes), RULES)
        return await purger.look() + await purger.look()

    async def work() -> None:
        async with await Fabric.connect(nats_url, logs) as fabric:
            await publish(fabric)
            code = str(Path(faults.__file__).parents[1])
            environment = {**os.environ, faults.VARIABLE: "tables.deleting@2", "PYTHONPATH": code}
            command = [sys.executable, "-c", KILLED, nats_url, logs.namespace]
            ended = await asyncio.to_thread(subprocess.run, command, env=environment, timeout=60, check=False)
            assert ended.returncode == -9
            left = await fabric.subjects(logs.tables, f"{logs.namespace}.tables.*")
            assert logs.table(4) not in left
            assert logs.table_part(4, 1) not in left
            assert logs.table_part(4, 2) in left
            with pytest.raises(GoneError):
                await Tables(fabric).snapshot(4)
            for version in (1, 2, 3, 5, 6):
                assert (await Tables(fabric).snapshot(version)).revision == version
            assert await look(fabric) == [1, 3, 4]
            assert await _versions(fabric) == [2, 5, 6]
            assert not [each for each in await fabric.subjects(logs.tables, "*.tables.*") if ".4-" in each]

            # Who stated what it uses before it was announced keeps it; who comes later sees the announcement.
            holds = HeldRanges(fabric, "lab")
            assert await holds.take("s", {5: 40})
            await publish_snapshot(fabric, Snapshot(7, DEPLOYMENT))
            await publish_snapshot(fabric, Snapshot(8, DEPLOYMENT))
            assert await look(fabric) == [6]
            assert not await holds.take("s", {6: 50})
            await fabric.publish(logs.purging, Purging(versions=[2]).encode())
            await holds.release(lambda _: 40)
            assert await look(fabric) == [5]
            with pytest.raises(FabricError):
                await Tables(fabric).snapshot(5)

    asyncio.run(work())
    with SyncFabric(nats_url, logs) as fabric:
        fabric.publish(logs.purging, Purging(versions=[2]).encode())
        assert pin_batch(fabric, "s", 3).version == 8
        assert pin_batch(fabric, "s", 3).version == 8
        fabric.publish(logs.pin("s"), Pin(3, batch=4).encode())
        assert pin_batch(fabric, "s", 4).version == 8


def test_what_others_are_changes_of_stays(nats_url: str) -> None:
    """Whole are 1, 5 and 9; the rest are changes of the one before."""
    logs = Logs("changespurge")

    async def publish(fabric: Fabric) -> None:
        for log in (logs.state, logs.tables, logs.root("s")):
            await fabric.ensure(log)
        names = [f"n{k * 7919 % 1009:04}" for k in range(200)]
        others = {name: Subscription(name, "s", "lab", f"x > {k * k}") for k, name in enumerate(names)}
        writer = SnapshotWriter()
        for version in range(1, 12):
            if version in (5, 9):
                writer = SnapshotWriter()
            wanted = others | {"z": Subscription("z", "s", "lab", f"x > {version}")}
            ids = {name: k for k, name in enumerate(wanted)}
            deployment = replace(DEPLOYMENT, subscriptions=wanted)
            await publish_snapshot(fabric, Snapshot(version, deployment, None, ids, ids), writer=writer)

    async def work() -> None:
        async with await Fabric.connect(nats_url, logs) as fabric:
            await publish(fabric)
            purger = Purger(fabric, Tables(fabric), TablesRoom(fabric.logs.tables_bytes), RULES)
            await fabric.publish(logs.pin("s"), Pin(7, batch=3).encode())
            assert await purger.look() + await purger.look() == [1, 2, 3, 4, 8]
            for version in (5, 6, 7, 9, 10, 11):
                async with await Fabric.connect(nats_url, logs) as reader:
                    found = await load_snapshot(reader, version)
                    assert found is not None
                    assert found.deployment.subscriptions["z"].where == f"x > {version}"
            await fabric.publish(logs.pin("s"), Pin(11, batch=4).encode())
            assert await purger.look() + await purger.look() == [5, 6, 7]
            assert await _versions(fabric) == [9, 10, 11]

    asyncio.run(work())
