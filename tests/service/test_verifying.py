"""`verify` of deployments with all that they can store: whole ones are whole, and one changed bit anywhere is named."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from tests.live import until

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.deriving import derivation_of
from headgate.fabric import EmbeddedServer, Fabric, SyncFabric
from headgate.pipeline.derived_memory import DerivedMemory
from headgate.pipeline.deriving import ORDER, MemoryHeads, derived_rows
from headgate.pipeline.sources.jsontext import RAW
from headgate.pipeline.validate import DEAD
from headgate.pipeline.worker import Address
from headgate.protocol.port import Stored
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.service.stored_messages import message_kind
from headgate.service.verifying import Verified, verify_directory
from headgate.wire.logs import Log, Logs
from headgate_studies.direct import DirectCommits

pytestmark = pytest.mark.nats
LOGS = Logs()
CARS = {"car": "string", "at": "timestamp", "v": "double"}
DOCUMENT: dict[str, Any] = {
    "sites": {name: {"upload": "unknown", "download": "unknown"} for name in ("root", "a", "b")},
    "streams": {
        "cars": {
            "root": "root",
            "source": {"format": "json", "path": "/nowhere"},
            "schema": CARS,
            "key": "car",
            "event_time": "at",
            "derive": {"before": "previous(v)"},
        },
        "notes": {"root": "root", "source": {"format": "nats"}, "schema": {"text": "string"}},
        "wind": {
            "root": "root",
            "source": {"format": "nats"},
            "schema": {"i": "int", "j": "int", "step": "int", "v": "double"},
            "grid": {
                "x": {"column": "i", "size": 16},
                "y": {"column": "j", "size": 16},
                "block": 4,
                "time": {"tick": "step", "block": 8},
            },
        },
    },
    "plan": {"cars": {"a": "root"}, "notes": {"a": "root"}, "wind": {"a": "root", "b": "root"}},
    "subscriptions": {
        "work": {"stream": "cars", "site": "a", "where": "before > 1", "group": True},
        "texts": {"stream": "cars", "site": "a", "format": "json"},
        "west": {"stream": "wind", "site": "a", "region": {"box": {"x": [-0.5, 7.5]}}, "serves": "8 Mbit/s"},
        "east": {"stream": "wind", "site": "b", "region": {"box": {"x": [7.5, 15.5]}}, "serves": "8 Mbit/s"},
    },
}
WANTED = {
    "a memory of derived columns", "staged rows", "a manifest", "dead letters", "a parcel", "published rows",
    "rows published at a site", "what a sender at a site gave up", "a block of a link", "a delivery",
    "an acknowledgement", "sums of the ledger", "a revision of the catalog", "hg.stats.grid", "hg.stats.groups",
}  # fmt: skip


class Whole:
    """A deployment that runs without Spark, with what Spark would have stored."""

    def __init__(self, runtime: Runtime, client: Client) -> None:
        self.runtime, self.client = runtime, client

    async def commit(self) -> None:
        """Rows with derived columns, and their memory; a step of a field, which two sites serve."""
        assert self.runtime.server is not None
        address = Address(self.runtime.server.url, LOGS)
        deployment = self.runtime.control.contexts.snapshot.deployment

        def work() -> None:
            start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
            rows = [{"car": "ab"[n % 2], "at": start + dt.timedelta(seconds=n), "v": float(n)} for n in range(40)]
            types = {"car": pa.string(), "at": pa.timestamp("us", "UTC"), "v": pa.float64()}
            batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema(types.items()))
            for name in (DEAD, RAW):
                batch = batch.append_column(name, pa.nulls(len(rows), pa.string()))
            batch = batch.append_column(ORDER, pa.array(range(len(rows)), pa.int64()))
            with SyncFabric(address.url, LOGS) as fabric, DirectCommits(address, "test") as direct:
                derivation = derivation_of(deployment.streams["cars"])
                assert derivation is not None
                memory = DerivedMemory(fabric, "cars")
                found, told = derived_rows(memory, derivation, MemoryHeads((0,), frozenset()), 0, iter([batch]))
                assert told
                named = deployment.streams["cars"].schema.names
                direct.commit("cars", found[0].select(named), 0, dead=[None] * 39 + ["broken"])
                field = {"i": list(range(16)), "j": [3] * 16, "step": [0] * 16, "v": [float(n) for n in range(16)]}
                kinds = deployment.streams["wind"].schema.arrow
                direct.commit("wind", pa.RecordBatch.from_pydict(field, schema=kinds), 0)

        await asyncio.to_thread(work)

    async def carry(self) -> None:
        """Rows that are published at a site and go up to the root."""
        for each in range(3):
            await self.client.publish("notes", [{"text": f"up {each}"}], site="a")
        await self.client.publish("notes", [{"text": "at home"}])
        await until(lambda: self.client.fabric.last(LOGS.input("notes"), LOGS.carried("notes")))

    async def deal(self) -> None:
        """A member of a group, and a reader of JSON."""
        async with self.client.join("work", "one", max_rows=50) as member:
            await until(lambda: member.next(1.0))
            await until(lambda: self.client.fabric.last(LOGS.state, LOGS.stats("groups", "_")))
        inbox = await self.client.subscribe("texts")
        assert len((await anext(aiter(inbox))).seqs)
        await inbox.close()

    async def served(self) -> None:
        """The reports of the sites that serve parts."""

        async def told() -> bool:
            found = [await self.client.fabric.last(LOGS.state, LOGS.stats("grid", site)) for site in "ab"]
            parts = (await self.runtime.status())["parts"]
            return all(found) and all(parts.get(site, {}).get("streams", {}).get("wind") for site in "ab")

        await until(told)


@asynccontextmanager
async def whole(state: Path) -> AsyncIterator[Whole]:
    deployment = parse_deployment(yaml.safe_dump(DOCUMENT), "test.yaml")
    async with (
        open_runtime(Settings(state_dir=state, job=False), deployment) as runtime,
        await Client.connect(state_dir=state) as client,
    ):
        yield Whole(runtime, client)


async def all_messages(fabric: Fabric) -> list[tuple[str, Stored]]:
    found = []
    for name in await fabric.infos(LOGS.everything):
        log = Log(name, (LOGS.everything,), 0)
        found += [(name, stored) for stored in await fabric.read(log, LOGS.everything, 0, limit=10_000)]
    return found


def looked_at(state: Path) -> Verified:
    """What is said of a deployment that does not run."""
    return asyncio.run(verify_directory(state, LOGS))


def flip(state: Path, log: str, content: bytes) -> None:
    """Change one bit in the middle of a message's bytes, where the server has stored them."""
    for file in sorted((state / "nats" / "data").rglob(f"streams/{log}/msgs/*.blk")):
        data = bytearray(file.read_bytes())
        place = data.rfind(content)
        if place >= 0:
            data[place + len(content) // 2] ^= 16
            file.write_bytes(data)
            return
    raise AssertionError(f"no file of {log} has {content[:40]!r}")


@pytest.mark.long
def test_all_that_can_be_stored_is_whole_and_one_changed_bit_is_named(tmp_path: Path) -> None:
    state = tmp_path / "state"

    async def lived() -> Verified:
        async with whole(state) as here:
            await here.commit()
            await here.carry()
            await here.deal()
            await here.served()
            return await verify_directory(state, LOGS)

    found = asyncio.run(lived())
    assert found.wrong == []

    async def waiting() -> list[tuple[str, Stored]]:
        """Rows that wait in an outbox, as no relay runs, and everything that is stored."""
        async with await Fabric.connect(server.url) as fabric:
            for each in range(3):
                await fabric.publish(LOGS.published_at("b", "notes"), json.dumps({"text": f"waits {each}"}).encode())
            await fabric.publish(LOGS.unsent_at("b", "notes"), b'{"n":1,"why":{"expired":1},"seq":[1,1]}')
            return await all_messages(fabric)

    with EmbeddedServer(state, sync_always=False) as server:
        stored = asyncio.run(waiting())
    assert looked_at(state).wrong == []

    kinds: dict[str, tuple[str, Stored]] = {}
    for log, message in stored:
        kind = message_kind(message.subject)
        assert kind is not None, message.subject
        kinds[kind.name if kind.subject != "stats.*.*" else message.subject.rsplit(".", 1)[0]] = log, message
    assert kinds.keys() >= WANTED, WANTED - kinds.keys()
    for name, (log, message) in kinds.items():
        damaged = tmp_path / "damaged"
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(state, damaged)
        flip(damaged, log, message.data)
        said = "\n".join(looked_at(damaged).wrong)
        assert log in said or message.subject in said, (name, message.subject, said)
