"""Overload: a live deployment whose links take a tenth of what comes, watched at the receiving end.

One stream flows from its root over two links, to a near site and on to a far one, each with a subscription that wants
everything and has a policy with digesters. A first phase without limits measures the bytes a row takes on a link; in
the second the links' capacities are that over the overload. Bytes are counted where they arrive: in the site logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.relay.output import QueueLimits
from headgate.service.runtime import Runtime, Settings, open_runtime

_WINDOW_S = 10.0
_DRAIN_S = 240.0
_LINKS = ("near", "far")
_POLICY = "{levels: [{every: 2}, {random: needed}], digest: [{max: speed}, {min: speed}]}"


def _deployment(rate: int, rows: int, capacity: float | None) -> str:
    upload = "" if capacity is None else f"upload: {capacity * 8 / 1e3:.3f} kbit/s"
    return f"""
streams:
  fleet:
    root: source
    source: {{format: generator, kind: fleet, seed: 1, rate: {rate}, limit: {rows}}}
    event_time: at
    rate: {rate}/s
sites:
  source: {{{upload}}}
  near: {{{upload}}}
  far: {{}}
plan:
  fleet: {{near: source, far: near}}
subscriptions:
  near: {{site: near, stream: fleet, select: [vehicle, speed, at], policy: {_POLICY}}}
  far: {{site: far, stream: fleet, select: [vehicle, speed, at], policy: {_POLICY}}}
"""


@dataclass
class _Seen:
    """What was seen at the receiving ends."""

    arrivals: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: {name: [] for name in _LINKS})
    rows: int = 0
    given_up: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_LINKS, 0))
    without_digest: int = 0
    waiting: list[tuple[float, Mapping[str, int]]] = field(default_factory=list)


def run(seconds: int = 60, overload: float = 10.0, rate: int = 2000, max_rows: int = 5000) -> dict[str, Any]:
    """Two phases: 10 s without limits, then `seconds` with links that take 1/`overload` of what comes."""
    free = asyncio.run(_phase(_deployment(rate, rate * 10, None), max_rows))[0]
    size = sum(size for _, size in free.arrivals["near"])
    per_row = size / max(1, rate * 10)
    capacity = per_row * rate / overload
    print(f"without limits: {per_row:.1f} bytes a row on a link; capacity now {capacity * 8 / 1e3:.1f} kbit/s a link")
    seen, status, cpu = asyncio.run(_phase(_deployment(rate, rate * seconds, capacity), max_rows))
    figures: dict[str, Any] = {
        "bytes_per_row": round(per_row, 2),
        "capacity_kbit_s": round(capacity * 8 / 1e3, 2),
        "cpu_percent": round(cpu, 1),
        "ledger_difference": sum(abs(each["difference"]) for each in status["subscriptions"].values()),
        "gaps_without_digest": seen.without_digest,
    }
    for name in _LINKS:
        line = status["subscriptions"][name]
        over, busy = _link(seen.arrivals[name], capacity)
        figures |= {
            f"{name}_matched": line["matched"],
            f"{name}_delivered": line["delivered"],
            f"{name}_reduced": line["reduced"],
            f"{name}_told": seen.given_up[name],
            f"{name}_worst_10s_over_budget": round(over, 4),
            f"{name}_busy": round(busy, 4),
        }
        print(f"{name}: {line['matched']:,} matched = {line['delivered']:,} delivered + {line['reduced']:,} reduced; "
              f"worst 10 s {over:+.1%} of the budget, busy {busy:.1%}")  # fmt: skip
    print(
        f"CPU {cpu:.0f} %, ledger difference {figures['ledger_difference']}, gaps without digest {seen.without_digest}"
    )
    return figures


def _link(arrivals: list[tuple[float, int]], capacity: float) -> tuple[float, float]:
    """The worst 10 s against the budget, and how busy the link was from its first to its last message."""
    times = np.array([each[0] for each in arrivals])
    total = np.concatenate([[0], np.cumsum([each[1] for each in arrivals])])
    ends = np.searchsorted(times, times + _WINDOW_S, side="left")
    worst = float(np.max(total[ends] - total[: len(times)]))
    span = float(times[-1] - times[0])
    return worst / (capacity * _WINDOW_S) - 1.0, float(total[-2]) / (capacity * max(span, 1e-9))


async def _phase(document: str, max_rows: int) -> tuple[_Seen, dict[str, Any], float]:
    """Run a deployment until its source has ended and everything is accounted for."""
    deployment = parse_deployment(document, "overload.yaml", GENERATOR_SCHEMAS)
    seen = _Seen()
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(Path(directory), limits=QueueLimits(max_rows=max_rows), emulate_delay=False)
        async with open_runtime(settings, deployment) as runtime:
            assert runtime.server is not None
            async with await Client.connect(runtime.server.url, namespace=settings.namespace) as client:
                watching = [asyncio.create_task(_watch(runtime, name, seen)) for name in _LINKS]
                watching += [asyncio.create_task(_read(client, name, seen)) for name in _LINKS]
                await runtime.wait_ready(timeout_s=600.0)
                psutil.cpu_percent()
                status = await _drained(runtime, watching)
                cpu = psutil.cpu_percent()
                for task in watching:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
    return seen, status, cpu


async def _watch(runtime: Runtime, site: str, seen: _Seen) -> None:
    logs = runtime.fabric.logs
    async for batch in runtime.fabric.follow(logs.site(site), logs.links_into(site)):
        seen.arrivals[site] += [(stored.time_s, len(stored.data)) for stored in batch]


async def _read(client: Client, name: str, seen: _Seen) -> None:
    async for delivery in await client.subscribe(name):
        lost = sum(delivery.given_up.values())
        seen.rows += len(delivery)
        seen.given_up[name] += lost
        if lost and delivery.digest.get("count", 0) != lost:
            seen.without_digest += 1


async def _drained(runtime: Runtime, watching: list[asyncio.Task[None]]) -> dict[str, Any]:
    """The status once the generator has ended and nobody has anything in flight."""
    limit = int(runtime.catalog.snapshot().deployment.streams["fleet"].source.options["limit"])
    began = time.monotonic()
    while True:
        await asyncio.sleep(1.0)
        status = await runtime.status()
        for task in watching:
            if task.done():
                task.result()
        done = status["streams"]["fleet"]["rows_in"] >= limit
        flight = sum(each["in_flight"] for each in status["subscriptions"].values())
        if (done and not flight) or time.monotonic() - began > _DRAIN_S + limit / 100:
            return status
