"""The model against the running system: the demo's deployment live at several bandwidths, drops beside predictions.

One deployment runs through. First without limits: rates, joint selectivities and bytes on the wire are measured as the
running service measures them, and for each scale of the demo's bandwidths the planner makes its plan from these. Then
the bandwidths and the plan are put in force, and after settling the drop is counted by the subscribers: rows declared
given up against rows owed, over the same range of the stream. Three predictions stand beside it: from what is assumed
before anything runs, from what was measured without limits, and from what the service measures under this load. They
differ by the bytes of a row alone: rows that are left after thinning are less alike and compress worse.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.model import Deployment, Links, Plan, Site
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.planning import Graph, PlanResult, plan_deployment, plan_problem
from headgate.planning.measured import Measured, measured_problem
from headgate.planning.planner import result_of
from headgate.planning.search import Search
from headgate.service.books import read_tallies
from headgate.service.demo.run import Readers, demo_file
from headgate.service.observer import Link
from headgate.service.replanning import Rules
from headgate.service.runtime import Runtime, Settings, open_runtime
from headgate.wire.ledger import Tally

_SEARCH = Search(steps=20_000)
_ENOUGH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Line:
    """One subscription at one scale: predicted as assumed, from a run without limits, under load; what happened."""

    scale: float
    subscription: str
    rows: int
    assumed: float
    before: float
    predicted: float
    drop: float
    predicted_s: float
    delay_s: float

    @property
    def off(self) -> float:
        """How far the measured drop is from the predicted one."""
        return abs(self.drop - self.predicted)

    @property
    def agrees(self) -> bool:
        """Within 0.02, or within a tenth of what was predicted."""
        return self.off <= max(0.02, 0.1 * self.predicted)


def run(
    scales: Sequence[float] | float = (0.1, 0.07, 0.05),
    factor: float = 10.0,
    free_s: float = 30.0,
    settle_s: float = 40.0,
    seconds: float = 60.0,
    shed_after: str = "2 s",
    master: str = "local[2]",
    live: bool = True,
) -> dict[str, Any]:
    """Run the demo's deployment at `factor` times its rates and `factor` x scale times its bandwidths.

    With `live=false` the relays run in virtual time, without Spark and NATS, so that a busy machine does not count.
    A site that is 5 % over its upload needs 40 s until its rows wait for 2 s and it begins to shed: `settle_s`.
    """
    chosen = [scales] if isinstance(scales, int | float) else list(scales)
    if live:
        lines, cpu = asyncio.run(_live(chosen, factor, free_s, settle_s, seconds, shed_after, master))
    else:
        lines, cpu = _virtual(chosen, factor, free_s, settle_s, seconds, shed_after), 0.0
    figures: dict[str, Any] = {
        "live": live,
        "scales": chosen,
        "rate_factor": factor,
        "seconds_per_scale": seconds,
        "cpu_percent": round(cpu, 1),
    }
    for rows in (1000, _ENOUGH_ROWS):
        name, group = f"subscriptions_of_{rows}_rows", [line for line in lines if line.rows >= rows]
        figures |= {
            name: len(group),
            f"{name}_agree": sum(line.agrees for line in group),
            f"{name}_worst_off": round(max((line.off for line in group), default=0.0), 4),
        }
    for scale in chosen:
        mine = [line for line in lines if line.scale == scale]
        rows = max(1, sum(line.rows for line in mine))
        figures |= {
            f"scale_{scale:g}_drop_predicted": round(sum(line.rows * line.predicted for line in mine) / rows, 4),
            f"scale_{scale:g}_drop_measured": round(sum(line.rows * line.drop for line in mine) / rows, 4),
            f"scale_{scale:g}_drop_predicted_without_load": round(
                sum(line.rows * line.before for line in mine) / rows, 4
            ),
            f"scale_{scale:g}_drop_assumed": round(sum(line.rows * line.assumed for line in mine) / rows, 4),
        }
    return figures


def faster(factor: float, shed_after: str) -> Deployment:
    """The demo's deployment without an end, at so many times its rates, everybody's rows given up at random."""
    deployment = parse_deployment(demo_file().read_text(encoding="utf-8"), "demo.yaml", GENERATOR_SCHEMAS)
    streams = {}
    for name, stream in deployment.streams.items():
        options = {key: value for key, value in stream.source.options.items() if key != "limit"}
        rate = stream.rate_rows_per_s * factor
        source = replace(stream.source, options={**options, "rate": str(rate)})
        streams[name] = replace(stream, source=source, rate_rows_per_s=rate)
    subscriptions = {name: replace(each, policy=None) for name, each in deployment.subscriptions.items()}
    options = {**deployment.options, "shed_after": shed_after}
    return replace(deployment, streams=streams, subscriptions=subscriptions, options=options)


def scaled(deployment: Deployment, by: float) -> Deployment:
    """A deployment with so many times its bandwidths."""

    def times(rate: float | None) -> float | None:
        return None if rate is None else rate * by

    def site(one: Site) -> Site:
        up, down = times(one.upload_bytes_per_s), times(one.download_bytes_per_s)
        return replace(one, upload_bytes_per_s=up, download_bytes_per_s=down)

    pairs = {
        ends: replace(link, capacity_bytes_per_s=times(link.capacity_bytes_per_s))
        for ends, link in deployment.links.pairs.items()
    }
    links = Links(deployment.links.default_delay_s, pairs)
    return replace(deployment, sites={name: site(one) for name, one in deployment.sites.items()}, links=links)


async def _live(
    scales: list[float], factor: float, free_s: float, settle_s: float, seconds: float, shed_after: str, master: str
) -> tuple[list[Line], float]:
    import psutil

    demo = faster(factor, shed_after)
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="headgate-model-") as directory:
        settings = Settings(Path(directory), master=master, replan=Rules(every_s=86_400.0))
        async with open_runtime(settings, scaled(demo, factor * 1000)) as runtime:
            assert runtime.server is not None
            async with await Client.connect(runtime.server.url, namespace=settings.namespace) as client:
                readers = Readers(client)
                readers.start(list(demo.subscriptions))
                try:
                    await runtime.wait_ready(timeout_s=600.0)
                    await _pass(runtime, readers, settle_s)
                    measured = await _measure(runtime, readers, free_s)
                    _describe(demo, measured)
                    psutil.cpu_percent()
                    for scale in scales:
                        lines += await _at(runtime, readers, scaled(demo, factor * scale), scale, measured,
                                           settle_s, seconds)  # fmt: skip
                    cpu = psutil.cpu_percent()
                finally:
                    await readers.stop()
    return lines, cpu


def _virtual(
    scales: list[float], factor: float, free_s: float, settle_s: float, seconds: float, shed_after: str
) -> list[Line]:
    """The same in virtual time: a run without limits, then one for each scale from the first row on."""
    from headgate.bench.model_virtual import World, snapshot_of

    demo = faster(factor, shed_after)
    wide = scaled(demo, factor * 1000)
    free = World(snapshot_of(replace(wide, plan=plan_deployment(wide, "brush").plan)))
    free.run(settle_s)
    start = dict(free.links)
    free.run(free_s)
    measured = free.measured(_grown(start, free.links), free_s)
    _describe(demo, measured)
    lines = []
    for scale in scales:
        deployment = scaled(demo, factor * scale)
        problem = measured_problem(deployment, free.snapshot.class_ids, measured)
        before = plan_problem(problem, "search", 0, _SEARCH)
        given = replace(deployment, plan=before.plan)
        world = World(snapshot_of(given))
        world.run(settle_s)
        first, links, sent = world.tallies(), dict(world.links), dict(world.sent)
        world.run(seconds)
        loaded = world.measured(_grown(links, world.links), seconds)
        under_load = _judged(deployment, world.snapshot.class_ids, loaded, before.plan)
        _describe_load(scale, measured, loaded)
        for name, site in deployment.sites.items():
            used = (world.sent.get(name, 0) - sent.get(name, 0)) / seconds
            if site.upload_bytes_per_s and used > 0.5 * site.upload_bytes_per_s:
                print(f"  upload of {name}: {used / site.upload_bytes_per_s:.1%} used")
        results = (plan_deployment(given), before, under_load)
        lines += _lines(scale, world.snapshot.subscription_ids, results, first, world.tallies())
    return lines


def _grown(before: Mapping[Link, tuple[int, int, int]], now: Mapping[Link, tuple[int, int, int]]) -> dict[Link, Any]:
    """What counts have grown by."""
    return {
        link: tuple(new - old for new, old in zip(counts, before.get(link, (0, 0, 0)), strict=True))
        for link, counts in now.items()
    }


def _judged(deployment: Deployment, class_ids: Mapping[str, int], measured: Measured, plan: Plan) -> PlanResult:
    return result_of(Graph.of(measured_problem(deployment, class_ids, measured), plan), "measured")


def _lines(
    scale: float,
    identities: Mapping[str, int],
    results: tuple[PlanResult, PlanResult, PlanResult],
    first: Mapping[int, Tally],
    last: Mapping[int, Tally],
) -> list[Line]:
    """What each subscription was predicted (as assumed, before, under load) and what its tallies say."""
    found = []
    for name, prediction in results[2].subscriptions.items():
        rows, drop, delay_s = _difference(first.get(identities[name]), last.get(identities[name]))
        assumed, before, _ = (result.subscriptions[name].drop for result in results)
        delays = prediction.delay_s, delay_s
        found.append(Line(scale, name, rows, assumed, before, prediction.drop, drop, *delays))
    _print(found)
    return found


def _describe_load(scale: float, measured: Measured, loaded: Measured) -> None:
    print(f"scale {scale:g}")
    for name, seen in loaded.streams.items():
        was = measured.streams[name]
        print(f"  {name}: {seen.row_bytes:.1f} bytes a row under load, {was.row_bytes:.1f} without limits; "
              f"{seen.rate_rows_per_s:,.0f} rows/s, {was.rate_rows_per_s:,.0f} before")  # fmt: skip


async def _measure(runtime: Runtime, readers: Readers, seconds: float) -> Measured:
    """What the service measures over so long, and longer until it has seen every stream."""
    runtime.observer.forget()
    while True:
        await _pass(runtime, readers, seconds)
        snapshot = runtime.catalog.snapshot()
        measured = runtime.observer.measured(snapshot)
        if measured.streams.keys() == snapshot.deployment.streams.keys():
            return measured


async def _at(
    runtime: Runtime, readers: Readers, deployment: Deployment, scale: float, measured: Measured,
    settle_s: float, seconds: float,
) -> list[Line]:  # fmt: skip
    """Predict for a scale, put it in force, let it settle, count."""
    snapshot = runtime.catalog.snapshot()
    problem = measured_problem(deployment, snapshot.class_ids, measured)
    before = await asyncio.to_thread(plan_problem, problem, "search", 0, _SEARCH)
    given = replace(deployment, plan=before.plan)
    assumed: PlanResult = await asyncio.to_thread(plan_deployment, given)
    runtime.catalog.apply(given)
    runtime.catalog.set_plan(before.plan)
    await runtime.control.publish()
    await _pass(runtime, readers, settle_s)
    first = await read_tallies(runtime.fabric)
    loaded = await _measure(runtime, readers, seconds)
    last = await read_tallies(runtime.fabric)
    under_load = _judged(deployment, snapshot.class_ids, loaded, before.plan)
    _describe_load(scale, measured, loaded)
    for name, site in deployment.sites.items():
        sent, shed = runtime.observer.sent(name), runtime.observer.shed(name)
        if site.upload_bytes_per_s is not None and shed > 0:
            print(f"  upload of {name}: {sent / site.upload_bytes_per_s:.1%} used, {shed:.3f} shed")
    return _lines(scale, snapshot.subscription_ids, (assumed, before, under_load), first, last)


async def _pass(runtime: Runtime, readers: Readers, seconds: float) -> None:
    """Let time pass, and fail when a part of the deployment does."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await asyncio.sleep(0.5)
        readers.check()
        if runtime.failure.done():
            await runtime.failure


