"""Runs the demo on an open runtime: reads every subscription until all rows are accounted for."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final

from headgate.client import Client, Delivery
from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import Crew, FabricError, cancel_all
from headgate.model import Deployment
from headgate.service.demo.baselines import Baselines, measure
from headgate.service.demo.patience import SAY_S, Patience, check_starts
from headgate.service.runtime import Runtime

_POLL_S: Final = 1.0
_DRAIN_S: Final = 120.0

Watch = Callable[[dict[str, Any], float], None]
"""Hears the status and the share of the expected rows that are in."""


def demo_file() -> Path:
    """The shipped deployment file."""
    return Path(str(resources.files("headgate.service.demo") / "headgate.yaml"))


@dataclass
class Readers:
    """One reading task per subscription. `keep` also collects what arrived, for whoever wants to compare it."""

    client: Client
    keep: bool = False
    deliveries: dict[str, list[Delivery]] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def start(self, names: list[str]) -> None:
        """Start reading subscriptions."""
        for name in names:
            self._tasks[name] = asyncio.create_task(self._read(name), name=f"reader of {name}")

    async def _read(self, name: str) -> None:
        found = self.deliveries.setdefault(name, [])
        async for delivery in await self.client.subscribe(name):
            if self.keep:
                found.append(delivery)

    def check(self) -> None:
        """Raise what ended a reader."""
        for task in self._tasks.values():
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise HeadgateError(f"the {task.get_name()} ended: {task.exception()}")

    async def stop(self) -> None:
        """Stop all readers."""
        await cancel_all(self._tasks.values())


def readable(deployment: Deployment) -> list[str]:
    """The subscriptions that a client may read: the service itself reads those that set the contexts of others."""
    subscriptions = deployment.subscriptions
    followed = {each.context_from for each in subscriptions.values()}
    return [name for name in subscriptions if name not in followed]


def expected_rows(runtime: Runtime) -> int | None:
    """How many rows the sources will give, None when a source has no end."""
    limits = [stream.source.options.get("limit") for stream in runtime.catalog.snapshot().deployment.streams.values()]
    return None if None in limits else sum(int(limit) for limit in limits if limit is not None)


def drained(status: dict[str, Any]) -> bool:
    """Whether every subscriber has acknowledged everything that was matched for it."""
    return all(each["in_flight"] == 0 for each in status["subscriptions"].values())


async def run_demo(
    runtime: Runtime,
    watch: Watch,
    tell: Callable[[str], None],
    seconds: float | None = None,
    *,
    keep: bool = False,
) -> dict[str, Any]:
    """Read everything until the sources end (or `seconds` have passed), then drain, then sum up.

    `tell` hears what is waited for, and an empty text when rows come again.
    """
    snapshot = runtime.catalog.snapshot()
    expected = expected_rows(runtime)
    settings = runtime.settings
    async with await Client.connect(
        settings.nats, state_dir=settings.state_dir, namespace=settings.namespace
    ) as client:
        readers = Readers(client, keep=keep)
        readers.start(readable(snapshot.deployment))
        try:
            await _until_ready(runtime, tell)
            began = time.monotonic()
            patience = Patience(str(runtime.settings.state_dir / "job.log"))
            while True:
                await asyncio.sleep(_POLL_S)
                status = await _status(runtime)
                readers.check()
                if status is None:
                    continue
                rows = sum(each["rows_in"] for each in status["streams"].values())
                elapsed = time.monotonic() - began
                share = rows / expected if expected else (elapsed / seconds if seconds else 0.0)
                watch(status, min(share, 1.0))
                tell(patience.look(status, time.monotonic(), _starts(runtime)))
                if (expected is not None and rows >= expected) or (seconds is not None and elapsed >= seconds):
                    break
            await runtime.stop_job()
            await _drain(runtime, readers, snapshot.subscription_ids, watch, tell)
        finally:
            await readers.stop()
    status = _without_others(await runtime.status(), snapshot.subscription_ids)
    baselines = await measure(runtime.fabric, runtime.tables, list(status["streams"]))
    summary = summarise(status, baselines, time.monotonic() - began)
    return {**summary, "status": status, "deliveries": readers.deliveries}


def _without_others(status: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A status without subscriptions that somebody else has made meanwhile: their readers are their own."""
    found = {name: each for name, each in status["subscriptions"].items() if name in names}
    return {**status, "subscriptions": found}


async def _status(runtime: Runtime) -> dict[str, Any] | None:
    if runtime.failure.done():
        await runtime.failure
    with noted(SERVICE, "no status, once more", FabricError):
        return await runtime.status()
    return None


async def _until_ready(runtime: Runtime, tell: Callable[[str], None]) -> None:
    """Wait for the Spark job, however long that takes, as long as it does not end by itself again and again."""
    log = str(runtime.settings.state_dir / "job.log")
    async with Crew() as crew:
        began, said = time.monotonic(), "starting"

        def heard(text: str) -> None:
            nonlocal said
            said = text
            tell(f"Spark job: {text}")

        ready = crew.spawn(runtime.wait_ready(heard, math.inf))
        while True:
            await asyncio.wait([ready], timeout=SAY_S)
            if ready.done():
                ready.result()
                return
            check_starts(_starts(runtime), log)
            tell(f"Spark job: {said}, for {time.monotonic() - began:,.0f} s now")


def _starts(runtime: Runtime) -> int:
    """How often the Spark job has ended by itself."""
    return sum(process.restarts for process in runtime.jobs.processes.values())


async def _drain(
    runtime: Runtime, readers: Readers, names: Collection[str], watch: Watch, tell: Callable[[str], None]
) -> None:
    """Wait until everything has arrived for these subscriptions, as long as anything does.

    What does not arrive is given up; the summary counts it.
    """
    patience = Patience(str(runtime.settings.state_dir / "job.log"))
    while True:
        status = await _status(runtime)
        readers.check()
        if status is not None:
            watch(status, 1.0)
            if drained(_without_others(status, names)) or time.monotonic() - (patience.rows_s or math.inf) > _DRAIN_S:
                return
            tell(patience.look(status, time.monotonic(), 0, draining=True))
        await asyncio.sleep(_POLL_S / 2)


def summarise(status: dict[str, Any], baselines: Baselines, seconds: float) -> dict[str, Any]:
    """The figures of a run."""
    streams, subscriptions = status["streams"].values(), status["subscriptions"].values()
    site_bytes = {name: each["upload_bytes"] for name, each in status["sites"].items()}
    return {
        "rows_in": sum(each["rows_in"] for each in streams),
        "dead": sum(each["dead"] for each in streams),
        "shed": sum(each["shed"] for each in streams),
        "matched": sum(each["matched"] for each in subscriptions),
        "delivered": sum(each["delivered"] for each in subscriptions),
        "reduced": sum(each["reduced"] for each in subscriptions),
        "expired": sum(each["expired"] for each in subscriptions),
        "in_flight": sum(each["in_flight"] for each in subscriptions),
        "ledger_difference": sum(abs(each["difference"]) for each in (*streams, *subscriptions)),
        "link_bytes": sum(each["bytes"] for each in status["links"].values()),
        "root_bytes": sum(each["root_bytes"] for each in streams),
        "per_site_bytes": site_bytes,
        "busiest_site": max(site_bytes, key=lambda name: site_bytes[name]),
        "unicast_bytes": sum(baselines.per_subscriber.values()),
        "unicast_busiest": max(baselines.per_subscriber.values(), default=0),
        "site_copy_bytes": sum(baselines.per_site.values()),
        "site_copy_busiest": max(baselines.per_site.values(), default=0),
        "seconds": round(seconds, 1),
    }
