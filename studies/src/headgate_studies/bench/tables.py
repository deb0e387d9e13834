"""The log of tables: how full it gets while the catalog changes all the time, and what a look at it costs.

The first part runs a deployment whose plan changes with every micro-batch, in a log that holds a small part of all
revisions; one subscriber stays away for a fifth of them at a time and comes back. Without deletion the log is full
after the revisions that it holds, which is the baseline. The second looks through many inboxes, against the obvious way
of reading the first message of each. The third is a storm (`tables_storm`): whatever a version that went too early
would do to somebody shows as an error, as rows that stay in flight, or in the ledger.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any, Final

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.fabric import EmbeddedServer, Fabric
from headgate.model import Deployment, Plan, Tree
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.worker import Address
from headgate.service.demo.run import Readers, drained
from headgate.service.named_versions import read_inboxes
from headgate.service.purging import TableRules
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.service.tables_room import NoRoomError
from headgate.wire.block import Block, Commit
from headgate.wire.logs import Logs
from headgate.wire.message import block_version, encode_block
from headgate.wire.snapshot import Snapshot
from headgate_studies.bench.tables_storm import storm
from headgate_studies.direct import DirectCommits

_ROWS: Final = 20
_DEPLOYMENT: Final = """
streams:
  fleet:
    root: root
    source: {format: generator, kind: fleet, seed: 5, limit: 1000000000}
    key: vehicle
    event_time: at
sites: {root: {}, one: {}, two: {}}
plan: {fleet: {one: root, two: one}}
subscriptions:
  away: {stream: fleet, site: two, select: [vehicle, speed]}
  there: {stream: fleet, site: one}
"""
_LISTS: Final = [f"list-{number}" for number in range(4)]


def _deployment() -> str:
    """The deployment with some long filters, so that a revision has some size."""
    lines = []
    for number, name in enumerate(_LISTS):
        cars = ", ".join(f"'{zlib.crc32(b'%d' % (1000 * number + each)):x}'" for each in range(200))
        lines.append(f'  {name}: {{stream: fleet, site: root, where: "vehicle in ({cars})"}}\n')
    return _DEPLOYMENT + "".join(lines)


def run(
    revisions: int = 600, limit_kb: int = 1024, inboxes: int = 10_000, seeds: int = 3, steps: int = 150
) -> dict[str, Any]:
    """A life of so many revisions in a log of that size, a look through so many inboxes, storms of so many steps."""
    with tempfile.TemporaryDirectory() as place:
        figures = asyncio.run(_life(Path(place), revisions, limit_kb << 10))
    with tempfile.TemporaryDirectory() as place:
        figures |= asyncio.run(_inboxes(Path(place), inboxes))
    for seed in range(1, seeds + 1):
        with tempfile.TemporaryDirectory() as place:
            found = asyncio.run(storm(Path(place), _deployment(), seed, steps, ["there", *_LISTS]))
        for name, value in found.items():
            figures[f"storms: {name}"] = figures.get(f"storms: {name}", 0.0) + value
    print(f"{'figure':<52} {'value':>12}")
    for name, value in figures.items():
        print(f"{name:<52} {value:>12,.4g}")
    return figures


async def _life(directory: Path, revisions: int, limit: int) -> dict[str, float]:
    deployment = parse_deployment(_deployment(), "tables.yaml", GENERATOR_SCHEMAS)
    rules = TableRules(every_s=0.5, start=0.0, limit_bytes=limit, rest=0.0)
    settings = Settings(state_dir=directory, job=False, tables=rules)
    most = refused = 0
    async with open_runtime(settings, deployment) as runtime:
        assert runtime.server is not None
        address = Address(runtime.server.url, Logs())
        async with await Client.connect(runtime.server.url) as client:
            readers = Readers(client, keep=False)
            readers.start(["there", *_LISTS])
            made = 0
            with DirectCommits(address) as direct:
                for number in range(revisions + 1):
                    try:
                        made += number > 0 and await _turn(runtime, number)
                    except NoRoomError:
                        refused += 1
                        await asyncio.sleep(rules.every_s)
                    rows = generate("fleet", 5, _ROWS * number, _ROWS * (number + 1))
                    await asyncio.to_thread(direct.commit, "fleet", rows, number)
                    await runtime.control.room.refresh(runtime.fabric)
                    most = max(most, runtime.control.room.bytes)
                    if number % (revisions // 5) == 0:  # the one who was away comes back
                        reader = Readers(client, keep=False)
                        reader.start(["away"])
                        while not drained(status := await runtime.status()):
                            reader.check()
                            await asyncio.sleep(0.1)
                        await reader.stop()
            size = len(runtime.catalog.snapshot().to_bytes())
            found = {
                "revisions made": float(made),
                "refused for want of room": float(refused),
                "revisions that the log holds": limit / (size + 100),
                "fullest, as a part of the log": most / limit,
                "versions deleted": float(runtime.purger.purger.purged if runtime.purger else 0),
                "ledger difference": float(sum(abs(each["difference"]) for each in status["subscriptions"].values())),
            }
            await readers.stop()
    return found


async def _turn(runtime: Runtime, number: int) -> bool:
    """Hang one site below the other, in turns: a revision for which everybody gets new tables."""
    first, second = ("one", "two") if number % 2 else ("two", "one")
    runtime.catalog.set_plan(Plan({"fleet": Tree("fleet", "root", {first: "root", second: first})}))
    await runtime.control.publish()
    return True


async def _inboxes(directory: Path, inboxes: int) -> dict[str, float]:
    """Seconds of a look through inboxes with one message each."""
    with EmbeddedServer(directory, sync_always=False) as server:
        async with await Fabric.connect(server.url, Logs()) as fabric:
            logs, log = fabric.logs, fabric.logs.inbox("leaf")
            await fabric.ensure(log)
            await fabric.ensure(logs.state)
            ids = range(1, inboxes + 1)
            for start in range(0, inboxes, 500):
                part = ids[start : start + 500]
                await asyncio.gather(*(fabric.publish(logs.delivery("leaf", each), _message(each)) for each in part))
            snapshot = Snapshot(1, Deployment({}, {}), None, {f"s{each}": each for each in ids}, {})
            began = time.perf_counter()
            found = await read_inboxes(fabric, snapshot, 0.0)
            ours = time.perf_counter() - began
            began = time.perf_counter()
            plain = set()
            for each in ids:
                stored = await fabric.read(log, logs.delivery("leaf", each), 0, limit=1)
                plain.add(block_version(stored[0].data))
            peer = time.perf_counter() - began
    assert {low for each in found.names for low, _ in each.ranges} == plain
    return {
        "inboxes looked through per second": inboxes / ours,
        "speed-up over reading the first message of each": peer / ours,
    }


def _message(identity: int) -> bytes:
    import numpy as np
    import pyarrow as pa

    commit = Commit(0, 10, identity % 50, 0, 0, 0)
    rows = pa.RecordBatch.from_pylist([], schema=pa.schema([]))
    return encode_block(Block("fleet", 0, 10, (commit,), np.zeros(0, np.uint64), rows, None))
