"""PACK section 5.1 on the running relay: links of 50 kbit/s, an event every 30 ms, drop-tail against a policy.

One root feeds a link for each method at the same time, so all see the same events and the same machine. An event takes
about 250 bytes on the link, headers included, which is 40 ms: the paper's overload of one third. Beside the live
figures stand those of the simulation (`pack-queue`) with the bytes that were measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from headgate.model import Schema
from headgate_studies.studies import charts
from headgate_studies.studies.papers import PACK
from headgate_studies.studies.study import FAILS, PARTLY, REPRODUCES, Parameters, Statement, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from headgate.client import Client
    from headgate.service.runtime import Runtime

_SCHEMA = Schema.of({"n": "bigint", "sent": "double", "pad": "string"})
_EVENT_S: Final = 0.03
_LINK_BYTES_PER_S: Final = 50_000 / 8
_COMMIT_S: Final = 0.15
_PAD: Final = 8
_SAMPLE_S: Final = 0.05
_WAIT_S: Final = 120.0
_LEVELS: Final = [{"random": 0.1}, {"random": 0.25}, {"random": 0.5}]
POLICIES: dict[str, dict[str, Any]] = {
    "drop-tail": {"levels": ["tail"], "headroom": 0.0},
    "ladder": {"levels": _LEVELS, "controller": "ladder"},
    "deficit": {"levels": _LEVELS, "controller": "deficit"},
}


def _deployment() -> str:
    sites = "".join(f"  {name}: {{download: 50 kbit/s}}\n" for name in POLICIES)
    wants = "".join(
        f"  {name}: {{site: {name}, stream: events, policy: {json.dumps(policy)}}}\n"
        for name, policy in POLICIES.items()
    )
    return f"""
streams:
  events:
    root: source
    schema: {{n: bigint, sent: double, pad: string}}
    source: {{format: nats}}
sites:
  source: {{}}
{sites}
plan:
  events: {{{", ".join(f"{name}: source" for name in POLICIES)}}}
