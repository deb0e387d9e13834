"""Overload: a live deployment whose links are cut to a tenth of what comes, watched at the receiving end.

One stream flows from its root to two sites, and from one of them to a third, each with a subscription that wants
everything and has a policy with digesters. For some seconds nothing is limited, which gives the bytes that a row takes
on a link. Then the bandwidths are cut while rows flow, for a minute, and given back. Bytes are counted where they
arrive, headers included: in the site logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.worker import Address
from headgate.relay.output import QueueLimits
from headgate.service.replanning import Rules
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.bench.cpu import run_cpu_s
from headgate_studies.bench.link_watch import LinkVerdict, LinkWatch
from headgate_studies.direct import DirectCommits, feed

_LINKS: Final = {"near": "source", "far": "source", "edge": "near"}
_LEAST_BYTES_PER_S: Final = 64_000 / 8
_SETTLE_S: Final = 1.0
_SAMPLE_S: Final = 0.05
_DRAIN_S: Final = 60.0
_POLICY: Final = "{levels: [{every: 2}, {random: needed}], digest: [{max: speed}, {min: speed}]}"


def _deployment(rate: int, rows: int, capacity: dict[str, float]) -> str:
    sites = "".join(f"  {site}: {{{_download(capacity.get(site))}}}\n" for site in ("source", *_LINKS))
    wants = "".join(f"  {site}: {{site: {site}, stream: fleet, policy: {_POLICY}}}\n" for site in _LINKS)
    return f"""
streams:
  fleet:
    root: source
    source: {{format: generator, kind: fleet, seed: 1, rate: {rate}, limit: {rows}}}
    event_time: at
    rate: {rate}/s
sites:
{sites}
plan:
  fleet: {{{", ".join(f"{child}: {parent}" for child, parent in _LINKS.items())}}}
subscriptions:
{wants}
"""


def _download(capacity: float | None) -> str:
    return "" if capacity is None else f"download: {capacity * 8 / 1e3:.3f} kbit/s"


@dataclass
class _Seen:
    """What was seen at the receiving ends."""

    links: dict[str, LinkWatch] = field(
        default_factory=lambda: {child: LinkWatch(parent, child) for child, parent in _LINKS.items()}
    )
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_LINKS, 0))
    given_up: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_LINKS, 0))
    without_digest: int = 0
    late_s: list[float] = field(default_factory=list)


def run(
    seconds: int = 60, overload: float = 10.0, rate: int = 8000, max_rows: int = 20_000, spark: bool = False
) -> dict[str, Any]:
    """10 s without limits, then `seconds` with links that take 1/`overload` of what comes (the third half of that).

    Rows are committed once a second by this process, as the Spark job does it; with `spark` by a Spark job.
    """
    return asyncio.run(_run(seconds, overload, rate, max_rows, spark))


async def _run(seconds: int, overload: float, rate: int, max_rows: int, spark: bool) -> dict[str, Any]:
    free_s = 10
    total = rate * (free_s + seconds + 5)
    deployment = parse_deployment(_deployment(rate, total, {}), "overload.yaml", GENERATOR_SCHEMAS)
    seen = _Seen()
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(
            Path(directory),
            limits=QueueLimits(max_rows=max_rows),
            job=spark,
            replan=Rules(every_s=math.inf),  # the plan is given
        )
        async with open_runtime(settings, deployment) as runtime, _watched(runtime, seen) as watching:
            if spark:
                await runtime.wait_ready(timeout_s=600.0)
            async with contextlib.nullcontext() if spark else _feeding(runtime, rate, total):
                await _arrived(runtime, seen, rate * free_s * 3 // 4)
                per_row = seen.links["near"].bytes_between(0.0, time.time()) / seen.rows["near"]
                whole = per_row * rate / overload
                capacity = {"near": whole, "far": whole, "edge": max(whole / 2, _LEAST_BYTES_PER_S)}
                print(f"without limits: {per_row:.1f} bytes a row; cut to {whole * 8 / 1e3:.1f} kbit/s a link")
                await _cut(runtime, _deployment(rate, total, capacity))
                await asyncio.sleep(_SETTLE_S)
                psutil.cpu_percent()
                used = run_cpu_s()
                span = time.time(), time.time() + seconds - _SETTLE_S
                while (now := time.time()) < span[1]:
                    for link in seen.links.values():
                        link.sample(runtime, now)
                    await asyncio.sleep(_SAMPLE_S)
                    seen.late_s.append(time.time() - now - _SAMPLE_S)
                cpu = psutil.cpu_percent()
                own = (run_cpu_s() - used) / (seconds - _SETTLE_S) / (psutil.cpu_count() or 1) * 100
                await _cut(runtime, _deployment(rate, total, {}))
            status = await _drained(runtime, watching, total)
    verdicts = {name: link.judge(capacity[name], *span) for name, link in seen.links.items()}
    return {"own_cpu_percent": round(own, 1), **_figures(seen, status, verdicts, capacity, per_row, cpu)}


def _figures(
    seen: _Seen,
    status: dict[str, Any],
    verdicts: dict[str, LinkVerdict],
    capacity: dict[str, float],
    per_row: float,
    cpu: float,
) -> dict[str, Any]:
    lines = status["subscriptions"]
    figures: dict[str, Any] = {
        "bytes_per_row": round(per_row, 2),
        "cpu_percent": round(cpu, 1),
        "ledger_difference": sum(abs(each["difference"]) for each in lines.values()),
        "in_flight": sum(each["in_flight"] for each in lines.values()),
        "gaps_without_digest": seen.without_digest,
        "loop_late_p99_ms": round(float(np.quantile(seen.late_s, 0.99)) * 1e3, 1),
        "loop_late_max_ms": round(max(seen.late_s) * 1e3, 1),
    }
    for name, verdict in verdicts.items():
        line = lines[name]
        figures |= {
            f"{name}_kbit_s": round(capacity[name] * 8 / 1e3, 2),
            f"{name}_matched": line["matched"],
            f"{name}_delivered": line["delivered"],
            f"{name}_reduced": line["reduced"],
            f"{name}_told": seen.given_up[name],
            f"{name}_worst_10s_over_budget": round(verdict.over, 4),
            f"{name}_least_busy_10s": round(verdict.busy_least, 4),
            f"{name}_mean_busy": round(verdict.busy_mean, 4),
            f"{name}_waiting": round(verdict.waited, 4),
        }
        print(f"{name}: {line['matched']:,} matched = {line['delivered']:,} delivered + {line['reduced']:,} reduced; "
              f"worst 10 s {verdict.over:+.2%} of the budget; while rows wait, busy {verdict.busy_mean:.1%} "
              f"(worst 10 s {verdict.busy_least:.1%})")  # fmt: skip
    large = [name for name in verdicts if capacity[name] >= _LEAST_BYTES_PER_S]
    figures |= {
        "met_ledger": not figures["ledger_difference"]
        and not figures["in_flight"]
        and all(seen.given_up[name] == lines[name]["reduced"] for name in verdicts),
        "met_digests": not seen.without_digest,
        "met_budget": len(large) == len(verdicts) and all(verdicts[name].over <= 0.02 for name in large),
        "met_busy": len(large) == len(verdicts) and all(verdicts[name].busy_least >= 0.95 for name in large),
        "met_cpu": cpu < 80.0,
    }
    print(f"CPU {cpu:.0f} %, ledger difference {figures['ledger_difference']}, gaps without digest "
          f"{seen.without_digest}; the event loop was late by at most {figures['loop_late_max_ms']:.0f} ms, by "
          f"{figures['loop_late_p99_ms']:.0f} ms in one of a hundred looks")  # fmt: skip
    return figures


@contextlib.asynccontextmanager
async def _watched(runtime: Runtime, seen: _Seen) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Readers of every inbox and watchers of every link."""
    assert runtime.server is not None
    async with await Client.connect(runtime.server.url, namespace=runtime.settings.namespace) as client:
        watching = [asyncio.create_task(link.watch(runtime)) for link in seen.links.values()]
        watching += [asyncio.create_task(_read(client, name, seen)) for name in _LINKS]
        try:
            yield watching
        finally:
            for task in watching:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def _read(client: Client, name: str, seen: _Seen) -> None:
    async for delivery in await client.subscribe(name):
        lost = sum(delivery.given_up.values())
        seen.rows[name] += len(delivery)
        seen.given_up[name] += lost
        if lost and delivery.digest.get("count", 0) != lost:
            seen.without_digest += 1


