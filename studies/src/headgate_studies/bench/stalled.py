"""One subscriber stops dead (SIGSTOP) for a minute: what it is told afterwards, and what the others notice.

Two sites below the root are twins: the same subscriptions, read by this process. At one of them one more subscriber
runs in a process of its own and is stopped; the other site is the control group. Delays are from the root's commit to
the hand-over, in the time of the stop, compared pair by pair.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import signal
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.worker import Address
from headgate.relay.output import QueueLimits
from headgate.service.replanning import Rules
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate.wire.manifest import Manifest
from headgate_studies.bench.stalled_reader import POLICY
from headgate_studies.direct import DirectCommits, feed

_SITES: Final = ("one", "two")
_EVERY_S: Final = 0.25
_INBOX_MESSAGES: Final = 32
_BEFORE_S: Final = 3.0
_AFTER_S: Final = 5.0
_WAIT_S: Final = 60.0
_PART, _FLOOR_S = 0.10, 0.050


def _deployment(rate: int, pairs: int) -> str:
    wants = "".join(f"  {name}: {{site: {name.split('-')[0]}, stream: fleet}}\n" for name in _names(pairs))
    return f"""
streams:
  fleet:
    root: source
    source: {{format: nats}}
    schema: {{vehicle: string, speed: double, at: timestamp}}
    rate: {rate}/s
sites: {{source: {{}}, one: {{}}, two: {{}}}}
plan:
  fleet: {{one: source, two: source}}
