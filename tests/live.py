"""A deployment for tests: relays, books and control in this process, the suite's own Spark session for the queries."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.fabric import SyncFabric
from headgate.matching import ClassLists, ClassSpec, ScanIndex
from headgate.pipeline.classes import definitions_of, filters_of
from headgate.pipeline.control import UpdateController
from headgate.pipeline.indexes import IndexKeeper
from headgate.pipeline.query import MOST_ROWS, QuerySettings, start_query
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.pipeline.worker import Address
from headgate.service.demo.run import Readers, drained
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate.wire.snapshot import Snapshot
from headgate_studies.direct import DirectCommits


@dataclass
class Live:
    """A running deployment and what a test does with it."""

    runtime: Runtime
    client: Client
    spark: Any
    address: Address
    directory: Path
    readers: Readers = field(init=False)
    keepers: dict[str, IndexKeeper] = field(default_factory=dict)
    controllers: dict[str, UpdateController] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.readers = Readers(self.client, keep=True)

    async def run_queries(self, *names: str, partitions: int | None = None, max_rows: int = MOST_ROWS) -> None:
        """Run each stream's query until its source has nothing more, and stop it."""
        streams = self.runtime.catalog.snapshot().deployment.streams
        settings = QuerySettings(trigger_s=0.1, partitions=partitions, max_rows=max_rows)
        await asyncio.to_thread(self._run, [streams[name] for name in names or streams], settings)

    def _run(self, streams: list[Any], settings: QuerySettings) -> None:
        with SyncFabric(self.address.url, self.address.logs) as fabric:
            queries = [
                start_query(
                    self.spark,
                    stream,
                    self.address,
                    fabric,
                    self.directory / "checkpoints" / stream.name,
                    settings,
                )
                for stream in streams
            ]
            try:
                for query in queries:
                    query.processAllAvailable()
            finally:
                for query in queries:
                    query.stop()

    async def commit(
        self, stream: str, rows: pa.RecordBatch, batch: int, row_cost_s: float = 0.0, dead: Any = None
    ) -> None:
        """Match, stage and commit rows as the Spark job does, without Spark."""
        await asyncio.to_thread(self._commit, stream, rows, batch, row_cost_s, dead)

    def _commit(self, stream: str, rows: pa.RecordBatch, batch: int, row_cost_s: float, dead: Any) -> None:
        self.keepers.setdefault(stream, IndexKeeper(self.directory / "indexes" / stream, stream))
        with DirectCommits(self.address, "test", keepers=self.keepers, controllers=self.controllers) as direct:
            direct.commit(stream, rows, batch, row_cost_s, dead)

    async def settle(self, timeout_s: float = 60.0) -> dict[str, Any]:
        """Wait until everything matched has been acknowledged, and return the status."""

        async def done() -> dict[str, Any] | None:
            status = await self.runtime.status()
            self.readers.check()
            return status if drained(status) else None

        return await until(done, timeout_s)

    def rows(self, name: str) -> pa.Table:
        """What a reader got, in order."""
        return pa.Table.from_batches([each.rows for each in self.readers.deliveries[name]])

    def seqs(self, name: str) -> list[int]:
        """The sequence numbers that a reader got, in order."""
        return [seq for each in self.readers.deliveries[name] for seq in each.seqs.tolist()]


async def until(check: Callable[[], Awaitable[Any]], timeout_s: float = 60.0) -> Any:
    """Ask until there is an answer."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = await check()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing after {timeout_s} s: {found!r}")
        await asyncio.sleep(0.05)


@asynccontextmanager
async def running(
    document: dict[str, Any] | str, directory: Path, nats: str, spark: Any = None, **settings: Any
) -> AsyncIterator[Live]:
    """A deployment from a document, on the suite's NATS server and in a namespace of its own."""
    text = document if isinstance(document, str) else yaml.safe_dump(document)
    deployment = parse_deployment(text, "test.yaml", GENERATOR_SCHEMAS)
    namespace = settings.pop("namespace", f"t{uuid.uuid4().hex[:12]}")
    chosen = Settings(state_dir=directory, nats=nats, namespace=namespace, job=False, **settings)
    async with (
        open_runtime(chosen, deployment) as runtime,
        await Client.connect(nats, namespace=namespace) as client,
    ):
        live = Live(runtime, client, spark, Address(nats, Logs(namespace)), directory)
        try:
            yield live
        finally:
            await live.readers.stop()


def expected(snapshot: Snapshot, batch: pa.RecordBatch, contexts: Mapping[int, Any] | None = None) -> ClassLists:
    """Brute force over the classes of the fleet stream, with other contexts for some of them."""
    compiled = filters_of(snapshot.deployment.streams["fleet"])
    return ScanIndex(
        ClassSpec(each.id, compiled(each.template), (contexts or {}).get(each.id, each.context))
        for each in definitions_of(snapshot, "fleet").values()
    ).match(batch)


def sites(*names: str) -> dict[str, dict[str, str]]:
    """Sites without limits."""
    return {name: {"upload": "unknown", "download": "unknown"} for name in names}


def small(limit: int = 600, **subscriptions: dict[str, Any]) -> dict[str, Any]:
    """Three sites in a chain, one fleet stream with so many rows, and these subscriptions."""
    return {
        "sites": sites("root", "mid", "leaf"),
        "streams": {
            "fleet": {
                "root": "root",
                "source": {"format": "generator", "kind": "fleet", "seed": 3, "limit": limit},
                "key": "vehicle",
                "event_time": "at",
            }
        },
        "plan": {"fleet": {"mid": "root", "leaf": "mid"}},
        "subscriptions": {name: {"stream": "fleet", **each} for name, each in subscriptions.items()},
    }