subscriptions:
{wants}
"""


@dataclass
class _Link:
    """What was seen of one method: events that came with their delay, what was told, bytes, and the queue over time."""

    sent_s: list[float] = field(default_factory=list)
    delay_s: list[float] = field(default_factory=list)
    told: int = 0
    bytes: int = 0
    samples: list[tuple[float, int, int, int]] = field(default_factory=list)


def run(parameters: Parameters, seed: int) -> list[dict[str, Any]]:
    """All methods at once for `seconds`; a row a method."""
    seconds, limit = float(parameters["seconds"]), int(parameters["limit"])
    began, links = asyncio.run(_live(seconds, limit, seed))
    return [{"method": name, **_row(link, name, began, seconds, limit, seed)} for name, link in links.items()]


def _row(link: _Link, method: str, began: float, seconds: float, limit: int, seed: int) -> dict[str, Any]:
    from headgate.reduction import parse_policy
    from headgate_studies.studies.pack_simulation import drop_tail, through_queue

    count = int(seconds / _EVENT_S)
    event_s = link.bytes / max(1, len(link.delay_s)) / _LINK_BYTES_PER_S
    arrivals = np.arange(count, dtype=np.float64) * _EVENT_S
    service = np.full(count, event_s, dtype=np.float64)
    if method == "drop-tail":
        simulated = drop_tail(arrivals, service, limit)
    else:
        policy = POLICIES[method] | {"levels": [{"random": {"fraction": 0.1, "seed": seed}}, *_LEVELS[1:]]}
        rows = _rows(0, count)
        simulated = through_queue(parse_policy(policy, _SCHEMA), _SCHEMA, rows, arrivals, service, limit)
    packs = np.diff([pack for _, _, _, pack in link.samples], prepend=0) > 0
    levels = [level for (_, _, level, _), packed in zip(link.samples, packs, strict=True) if packed]
    settled = levels[len(levels) // 2 :]
    return {
        "event_ms": event_s * 1e3,
        "overload": event_s / _EVENT_S,
        "loss": 1 - len(link.delay_s) / count,
        "undeclared": count - len(link.delay_s) - link.told,
        "delay_s": float(np.mean(link.delay_s)),
        "delay_p95_s": float(np.quantile(link.delay_s, 0.95)),
        "longest": max(rows for _, rows, _, _ in link.samples),
        "packs": link.samples[-1][3],
        "level_span": max(settled) - min(settled) if settled else 0,
        "simulated_loss": simulated.loss,
        "simulated_delay_s": float(np.mean(simulated.delay_s)),
        "trace_s": [round(each - began, 3) for each in link.sent_s],
        "trace_delay_s": [round(each, 3) for each in link.delay_s],
        "pack_s": [round(each[0] - began, 2) for each, packed in zip(link.samples, packs, strict=True) if packed],
        "pack_level": levels,
    }


def _rows(start: int, stop: int) -> pa.RecordBatch:
    """Events that are due, each with the time at which it was."""
    rng = np.random.default_rng(start)
    now = time.time()
    sent = now - (stop - 1 - np.arange(start, stop)) * _EVENT_S
    pads = [rng.bytes(_PAD // 2).hex() for _ in range(start, stop)]
    return pa.RecordBatch.from_pydict({"n": np.arange(start, stop), "sent": sent, "pad": pads}, schema=_SCHEMA.arrow)


async def _live(seconds: float, limit: int, seed: int) -> tuple[float, dict[str, _Link]]:
    from headgate.catalog import parse_deployment
    from headgate.client import Client
    from headgate.relay.output import QueueLimits
    from headgate.service.replanning import Rules
    from headgate.service.runtime import open_runtime
    from headgate.service.settings import Settings

    del seed  # the machine is the only thing that differs between two runs
    deployment = parse_deployment(_deployment(), "pack-queue.yaml", {})
    links = {name: _Link() for name in POLICIES}
    count = int(seconds / _EVENT_S)
    with tempfile.TemporaryDirectory() as directory:
        limits = QueueLimits(max_rows=limit)
        never = Rules(every_s=math.inf)  # the plan is given
        settings = Settings(Path(directory), limits=limits, job=False, replan=never)
        async with open_runtime(settings, deployment) as runtime:
            assert runtime.server is not None
            async with (
                await Client.connect(runtime.server.url, namespace=settings.namespace) as client,
                _watching(runtime, client, links),
                _feeding(runtime, count),
            ):
                began = time.time()
                while any(len(each.delay_s) + each.told < count for each in links.values()):
                    for name, link in links.items():
                        link.samples.append(_sample(runtime, name))
                    if time.time() > began + seconds + _WAIT_S:
                        break
                    await asyncio.sleep(_SAMPLE_S)
    return began, links


def _sample(runtime: Runtime, site: str) -> tuple[float, int, int, int]:
    """Time, rows that wait, level and number of packs of the link to a site."""
    outputs = runtime.nodes["source"].machine.state.core.outputs
    found = [output for key, output in outputs.items() if key.child == site]
    if not found:
        return time.time(), 0, 0, 0
    return time.time(), found[0].rows, found[0].reducer.level, found[0].reducer.packs


@contextlib.asynccontextmanager
async def _watching(runtime: Runtime, client: Client, links: dict[str, _Link]) -> AsyncIterator[None]:
    """Readers of all inboxes, and counters of what arrives over the links."""
    tasks = [asyncio.create_task(_read(client, name, link)) for name, link in links.items()]
    tasks += [asyncio.create_task(_count(runtime, name, link)) for name, link in links.items()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _read(client: Client, name: str, link: _Link) -> None:
    async for delivery in await client.subscribe(name):
        now = time.time()
        link.told += sum(delivery.given_up.values())
        for sent in delivery.rows.column("sent").to_pylist():
            link.sent_s.append(sent)
            link.delay_s.append(now - sent)


async def _count(runtime: Runtime, name: str, link: _Link) -> None:
    logs = runtime.fabric.logs
    async for batch in runtime.fabric.follow(logs.site(name), logs.links_into(name)):
        link.bytes += sum(stored.size for stored in batch)


@contextlib.asynccontextmanager
async def _feeding(runtime: Runtime, count: int) -> AsyncIterator[None]:
    from headgate.pipeline.worker import Address
    from headgate.wire.logs import Logs
    from headgate_studies.direct import DirectCommits, feed

    assert runtime.server is not None
    stop = threading.Event()
    with DirectCommits(Address(runtime.server.url, Logs(runtime.settings.namespace))) as direct:
        work = partial(feed, direct, "events", _rows, rate=1 / _EVENT_S, rows=count, every_s=_COMMIT_S, stop=stop)
        feeding = asyncio.create_task(asyncio.to_thread(work))
        try:
            yield
        finally:
            stop.set()
            await feeding


def _mean(results: pd.DataFrame, method: str, name: str) -> float:
    return float(results[results["method"] == method][name].mean())


def _latency(results: pd.DataFrame) -> tuple[str, str]:
    tail = _mean(results, "drop-tail", "delay_s")
    gains = {name: 1 - _mean(results, name, "delay_s") / tail for name in ("ladder", "deficit")}
    text = f"drop-tail {tail:.1f} s; " + ", ".join(f"{name} {gain:.0%} lower" for name, gain in gains.items())
    return text, REPRODUCES if min(gains.values()) > 0.1 else FAILS


def _loss(results: pd.DataFrame) -> tuple[str, str]:
    found = {name: _mean(results, name, "loss") for name in POLICIES}
    text = ", ".join(f"{name} {value:.1%}" for name, value in found.items())
    over = float(results["overload"].mean())
    near = all(abs(value - 0.3) < 0.02 for value in found.values())
    return f"{text}; {over:.2f} times what the link takes came", REPRODUCES if near else FAILS


def _level_two(results: pd.DataFrame) -> tuple[str, str]:
    levels = [level for found in results[results["method"] == "ladder"]["pack_level"] for level in found]
    share = levels.count(2) / max(1, len(levels))
    return f"ladder: level 2 in {share:.0%} of packs", REPRODUCES if share > 0.5 else PARTLY if share > 0.34 else FAILS


def _agrees(results: pd.DataFrame) -> tuple[str, str]:
    delay = (results["delay_s"] / results["simulated_delay_s"] - 1).abs().max()
    loss = (results["loss"] - results["simulated_loss"]).abs().max()
    text = f"largest difference of the mean delay {delay:.0%}, of the loss {loss:.1%}"
    return text, REPRODUCES if delay < 0.25 and loss < 0.05 else PARTLY if delay < 0.5 else FAILS


def _no_silent_loss(results: pd.DataFrame) -> tuple[str, str]:
    lost = int(results["undeclared"].sum())
    return f"{lost} events lost without a word", REPRODUCES if lost == 0 else FAILS


def chart(results: pd.DataFrame) -> Figure:
    """Figure 4 as measured: delay over time, loss in windows of a second, packs and their levels."""
    figure, (delay, loss, levels) = charts.panels(3, 1, width=5.2)
    for number, method in enumerate(POLICIES):
        case = results[results["method"] == method].iloc[0]
        colour = charts.COLOURS[number]
        times = np.array(case["trace_s"])
        delay.plot(times, case["trace_delay_s"], color=colour, label=method, linewidth=1.0)
        arrived = np.histogram(times, bins=np.arange(0, case["seconds"] + 1))[0] * _EVENT_S
        loss.plot(np.arange(len(arrived)), 1 - arrived, color=colour, label=method, linewidth=1.0)
        levels.plot(
            case["pack_s"], case["pack_level"], color=colour, label=method, marker=charts.MARKERS[number], ls=""
        )
    delay.set(xlabel="event, s", ylabel="delay, s", title="Delay")
    loss.set(xlabel="event, s", ylabel="loss in a second", title="Loss")
    levels.set(xlabel="s", ylabel="level", title="Packs", yticks=[1, 2, 3, 4])
    delay.legend()
    return figure


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """Means by method, beside the simulation's."""
    names = ("overload", "loss", "simulated_loss", "delay_s", "simulated_delay_s", "packs", "longest", "undeclared")
    return {f"{method} {name}": round(_mean(results, method, name), 4) for method in POLICIES for name in names}


STUDY = Study(
    name="pack-queue-live",
    about="PACK section 5.1 on the running relay: drop-tail against a three-level policy on links of 50 kbit/s.",
    parameters={"limit": [100], "seconds": [90]},
    run=run,
    chart=chart,
    statements=(
        Statement("events in the queue managed by the policy have a lower average latency (section 5.1)", _latency),
        Statement("the loss rate is about 30 % (section 5.1)", _loss),
        Statement("most pack operations are performed at the second level (section 5.1)", _level_two),
        Statement("the relay behaves as the simulation says (ours)", _agrees),
        Statement("every event that was given up is declared (ours)", _no_silent_loss),
    ),
    summary=summary,
    seeds=1,
    live=True,
    paper=PACK,
    notes="Delay is from the event to its hand-over to the client. Events are committed five at a time. Drop-tail is "
    "the filter `tail` without headroom.",
)