subscriptions:
  stopped: {{site: one, stream: fleet, policy: {json.dumps(POLICY)}}}
{wants}
"""


def _names(pairs: int) -> list[str]:
    return [f"{site}-{number}" for site in _SITES for number in range(pairs)]


@dataclass
class _Seen:
    """The commits, and for each reader the last sequence number of everything that it got, and when."""

    commits: list[Manifest] = field(default_factory=list)
    got: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def mean_delay_s(self, name: str, start_s: float, end_s: float) -> float:
        """Of deliveries whose rows were committed in a span of time."""
        last, when = np.array(self.got[name]).T
        ends = np.array([manifest.upto for manifest in self.commits])
        times = np.array([manifest.time_ms / 1000 for manifest in self.commits])
        committed = times[np.searchsorted(ends, last)]
        inside = (committed >= start_s) & (committed < end_s)
        return float(np.mean((when - committed)[inside])) if inside.any() else float("nan")


def run(seconds: float = 60.0, rate: int = 1000, pairs: int = 5, max_rows: int = 5000) -> dict[str, Any]:
    """Stop one subscriber for `seconds`; `pairs` others at its site and as many at the twin."""
    return asyncio.run(_run(seconds, rate, pairs, max_rows))


async def _run(seconds: float, rate: int, pairs: int, max_rows: int) -> dict[str, Any]:
    deployment = parse_deployment(_deployment(rate, pairs), "stalled.yaml", GENERATOR_SCHEMAS)
    total = int(rate * (_BEFORE_S + seconds + _AFTER_S))
    seen = _Seen()
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(
            Path(directory),
            limits=QueueLimits(max_rows=max_rows),
            job=False,
            inbox_messages=_INBOX_MESSAGES,
            replan=Rules(every_s=math.inf),  # nothing else is to take processor time meanwhile
        )
        async with open_runtime(settings, deployment) as runtime:
            names = _names(pairs)
            async with (
                _stopped(runtime) as reader,
                _readers(runtime, names, seen),
                _feeding(runtime, rate, total, seen),
            ):
                await asyncio.sleep(_BEFORE_S)
                reader.send_signal(signal.SIGSTOP)
                start = time.time()
                print(f"stopped one of {len(names) + 1} subscribers for {seconds:.0f} s")
                try:
                    await asyncio.sleep(seconds)
                finally:
                    reader.send_signal(signal.SIGCONT)
                span = start, time.time()
                await _until(runtime, lambda status: status["streams"]["fleet"]["rows_in"] >= total)
                status = await _until(
                    runtime, lambda status: not any(each["in_flight"] for each in status["subscriptions"].values())
                )
                reader.send_signal(signal.SIGTERM)
                assert reader.stdout is not None
                counts = json.loads(await asyncio.wait_for(reader.stdout.read(), _WAIT_S))
    return _figures(seen, status, counts, span, pairs)


def _figures(
    seen: _Seen, status: dict[str, Any], counts: dict[str, int], span: tuple[float, float], pairs: int
) -> dict[str, Any]:
    line = status["subscriptions"]["stopped"]
    others = np.array([seen.mean_delay_s(f"one-{number}", *span) for number in range(pairs)])
    control = np.array([seen.mean_delay_s(f"two-{number}", *span) for number in range(pairs)])
    more = float(np.median(others - control))
    allowed = max(_PART * float(np.median(control)), _FLOOR_S)
    complete = all(
        line_["delivered"] == line_["matched"] for name, line_ in status["subscriptions"].items() if name != "stopped"
    )
    accounted = (
        counts["came"] + counts["given_up"] == line["matched"]
        and counts["given_up"] == counts["digested"] == line["reduced"]
        and counts["used"] + counts["local"] == counts["came"]
        and counts["local"] == counts["local_digested"]
    )
    print(f"the stopped one: {line['matched']:,} matched = {counts['came']:,} came + {counts['given_up']:,} given up; "
          f"digests tell of {counts['digested']:,}; its own buffer gave up {counts['local']:,}")  # fmt: skip
    print(f"the others' delay: {np.median(others) * 1e3:.0f} ms, control {np.median(control) * 1e3:.0f} ms; median of "
          f"{pairs} pairs {more * 1e3:+.1f} ms, allowed {allowed * 1e3:.0f} ms")  # fmt: skip
    return {
        **{f"stopped_{name}": count for name, count in counts.items()},
        "stopped_matched": line["matched"],
        "ledger_difference": sum(abs(each["difference"]) for each in status["subscriptions"].values()),
        "others_delay_ms": round(float(np.median(others)) * 1e3, 2),
        "control_delay_ms": round(float(np.median(control)) * 1e3, 2),
        "median_more_ms": round(more * 1e3, 2),
        "allowed_ms": round(allowed * 1e3, 2),
        "met_digest": accounted and counts["given_up"] > 0 and not counts["without_digest"],
        "met_others_complete": complete,
        "met_delay": more <= allowed,
    }


@contextlib.asynccontextmanager
async def _stopped(runtime: Runtime) -> AsyncIterator[asyncio.subprocess.Process]:
    """The subscriber that will be stopped, once it reads."""
    assert runtime.server is not None
    arguments = (
        "-m",
        "headgate_studies.bench.stalled_reader",
        runtime.server.url,
        runtime.settings.namespace,
        "stopped",
    )
    reader = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    try:
        assert reader.stdout is not None
        await asyncio.wait_for(reader.stdout.readline(), _WAIT_S)
        yield reader
    finally:
        if reader.returncode is None:
            reader.send_signal(signal.SIGCONT)
            reader.terminate()
            try:
                await asyncio.wait_for(reader.wait(), _WAIT_S)
            except TimeoutError:
                reader.kill()
                await reader.wait()


@contextlib.asynccontextmanager
async def _readers(runtime: Runtime, names: list[str], seen: _Seen) -> AsyncIterator[None]:
    """Readers in this process, which note the delay of everything that they get."""
    assert runtime.server is not None
    async with await Client.connect(runtime.server.url, namespace=runtime.settings.namespace) as client:
        tasks = [asyncio.create_task(_read(client, name, seen)) for name in names]
        try:
            yield
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def _read(client: Client, name: str, seen: _Seen) -> None:
    mine = seen.got.setdefault(name, [])
    async for delivery in await client.subscribe(name):
        if len(delivery):
            mine.append((int(delivery.seqs[-1]), time.time()))


@contextlib.asynccontextmanager
async def _feeding(runtime: Runtime, rate: int, rows: int, seen: _Seen) -> AsyncIterator[None]:
    assert runtime.server is not None
    stop = threading.Event()
    address = Address(runtime.server.url, Logs(runtime.settings.namespace))
    with DirectCommits(address, on_commit=seen.commits.append) as direct:
        work = partial(feed, direct, "fleet", _rows, rate=rate, rows=rows, every_s=_EVERY_S, stop=stop)
        feeding = asyncio.create_task(asyncio.to_thread(work))
        try:
            yield
            await feeding
        finally:
            stop.set()
            await asyncio.wait([feeding])


def _rows(start: int, stop: int) -> pa.RecordBatch:
    return generate("fleet", 1, start, stop).select(["vehicle", "speed", "at"])


async def _until(runtime: Runtime, done: Any) -> dict[str, Any]:
    """The status once it says so, or after a minute."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        status = await runtime.status()
        if done(status) or time.monotonic() > deadline:
            return status
        await asyncio.sleep(0.5)
