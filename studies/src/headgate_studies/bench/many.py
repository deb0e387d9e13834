"""Many subscriptions in one deployment: what a start, a change and a bulk change cost, by size, and what readers get.

Each size is a deployment of its own (`headgate up`, in processes of its own) with so many subscriptions, spread over
two sites below the root. Rows come all the time. A change is timed from the request to the first commit that was
matched under its revision. Some subscriptions are read meanwhile, and what they get is compared with brute force.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.client import Client
from headgate.matching import warm_up
from headgate.pipeline.worker import Address
from headgate.wire.logs import Logs
from headgate_studies.bench.many_deployment import (
    STREAM,
    Deployed,
    deployment_file,
    rows_of,
    wanted,
)
from headgate_studies.bench.many_gateway import ReaderLoad, measure_readers
from headgate_studies.bench.many_readers import SampledReaders
from headgate_studies.direct import DirectCommits

SIZES: Final = (1_000, 10_000, 100_000, 500_000)
_EVERY_S: Final = 0.5
_POLL_S: Final = 0.02
_AT_A_TIME: Final = 100_000
_PATIENCE_S: Final = 600.0
_BURST: Final = 4_000  # rows, of which a reader gets twenty


@dataclass(frozen=True, slots=True)
class ManyLoad:
    """What a run does beside its size: rows a second, how long readers read, how many subscriptions a bulk change has.

    With `contexts` each subscription has a filter with eight values of its own, else a thousand filters are shared.
    """

    rate: int = 50
    seconds: float = 10.0
    bulk: int = 10_000
    sampled: int = 20
    job: bool = True
    contexts: bool = False


def run(
    sizes: tuple[int, ...] = (1_000, 10_000),
    rate: int = 50,
    seconds: float = 10.0,
    bulk: int = 10_000,
    readers: int = 200,
    frozen_s: float = 10.0,
    job: bool = True,
    contexts: bool = False,
) -> dict[str, Any]:
    """Measure each size, and readers at one site through a gateway; a tenth of these stop reading for `frozen_s`.

    Without `job` rows are matched and committed by this process, without Spark.
    """
    load = ManyLoad(rate, seconds, bulk, min(readers, 20), job, contexts)
    figures: dict[str, Any] = {f"change_s_{size}": None for size in SIZES}
    found: dict[int, dict[str, Any]] = {}
    if readers:
        gathered = measure_readers(
            ReaderLoad(readers, seconds, frozen_s, burst=_BURST),
            lambda client, url: RowFeed(client, url, load),
            job=job,
            peers=True,
        )
        print(", ".join(f"{name} {value}" for name, value in gathered.items()), flush=True)
        figures |= gathered
    if not sizes:
        return {**figures, "load": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory() as place:
        empty = asyncio.run(_measure(Path(place), 0, load))
    for size in sizes:
        with tempfile.TemporaryDirectory() as place:
            found[size] = asyncio.run(_measure(Path(place), size, load))
        more = found[size]["memory_bytes"] - empty["memory_bytes"]
        found[size]["bytes_per_subscription"] = round(max(more, 0) / size)
        print(f"{size:,} subscriptions: " + ", ".join(f"{name} {value}" for name, value in found[size].items()))
        figures |= {f"{name}_{size}": value for name, value in found[size].items()}
    largest = found[max(found)]
    figures["bytes_per_subscription"] = largest["bytes_per_subscription"]
    sampled = sum(each["reader_mismatches"] for each in found.values())
    figures["reader_mismatches"] = figures.get("reader_mismatches", 0) + sampled
    if not readers:
        figures["readers"], figures["reader_p99_s"] = 0, largest["reader_p99_s"]
    smallest = found[min(found)]
    figures["change_growth"] = round(largest["change_s"] / max(smallest["change_s"], 1e-9), 2)
    figures["load"] = round(os.getloadavg()[0], 1)
    return figures


@dataclass
class RowFeed:
    """Rows that are given to the stream all the time: published for the job, or committed without it."""

    client: Client
    address: str
    load: ManyLoad
    given_s: dict[int, float] = field(default_factory=dict)
    stopping: bool = False
    sent: int = 0
    paused: bool = False
    extra: int = 0
    """Rows that are given at once with the next ones."""

    async def run(self) -> None:
        """Give rows at the rate until stopped; where giving takes longer, the next batch is larger."""
        direct = None
        if not self.load.job:
            await asyncio.to_thread(warm_up)
            direct = DirectCommits(Address(self.address, Logs()), "bench")
        began, batch, ahead = time.monotonic(), 0, 0
        while not self.stopping:
            if self.paused:
                await asyncio.sleep(_EVERY_S)
                began += _EVERY_S
                continue
            ahead, self.extra = ahead + self.extra, 0
            due = int((time.monotonic() - began) * self.load.rate) + 1 + ahead
            rows, now = rows_of(self.sent, due), time.time()
            if rows.num_rows:
                self.given_s.update(dict.fromkeys(range(self.sent, due), now))
                if direct is None:
                    await self.client.publish(STREAM, rows)
                else:
                    await asyncio.to_thread(direct.commit, STREAM, rows, batch)
                self.sent, batch = due, batch + 1
            await asyncio.sleep(_EVERY_S)
        if direct is not None:
            direct.__exit__(None, None, None)

    async def give(self, count: int) -> None:
        """Give so many rows at once, and wait until they were given."""
        goal, self.extra = self.sent + count, count
        while self.sent < goal:  # noqa: ASYNC110 # it is given by the loop above, every half second
            await asyncio.sleep(_POLL_S)

    async def matched(self, revision: int) -> None:
        """Wait until rows are matched under a revision."""
        await _matched(self.client, revision)

    async def passed(self, count: int) -> None:
        """Wait until so many rows are committed."""
        fabric, logs = self.client.fabric, self.client.fabric.logs
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                stored = await fabric.last(logs.root(STREAM), logs.commit(STREAM))
                if stored is not None and fabric.codec.manifest(stored.data).upto >= count:
                    return
                await asyncio.sleep(_POLL_S)

    async def accounts(self) -> dict[str, Any]:
        """The ledger's difference, and how long it takes to read."""
        return await _accounts(self.client)


