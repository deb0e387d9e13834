"""A hot spot of readers on six sites that serve a gridded stream, with replication and without it.

Every site has a NATS server of its own, on loopback in this process, and serves one part of the field with the same
bandwidth. All readers want the same corner, which one site owns. Each way begins with an empty deployment, and every
row that a reader got is compared with what was committed. Last line of the command: the figures as JSON.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import yaml

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.client.served import QueryRefusedError, ServedQuery
from headgate.fabric import cancel_all
from headgate.fabric.connecting import join
from headgate.fabric.listening import Listening
from headgate.fabric.place import choose_port
from headgate.fabric.rolekeys import site_credentials
from headgate.grid import layout_of
from headgate.grid.serving.served_grid import ServedGrid
from headgate.grid.serving.tiling import split_for
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.pipeline.worker import Address
from headgate.relay.hosted import open_host
from headgate.relay.node import RelayNode
from headgate.replicas.node import ReplicaNode
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

_SIDE: Final = 16
_LOGS: Final = Logs()
_SPOT: Final = {"box": {"x": [-0.5, 3.5], "y": [-0.5, 3.5]}}
_STREAM: Final = {
    "root": "home",
    "source": {"format": "nats"},
    "schema": {"i": "int", "j": "int", "step": "int", "v": "double"},
    "grid": {
        "x": {"column": "i", "size": _SIDE},
        "y": {"column": "j", "size": _SIDE},
        "block": 4,
        "time": {"tick": "step", "block": 8},
    },
}


def run(sites: int = 6, readers: int = 24, kbit: int = 400, seconds: float = 12.0) -> dict[str, Any]:
    """Both ways; `kbit` is the bandwidth of each site in kbit/s, `seconds` how long rows are committed with readers."""
    figures: dict[str, Any] = {"sites": sites, "readers": readers, "bandwidth_kbit_per_s": kbit}
    for name, replicas in (("without", False), ("with", True)):
        with tempfile.TemporaryDirectory() as directory:
            found = asyncio.run(_one_way(Path(directory), sites, readers, kbit, seconds, replicas))
        print(name, found, flush=True)
        figures |= {f"{key}_{name}": value for key, value in found.items()}
    return {**figures, "load": round(os.getloadavg()[0], 1)}


def _document(sites: int, kbit: int, replicas: bool) -> dict[str, Any]:
    names = [f"s{number}" for number in range(sites)]
    document: dict[str, Any] = {
        "sites": {name: {"upload": "unknown", "download": "unknown"} for name in ("home", *names)},
        "streams": {"wind": _STREAM},
        "plan": {"wind": dict.fromkeys(names, "home")},
        "options": {"replicas": replicas},
    }
    for name in names:
        document["sites"][name]["nats"] = f"nats://127.0.0.1:{choose_port()}"
    stream = parse_deployment(yaml.safe_dump(document), "replicas.yaml", GENERATOR_SCHEMAS).streams["wind"]
    layout = layout_of(stream)
    assert layout is not None
    grid = ServedGrid(layout)
    tiles = {names[0]: grid.whole}
    for name in names[1:]:
        cut, stays, given = split_for(tiles)
        tiles |= {cut: stays, name: given}
    document["subscriptions"] = {
        f"part-{site}": {"stream": "wind", "site": site, "region": grid.region(tile), "serves": f"{kbit} kbit/s"}
        for site, tile in tiles.items()
    }
    return document


@asynccontextmanager
async def _host(runtime: Runtime, site: str, port: int, directory: Path) -> AsyncIterator[ReplicaNode]:
    assert runtime.server is not None
    credentials = site_credentials(runtime.server.directory, "hg", site)
    snapshot = runtime.control.contexts.snapshot
    async with (
        await join(runtime.server.url, _LOGS, credentials) as home,
        open_host(home, site, directory / site, Listening(port=port), snapshot) as fabric,
    ):
        node = ReplicaNode(fabric, site)
        tasks = [asyncio.create_task(RelayNode(fabric, site).run()), asyncio.create_task(node.run())]
        try:
            yield node
        finally:
            await cancel_all(tasks)


class _Reader:
    def __init__(self, query: ServedQuery) -> None:
        self.query, self.refused = query, False
        self.values: list[float] = []
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            async with self.query as batches:
                async for batch in batches:
                    self.values += batch.column("v").to_pylist()
        except QueryRefusedError:
            self.refused = True


async def _one_way(
    directory: Path, sites: int, readers: int, kbit: int, seconds: float, replicas: bool
) -> dict[str, Any]:
    document = _document(sites, kbit, replicas)
    deployment = parse_deployment(yaml.safe_dump(document), "replicas.yaml", GENERATOR_SCHEMAS)
    settings = Settings(state_dir=directory / "state", job=False)
    async with (
        open_runtime(settings, deployment) as runtime,
        await Client.connect(state_dir=directory / "state") as client,
        AsyncExitStack() as stack,
    ):
        nodes = {}
        for name, site in deployment.sites.items():
            if site.nats is not None:
                port = int(site.nats.rsplit(":", 1)[1])
                nodes[name] = await stack.enter_async_context(_host(runtime, name, port, directory))
        stop, committed = asyncio.Event(), [0]
        assert runtime.server is not None
        feeding = asyncio.create_task(_feed(runtime.server.url, stop, committed))
        began = [_Reader(await client.query("wind", at="s0", region=_SPOT))]
        await asyncio.sleep(4.0)  # until what a cell costs is measured
        for number in range(1, readers):
            began.append(_Reader(await client.query("wind", at=f"s{number % sites}", region=_SPOT)))
            await asyncio.sleep(0.1)
        await asyncio.sleep(seconds)
        stop.set()
        await feeding
        await asyncio.sleep(4.0)  # what is on its way
        await cancel_all([each.task for each in began])
        served = [each for each in began if not each.refused]
        wanted = _wanted(committed[0])
        loads = {name: node.streams["wind"].load for name, node in nodes.items()}
        return {
            "refused": readers - len(served),
            "rows": sum(len(each.values) for each in served),
            "twice": sum(len(each.values) - len(set(each.values)) for each in began),
            "missing": sum(len(wanted - set(each.values)) for each in served),
            "moves": sum(each.query.moves for each in began),
            "gaps": sum(len(each.query.gaps) for each in began),
            "reader_bytes": sum(load.sent_bytes - load.replica_bytes for load in loads.values()),
            "replica_bytes": sum(load.replica_bytes for load in loads.values()),
            "most_at_one_site": max(load.sent_bytes for load in loads.values()),
            "sites_sending": sum(load.sent_rows > 0 for load in loads.values()),
        }


async def _feed(url: str, stop: asyncio.Event, committed: list[int]) -> None:
    with DirectCommits(Address(url, _LOGS), "bench") as direct:
        while not stop.is_set():
            await asyncio.to_thread(direct.commit, "wind", _rows(committed[0]), committed[0])
            committed[0] += 1
            await asyncio.sleep(0.2)


def _rows(step: int) -> pa.RecordBatch:
    j, i = (each.astype(np.int32) for each in np.divmod(np.arange(_SIDE * _SIDE), _SIDE))
    steps = np.full(_SIDE * _SIDE, step, dtype=np.int32)
    return pa.RecordBatch.from_pydict({"i": i, "j": j, "step": steps, "v": step * 1000.0 + j * _SIDE + i})


def _wanted(steps: int) -> set[float]:
    return {step * 1000.0 + j * _SIDE + i for step in range(steps) for j in range(4) for i in range(4)}
