"""The live half of `headgate bench model`: one deployment with Spark and NATS, its bandwidths changed while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.model import Deployment
from headgate.planning import PlanResult, plan_deployment, plan_problem
from headgate.planning.measured import Measured, measured_problem
from headgate.relay.output import QueueLimits
from headgate.service.books import read_tallies
from headgate.service.demo.links import DelayedLinks
from headgate.service.demo.run import Readers
from headgate.service.replanning import Rules
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate_studies.bench.model_demo import scaled
from headgate_studies.bench.model_lines import (
    LINGER_S,
    SEARCH,
    Line,
    Times,
    describe,
    describe_load,
    difference,
    judged,
    lines_of,
    show,
)

_READY_S: Final = 180.0
_SEEN_S: Final = 120.0
_LOOK_S: Final = 0.25
_TELL_S: Final = 15.0
_WIDE: Final = 1000.0
# Every message is on disk before it is acknowledged, and an output waits for that: a disk that syncs 250 times a second
# for twenty links and fifty inboxes limits them far below their bandwidths. So the logs lie in memory here.
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a directory of its own is made in it


async def lines(
    demo: Deployment, scales: list[float], factor: float, times: Times, master: str, trigger_s: float
) -> tuple[list[Line], dict[str, Any]]:
    """The lines of all scales, and what the machine was like meanwhile."""
    found: list[Line] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headgate-model-", dir=_MEMORY if _MEMORY.is_dir() else None) as directory:
        settings = Settings(
            Path(directory),
            master=master,
            trigger_s=trigger_s,
            replan=Rules(every_s=86_400.0),
            window_s=times.most_s,
            limits=QueueLimits(linger_s=LINGER_S),
            links=DelayedLinks.of,
        )
        async with open_runtime(settings, scaled(demo, factor * _WIDE)) as runtime:
            assert runtime.server is not None
            async with await Client.connect(runtime.server.url, namespace=settings.namespace) as client:
                readers = Readers(client)
                readers.start(list(demo.subscriptions))
                watch = Watch(runtime, readers, began)
                try:
                    await runtime.wait_ready(watch.tell, timeout_s=_READY_S)
                    await watch.pass_by(min(times.settle_s, 30.0), "warming up")
                    measured = await _measure(watch, times.free_s)
                    describe(demo, measured)
                    for scale in scales:
                        found += await _at(watch, scaled(demo, factor * scale), scale, measured, times)
                finally:
                    await readers.stop()
    return found, {
        "seconds": round(time.monotonic() - began),
        "worst_late_s": round(watch.worst_late_s, 2),
    }


@dataclass
class Watch:
    """Lets time pass, tells where the run stands, and fails when a part of the deployment does.

    `late_s` is how late the event loop wakes: relays that are late by more than a bucket's burst (0.1 s) lose budget.
    """

    runtime: Runtime
    readers: Readers
    began: float
    late_s: float = 0.0
    worst_late_s: float = 0.0

    def tell(self, what: str) -> None:
        """Print a line of progress."""
        print(f"[{time.monotonic() - self.began:4.0f} s] {what}", flush=True)

    async def pass_by(self, seconds: float, what: str) -> None:
        """Let so much time pass."""
        self.tell(f"{what}, {seconds:.0f} s")
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until:
            await asyncio.sleep(_LOOK_S)
            late = time.monotonic() - now - _LOOK_S
            self.late_s = max(0.95 * self.late_s, late)
            self.worst_late_s = max(self.worst_late_s, late)
            self.readers.check()
            if self.runtime.failure.done():
                await self.runtime.failure


def cpu_seconds() -> dict[str, float]:
    """CPU seconds so far of the relays with the readers (this process), of Spark with its workers, and of NATS."""
    import psutil

    found = {"relays and readers": 0.0, "Spark": 0.0, "NATS": 0.0}
    mine = psutil.Process()
    for process in (mine, *mine.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            part = "relays and readers" if process == mine else "NATS" if "nats" in process.name() else "Spark"
            times = process.cpu_times()
            found[part] += times.user + times.system
    return found


async def _measure(watch: Watch, seconds: float) -> Measured:
    """What the service measures over so long, and longer until it has seen every stream."""
    runtime, until = watch.runtime, time.monotonic() + seconds + _SEEN_S
    runtime.observer.forget()
    while time.monotonic() < until:
        await watch.pass_by(seconds, "measuring without limits")
        snapshot = runtime.catalog.snapshot()
        measured = runtime.observer.measured(snapshot)
        if measured.streams.keys() == snapshot.deployment.streams.keys():
            return measured
    missing = sorted(snapshot.deployment.streams.keys() - measured.streams.keys())
    raise HeadgateError(
        f"nothing was measured of {', '.join(missing)} in {seconds + _SEEN_S:.0f} s",
        hint="the machine is too busy for these rates: try a smaller factor",
    )


async def _at(watch: Watch, deployment: Deployment, scale: float, measured: Measured, times: Times) -> list[Line]:
    """Predict for a scale, put it in force, let it settle, count until everybody was owed enough."""
    runtime, used = watch.runtime, cpu_seconds()
    snapshot = runtime.catalog.snapshot()
    problem = measured_problem(deployment, snapshot.class_ids, measured)
    before = await asyncio.to_thread(plan_problem, problem, "search", 0, SEARCH)
    given = replace(deployment, plan=before.plan)
    assumed: PlanResult = await asyncio.to_thread(plan_deployment, given)
    put = time.monotonic()
    runtime.catalog.apply(given)
    runtime.catalog.set_plan(before.plan)
    await runtime.control.publish()
    await watch.pass_by(times.settle_s, f"scale {scale:g}: settling")
    runtime.observer.forget()
    first = await read_tallies(runtime.fabric)
    began, want, last = time.monotonic(), times.seconds, first
    while True:
        await watch.pass_by(want, f"scale {scale:g}: counting")
        last = await read_tallies(runtime.fabric)
        owed = {
            name: difference(first.get(identity), last.get(identity))[0]
            for name, identity in snapshot.subscription_ids.items()
        }
        least, passed = min(owed, key=lambda name: owed[name]), time.monotonic() - began
        watch.tell(
            f"scale {scale:g}: least rows owed {owed[least]:,} ({least}), event loop late by {watch.late_s:.2f} s"
        )
        left = times.most_s - passed
        if owed[least] >= times.rows or left <= 0:
            break
        want = min(left, _TELL_S)
    spent = {part: (now - used.get(part, 0.0)) / (time.monotonic() - put) for part, now in cpu_seconds().items()}
    watch.tell("cores in use: " + ", ".join(f"{part} {cores:.2f}" for part, cores in spent.items()))
    loaded = runtime.observer.measured(runtime.catalog.snapshot())
    under_load = judged(deployment, snapshot.class_ids, loaded, before.plan)
    describe_load(scale, measured, loaded)
    for name, site in deployment.sites.items():
        sent, shed = runtime.observer.sent(name), runtime.observer.shed(name)
        if site.upload_bytes_per_s is not None and shed > 0:
            print(f"  upload of {name}: {sent / site.upload_bytes_per_s:.1%} used, {shed:.3f} shed")
    identities, subscriptions = snapshot.subscription_ids, deployment.subscriptions
    found = lines_of(scale, identities, subscriptions, (assumed, before), under_load, first, last)
    show(found, times.rows)
    return found