async def _measure(directory: Path, size: int, load: ManyLoad) -> dict[str, Any]:
    """The figures of one size; of no subscriptions at all, only what an empty deployment takes."""
    deployed = Deployed(directory, deployment_file(directory), job=load.job)
    found: dict[str, Any] = {}
    try:
        started_s = await deployed.start()
        async with await Client.connect(state_dir=deployed.state) as client:
            feed = RowFeed(client, deployed.url, load)
            feeding = asyncio.create_task(feed.run())
            began = time.perf_counter()
            for first in range(0, size, _AT_A_TIME):
                await client.subscribe_many(wanted(first, min(first + _AT_A_TIME, size), contexts=load.contexts))
            found["load_s"] = round(time.perf_counter() - began, 2)
            print(f"{size:,} subscriptions are made", flush=True)
            await _matched(client, (await client.snapshot()).revision)
            if not size:
                await asyncio.sleep(2.0)
            else:
                found |= await _read(deployed, client, feed, size)
                print(f"read: {found}", flush=True)
                found |= await _change(deployed, client, load, size)
                print(f"changed: {found}", flush=True)
            found["memory_bytes"] = deployed.figures().total_bytes
            found["memory_by_process"] = deployed.figures().memory_mb
            feed.stopping = True
            await feeding
            if size:
                found |= await _accounts(client)
        if size:
            await deployed.stop()
            found["start_s"] = round(await deployed.start() - started_s, 2)
    finally:
        await deployed.stop()
    return found


async def _read(deployed: Deployed, client: Client, feed: RowFeed, size: int) -> dict[str, Any]:
    """What some readers get of a steady load, and what that costs."""
    load, before, sent = feed.load, deployed.figures(), feed.sent
    readers = SampledReaders(client, size, min(load.sampled, size), feed.given_s)
    await readers.start()
    began = time.monotonic()
    await asyncio.sleep(load.seconds)
    seconds, sent = time.monotonic() - began, feed.sent - sent
    after = deployed.figures()
    found = await readers.finish(feed.sent, _PATIENCE_S, contexts=load.contexts)
    return {
        **found,
        "rows_per_s": round(sent / seconds, 1),
        "steady_cpu": after.since(before).cpu_part(seconds),
    }


async def _change(deployed: Deployed, client: Client, load: ManyLoad, size: int) -> dict[str, Any]:
    """One change, and one of many subscriptions at once: seconds until rows match by it, and processor time of it."""
    found: dict[str, Any] = {}
    first = size
    for name, count in (("change", 1), ("bulk", load.bulk)):
        before, began = deployed.figures(), time.perf_counter()
        answer = await client.subscribe_many(wanted(first, first + count, contexts=load.contexts))
        found[f"{name}_answer_s"] = round(time.perf_counter() - began, 3)
        await _matched(client, answer["revision"])
        found[f"{name}_s"] = round(time.perf_counter() - began, 3)
        found[f"{name}_cpu_s"] = deployed.figures().since(before).cpu_s
        first += count
    return found


async def _matched(client: Client, revision: int) -> None:
    """Wait until a commit was matched under a revision or a later one."""
    fabric, logs = client.fabric, client.fabric.logs
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            stored = await fabric.last(logs.root(STREAM), logs.commit(STREAM))
            if stored is not None and fabric.codec.manifest(stored.data).version >= revision:
                return
            await asyncio.sleep(_POLL_S)


async def _accounts(client: Client) -> dict[str, Any]:
    """The ledger's difference, and how long it and a look at the status take."""
    from headgate.service.books import read_books

    began = time.perf_counter()
    books = await read_books(client.fabric, client.tables, [STREAM])
    ledger_s = time.perf_counter() - began
    began = time.perf_counter()
    await client.control("status", timeout_s=_PATIENCE_S)
    difference = sum(abs(entry.difference) for book in books for entry in book.entries)
    return {
        "ledger_difference": difference + sum(abs(book.difference) for book in books),
        "ledger_s": round(ledger_s, 2),
        "status_s": round(time.perf_counter() - began, 2),
    }
