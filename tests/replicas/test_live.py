"""Sites that serve a gridded stream: any of them is asked, parts move to replicas, and every row comes once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from tests.live import until
from tests.service.test_hosts import Hosts

from headgate.catalog import DeploymentError, parse_deployment
from headgate.client import Client
from headgate.client.served import QueryRefusedError, ServedQuery
from headgate.fabric import cancel_all
from headgate.fabric.place import choose_port
from headgate.fabric.placed import HostFabric
from headgate.grid.predicate import grid_predicate
from headgate.model import Subscription
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.pipeline.worker import Address
from headgate.protocol.reports import GridReport
from headgate.replicas.node import ReplicaNode
from headgate.service.reports import shown
from headgate.service.runtime import open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

pytestmark = [pytest.mark.nats, pytest.mark.long]
SIDE = 16


def document(bandwidth: str = "8 Mbit/s", **options: Any) -> dict[str, Any]:
    """A field of 16 by 16 points at `root`, its halves served by `a` and `b`."""
    return {
        "sites": {name: {"upload": "unknown", "download": "unknown"} for name in ("root", "a", "b")},
        "streams": {
            "wind": {
                "root": "root",
                "source": {"format": "nats"},
                "schema": {"i": "int", "j": "int", "step": "int", "v": "double"},
                "grid": {
                    "x": {"column": "i", "size": SIDE},
                    "y": {"column": "j", "size": SIDE},
                    "block": 4,
                    "time": {"tick": "step", "block": 8},
                },
            }
        },
        "plan": {"wind": {"a": "root", "b": "root"}},
        "subscriptions": {
            "west": {"stream": "wind", "site": "a", "region": {"box": {"x": [-0.5, 7.5]}}, "serves": bandwidth},
            "east": {"stream": "wind", "site": "b", "region": {"box": {"x": [7.5, 15.5]}}, "serves": bandwidth},
        },
        "options": options,
    }


def rows_of(first: int, steps: int) -> pa.RecordBatch:
    j, i = np.divmod(np.tile(np.arange(SIDE * SIDE), steps), SIDE)
    step = np.repeat(np.arange(first, first + steps), SIDE * SIDE)
    table = {"i": i, "j": j, "step": step, "v": step * 1000.0 + j * SIDE + i}
    types = {"i": pa.int32(), "j": pa.int32(), "step": pa.int32(), "v": pa.float64()}
    return pa.RecordBatch.from_pydict({name: pa.array(table[name], kind) for name, kind in types.items()})


class Field(Hosts):
    """A deployment that commits steps of the field."""

    steps = 0

    async def commit_steps(self, steps: int) -> None:
        def work() -> None:
            with DirectCommits(Address(self.server.url, Logs()), "test") as direct:
                direct.commit("wind", rows_of(self.steps, steps), self.steps)

        await asyncio.to_thread(work)
        self.steps += steps

    def expected(self, **asked: Any) -> list[float]:
        stream = self.runtime.control.contexts.snapshot.deployment.streams["wind"]
        predicate = grid_predicate(Subscription("q", "wind", "", **asked), stream)
        rows = rows_of(0, self.steps)
        kept = rows if predicate is None else rows.filter(pa.array(predicate.evaluate(rows, {})))
        return sorted(kept.column("v").to_pylist())

    @asynccontextmanager
    async def host(self, site: str) -> AsyncIterator[HostFabric]:
        async with super().host(site) as fabric:
            parts = asyncio.create_task(ReplicaNode(fabric, site).run())
            try:
                yield fabric
            finally:
                await cancel_all([parts])


class Got:
    """What a query gives, as it comes."""

    def __init__(self, query: ServedQuery) -> None:
        self.query, self.values, self.refused = query, [], False
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            async with self.query as batches:
                async for batch in batches:
                    self.values += batch.column("v").to_pylist()
        except QueryRefusedError:
            self.refused = True

    async def has_or_is_refused(self, wanted: list[float]) -> bool:
        """Whether exactly these values came, each once; a query may be refused instead."""

        async def done() -> bool:
            assert len(self.values) <= len(wanted), "a row came twice"
            return self.refused or len(self.values) == len(wanted)

        await until(done, 30.0)
        assert self.refused or sorted(self.values) == wanted
        return not self.refused

    async def has(self, wanted: list[float]) -> None:
        assert await self.has_or_is_refused(wanted)


@asynccontextmanager
async def served(directory: Path, given: dict[str, Any], hosts: tuple[str, ...] = ()) -> AsyncIterator[Field]:
    ports = {site: choose_port() for site in hosts}
    for site, port in ports.items():
        given["sites"][site]["nats"] = f"nats://127.0.0.1:{port}"
    deployment = parse_deployment(yaml.safe_dump(given), "test.yaml", GENERATOR_SCHEMAS)
    settings = Settings(state_dir=directory / "state", job=False)
    async with (
        open_runtime(settings, deployment) as runtime,
        await Client.connect(state_dir=directory / "state") as operator,
    ):
        here = Field(runtime, operator, directory)
        here.ports = ports
        yield here


@pytest.mark.parametrize("hosts", [(), ("a", "b")], ids=["one server", "hosts"])
def test_parts_of_two_sites_are_put_together_and_any_site_is_asked(tmp_path: Path, hosts: tuple[str, ...]) -> None:
    asked = {"region": {"box": {"x": [3, 12], "y": [2, 11]}}, "resolution": {"space": "1/2"}}

    async def run() -> None:
        async with served(tmp_path, document(), hosts) as here, AsyncExitStack() as stack:
            for site in hosts:
                await stack.enter_async_context(here.host(site))
            await here.commit_steps(2)
            whole = Got(await here.operator.query("wind", at="a"))
            part = Got(await here.operator.query("wind", at="b", **asked))
            try:
                await whole.has(here.expected())
                await part.has(here.expected(**asked))
                await here.commit_steps(3)
                await whole.has(here.expected())
                await part.has(here.expected(**asked))
                assert whole.query.sites == part.query.sites == ("a", "b")
                assert whole.query.gaps == []
                assert whole.query.covered == here.steps * SIDE * SIDE
            finally:
                await cancel_all([whole.task, part.task])

    asyncio.run(run())


def test_a_part_that_cannot_be_served_is_refused_with_the_file(tmp_path: Path) -> None:
    given = document()
    given["subscriptions"]["west"]["where"] = "v > 3"
    given["subscriptions"]["east"]["region"] = {"box": {"x": [7.0, 15.5]}}
    with pytest.raises(DeploymentError) as caught:
        parse_deployment(yaml.safe_dump(given), "test.yaml", GENERATOR_SCHEMAS)
    assert "has all rows of its box" in str(caught.value)
    assert "does not run along sides" in str(caught.value)


def test_a_hot_spot_is_replicated_and_every_reader_has_every_row_once(tmp_path: Path) -> None:
    """Readers of one part at `a`, half more than it has bandwidth for: some are served by `b`.

    How many that are depends on how fast this machine makes rows, so it is measured with the first.
    """
    spot = {"region": {"box": {"x": [-0.5, 3.5], "y": [-0.5, 3.5]}}}

    async def run() -> None:
        async with served(tmp_path, document("40 kbit/s"), ("a", "b")) as here, AsyncExitStack() as stack:
            for site in ("a", "b"):
                await stack.enter_async_context(here.host(site))
            stop = asyncio.Event()
            feeding = asyncio.create_task(_feed(here, stop))
            first = Got(await here.operator.query("wind", at="b", **spot))

            async def parts(site: str) -> dict[str, Any]:
                stored = await here.operator.fabric.last(Logs().state, Logs().stats("grid", site))
                found = {} if stored is None else shown(GridReport.decode(stored.data))["streams"]
                return dict(found.get("wind", {}))

            async def measured() -> float:
                found = await parts("a")
                return float(found["load"]) if found.get("capacity_cells") and found["readers"] else 0.0

            readers = [first]
            try:
                more = math.ceil(1.5 / await until(measured))
                assert more < 200
                readers += [Got(await here.operator.query("wind", at="ab"[each % 2], **spot)) for each in range(more)]

                async def replicated() -> bool:
                    return bool((await parts("b")).get("replicas"))

                await until(replicated)

                async def moved() -> bool:
                    return any("b" in each.query.sites for each in readers)

                await until(moved)
                status = (await here.runtime.status())["parts"]
                assert status["b"]["streams"]["wind"]["replicas"]
                stop.set()
                await feeding
                wanted = here.expected(**spot)
                whole = [each for each in readers if await each.has_or_is_refused(wanted)]
                assert whole  # how many are refused depends on how much one reader takes of a site
                assert all(each.query.gaps == [] for each in whole)
                await cancel_all([each.task for each in readers])

                async def gone() -> bool:
                    found = [await parts(site) for site in "ab"]
                    return not any(each["replicas"] or each["sends_to"] or each["readers"] for each in found)

                await until(gone, 30.0)
            finally:
                await cancel_all([feeding, *(each.task for each in readers)])

    asyncio.run(run())


def test_sites_join_and_leave_by_command_while_a_reader_reads(tmp_path: Path) -> None:
    given = document()
    given["subscriptions"] = {}

    async def command(*words: str) -> Any:
        place = ("--state-dir", str(tmp_path / "state"))
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headgate.cli", *words, *place, stdout=subprocess.PIPE
        )
        async with asyncio.timeout(60):
            said, _ = await child.communicate()
        assert child.returncode == 0
        return json.loads(said)

    async def run() -> None:
        async with served(tmp_path, given) as here:
            first = await command("parts", "join", "wind", "a", "--bandwidth", "8 Mbit/s")
            assert len(first["made"]) == 1
            stop = asyncio.Event()
            feeding = asyncio.create_task(_feed(here, stop))
            reader = Got(await here.operator.query("wind", at="a"))
            readers = [reader]
            try:
                joined = await command("parts", "join", "wind", "b", "--bandwidth", "8 Mbit/s")
                assert len(joined["made"]) == 2
                assert joined["ended"] == list(first["made"])

                async def shown() -> bool:
                    found = await command("parts", "show", "--json")
                    return all(found.get(site, {}).get("streams", {}).get("wind") for site in "ab")

                await until(shown, 60.0)
                left = await command("parts", "leave", "wind", "a")
                assert set(left["ended"]) == set(joined["made"])
                assert len(left["made"]) == 1
                later = here.steps + 25  # five seconds of rows, and a look every second, after the parts have changed

                async def reached() -> bool:
                    return here.steps >= later

                await until(reached, 60.0)
                whole = Got(await here.operator.query("wind", at="b"))
                readers.append(whole)
                picture = tmp_path / "map.png"
                asked = ("--query", '{"resolution": {"space": "1/2"}}', "--seconds", "2", "--png", str(picture))
                drawn = await command("view", "wind", "--served", "b", *asked)
                assert drawn["value"] == "v"
                assert drawn["share"] == 0.5
                assert picture.read_bytes().startswith(b"\x89PNG")
                stop.set()
                await feeding
                last = set(here.expected()[-25 * SIDE * SIDE :])

                async def has_last() -> bool:
                    return all(each.refused or last <= set(each.values) for each in readers)

                await until(has_last, 120.0)
                for each in readers:
                    assert not each.refused
                    assert len(each.values) == len(set(each.values))
            finally:
                stop.set()
                await cancel_all([feeding, *(each.task for each in readers)])

    asyncio.run(run())


async def _feed(here: Field, stop: asyncio.Event) -> None:
    """Commit a step five times a second; one that has begun is finished, as what is expected counts on it."""
    while not stop.is_set():
        await here.commit_steps(1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await stop.wait()
