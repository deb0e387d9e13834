"""The load of `headgate bench latency`, in a process of its own: ``python latency_load.py SECONDS SETTLE_S``.

It imports what versions before it have too, so that it can run on them.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.service.demo.run import demo_file, readable
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.service.tracing.follow import RowFollower
from headgate.service.tracing.row_trace import RowTrace, is_sampled

_SHARE: Final = Fraction(1, 50)
_READY_S: Final = 600.0
_WAY: Final = "read, match and commit"


class LatencySamples:
    """Samples in milliseconds, by stage, and delays of whole rows."""

    def __init__(self) -> None:
        self.stages: dict[str, list[float]] = defaultdict(list)
        self.delays: list[float] = []
        self.handed: dict[tuple[str, int, str], float] = {}
        self.batches: set[tuple[str, int]] = set()

    def add_batch(self, stream: str, job: dict[str, Any]) -> None:
        """A micro-batch as the job has reported it."""
        if job.get("batch") is not None and (stream, job["batch"]) not in self.batches:
            self.batches.add((stream, job["batch"]))
            for stage, seconds in (job.get("latency_s") or {}).items():
                self.stages[stage].append(1000 * seconds)

    def add_row(self, trace: RowTrace) -> None:
        """A row's way: the first stop behind the commit is the root's relay, further links are hops."""
        stops = [each for each in trace.stages if each.name.startswith(("link", "inbox"))]
        for each in trace.stages:
            if each.name == _WAY:
                self.stages[_WAY].append(1000 * each.seconds)
        for number, stop in enumerate(stops):
            stage = "root relay" if number == 0 else "inbox" if stop.name.startswith("inbox") else "hops"
            self.stages[stage].append(1000 * stop.seconds)
        handed = self.handed.get((trace.stream, trace.seq, trace.subscription))
        if stops and handed is not None:
            self.stages["client"].append(max(handed - stops[-1].ends_ms, 0.0))

    def document(self) -> dict[str, Any]:
        """Medians by stage, and the delays of rows."""
        order = ("trigger wait", "source", "planning", "Python start", "match", "stage", "commit")
        known = [stage for stage in order if stage in self.stages] or [_WAY]
        names = [*known, "root relay", "hops", "inbox", "client"]
        delays = sorted(self.delays) or [0.0]
        return {
            "stages_ms": {name: round(statistics.median(self.stages[name] or [0.0]), 2) for name in names},
            "p50_ms": round(delays[len(delays) // 2], 1),
            "p99_ms": round(delays[len(delays) * 99 // 100], 1),
            "rows": len(self.delays),
            "batches": len(self.batches),
        }


async def _read(client: Client, name: str, measured: LatencySamples, begun: asyncio.Event) -> None:
    snapshot = await client.snapshot()
    stream = snapshot.deployment.subscriptions[name].stream
    column = snapshot.deployment.streams[stream].event_time
    async for delivery in await client.subscribe(name):
        now_ms = 1000 * time.time()
        if not begun.is_set():
            continue
        for seq, row in zip(delivery.seqs.tolist(), delivery.to_pylist(), strict=True):
            happened = row.get(column) if column else None
            if isinstance(happened, datetime):
                measured.delays.append(now_ms - 1000 * happened.timestamp())
            if is_sampled(stream, seq, _SHARE):
                measured.handed[stream, seq, name] = now_ms


async def _follow(client: Client, measured: LatencySamples) -> None:
    async for trace in RowFollower(client, _SHARE, patience_s=30.0).run():
        measured.add_row(trace)


async def _ready(runtime: Runtime) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        status = await runtime.status()
        if all(each["job"].get("batch") is not None for each in status["streams"].values()):
            return
        await asyncio.sleep(0.5)
    raise TimeoutError("the job has not begun")


async def main(seconds: float, settle_s: float) -> dict[str, Any]:
    """Run the demo's deployment and measure for so long, from `settle_s` after every stream has committed on.

    Rows that came while the job started have waited for it, and the first micro-batches are large with them.
    """
    text = demo_file().read_text()
    deployment = parse_deployment(text, "demo", GENERATOR_SCHEMAS)
    measured, begun = LatencySamples(), asyncio.Event()
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(state_dir=Path(directory))
        async with (
            open_runtime(settings, deployment) as runtime,
            await Client.connect(state_dir=Path(directory)) as client,
        ):
            names = readable(deployment)
            tasks = [asyncio.create_task(_read(client, name, measured, begun)) for name in names]
            try:
                await _ready(runtime)
                await asyncio.sleep(settle_s)
                tasks.append(asyncio.create_task(_follow(client, measured)))
                begun.set()
                deadline = time.monotonic() + seconds
                while time.monotonic() < deadline:
                    await asyncio.sleep(0.25)
                    for stream, each in (await runtime.status())["streams"].items():
                        measured.add_batch(stream, each["job"])
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
    return measured.document()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*map(float, sys.argv[1:])))))