@contextlib.asynccontextmanager
async def _feeding(runtime: Runtime, rate: int, rows: int) -> AsyncIterator[None]:
    """Rows from this process instead of a Spark job."""
    assert runtime.server is not None
    stop = threading.Event()
    address = Address(runtime.server.url, Logs(runtime.settings.namespace))
    make = partial(generate, "fleet", 1, rate=float(rate))
    with DirectCommits(address) as direct:
        feeding = asyncio.create_task(
            asyncio.to_thread(feed, direct, "fleet", make, rate=rate, rows=rows, every_s=1.0, stop=stop)
        )
        try:
            yield
            await feeding
        finally:
            stop.set()
            await asyncio.wait([feeding])


async def _cut(runtime: Runtime, document: str) -> None:
    """Change the bandwidths of the running deployment, and wait until the relays have taken them over."""
    deployment = parse_deployment(document, "overload.yaml", GENERATOR_SCHEMAS)
    runtime.catalog.apply(deployment)
    await runtime.control.publish()
    budgets = runtime.nodes["source"].machine.state.budgets
    assert budgets is not None
    async with asyncio.timeout(_DRAIN_S):
        while budgets.rate("source", "near") != deployment.sites["near"].download_bytes_per_s:  # noqa: ASYNC110 - polled
            await asyncio.sleep(_SAMPLE_S)


async def _arrived(runtime: Runtime, seen: _Seen, rows: int) -> None:
    """Wait until every site has got so many rows."""
    async with asyncio.timeout(2 * _DRAIN_S):
        while min(seen.rows.values()) < rows:
            if runtime.failure.done():
                await runtime.failure
            await asyncio.sleep(_SAMPLE_S)


async def _drained(runtime: Runtime, watching: list[asyncio.Task[None]], rows: int) -> dict[str, Any]:
    """The status once the source has ended and nobody has anything in flight, or after a minute."""
    deadline = time.monotonic() + _DRAIN_S
    while True:
        await asyncio.sleep(1.0)
        status = await runtime.status()
        for task in watching:
            if task.done():
                task.result()
        done = status["streams"]["fleet"]["rows_in"] >= rows
        flight = sum(each["in_flight"] for each in status["subscriptions"].values())
        if (done and not flight) or time.monotonic() > deadline:
            return status