def _difference(before: Tally | None, after: Tally | None) -> tuple[int, float, float]:
    """Rows owed between two tallies, the part of them that was given up, and the mean delay of the rest."""
    if after is None:
        return 0, 0.0, 0.0
    before = before or Tally(after.subscription)
    got = after.delivered - before.delivered
    lost = sum(after.reduced.values()) - sum(before.reduced.values()) + after.expired - before.expired
    count = after.commit_delay.count - before.commit_delay.count
    delay_ms = (after.commit_delay.total_ms - before.commit_delay.total_ms) / max(1, count)
    return got + lost, lost / max(1, got + lost), delay_ms / 1000


def _describe(demo: Deployment, measured: Measured) -> None:
    for name, seen in measured.streams.items():
        columns = ", ".join(f"{column} {size:.1f}" for column, size in seen.column_bytes.items())
        print(f"{name}: {seen.rate_rows_per_s:,.0f} rows/s ({demo.streams[name].rate_rows_per_s:,.0f} declared), "
              f"{seen.row_bytes:.1f} bytes a row (base {seen.base_bytes:.1f}, {columns}), "
              f"{len(seen.classes)} sets of classes")  # fmt: skip


def _print(lines: list[Line]) -> None:
    print(f"{'scale':>5} {'subscription':20} {'rows':>9} {'assumed':>8} {'unloaded':>8} {'model':>7} {'drop':>7} "
          f"{'delay model':>12} {'measured':>9}", flush=True)  # fmt: skip
    for line in lines:
        verdict = ("" if line.agrees else "  differs") + ("" if line.rows >= _ENOUGH_ROWS else "  (few rows)")
        print(f"{line.scale:5g} {line.subscription:20} {line.rows:9,} {line.assumed:8.3f} {line.before:8.3f} "
              f"{line.predicted:7.3f} {line.drop:7.3f} {line.predicted_s * 1e3:9.0f} ms {line.delay_s * 1e3:6.0f} ms"
              f"{verdict}", flush=True)  # fmt: skip
