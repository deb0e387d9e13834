"""The tuner between relays: twelve sites on one server, rows flowing, beside the same protocol in virtual time.

Each case starts from the same random tree with a subscription at each site but the root's. Delays of links are emulated
(`DelayedLinks`). Rows are committed without Spark all the while. A case ends when its goal is reached and measured, or
when `seconds` are over: the star for the total path latency, no superfluous data, and as little latency as a bound on
the fanout allows, with the bound kept in every plan. What every subscriber got is compared with the ledger.

With `fixed` the units are given the declared delays; else they measure them by letters, as in production.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.fabric import cancel_all
from headgate.model import Deployment, Plan
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.worker import Address
from headgate.planning.measured import with_relays_of
from headgate.protocol.reports import TuningReport
from headgate.relay.unit_cores import settings_of
from headgate.service.demo.links import DelayedLinks
from headgate.service.demo.run import Readers, drained
from headgate.service.reports import read_reports
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.service.tuning_run import TuningRun, Wishes
from headgate.tuning.protocol.streams import StreamSimulation
from headgate.tuning.scene import MeasuredScene, Scene
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

_WANTED: Final = ("speed > 90", "speed < 20", "fuel < 0.2")
_BATCH: Final = 20
_FEED_S: Final = 0.5
_DRAIN_S: Final = 120.0
_VIRTUAL_PERIODS: Final = 40


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    objective: str
    constraints: tuple[str, ...]
    reached: Callable[[TuningReport, str], bool]


def _is_star(report: TuningReport, root: str) -> bool:
    return set(report.trees["fleet"].values()) == {root}


def _is_zero(report: TuningReport, _: str) -> bool:
    return report.cost is not None and abs(report.cost) < 1e-9


def _is_settled(report: TuningReport, _: str) -> bool:
    return report.state == "settled" and bool(report.steps)


CASES: Final = (
    _Case("latency", "minimise sum(path_latency)", (), _is_star),
    _Case("superfluous", "minimise sum(superfluous_data)", (), _is_zero),
    _Case("fanout", "minimise sum(path_latency)", ("fanout <= 4",), _is_settled),
)


@dataclass
class _Feed:
    """Commits rows all the while."""

    address: Address
    batches: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        with DirectCommits(self.address, "bench") as direct:
            while not self.ended.is_set():
                rows = generate("fleet", 3, self.batches * _BATCH, (self.batches + 1) * _BATCH)
                await asyncio.to_thread(direct.commit, "fleet", rows, self.batches)
                self.batches += 1
                await asyncio.sleep(_FEED_S)


def run(
    sites: int = 12, every: float = 12.0, seconds: float = 300.0, seed: int = 1, fixed: bool = False, case: str = ""
) -> dict[str, Any]:
    """Run every case, or the one that is named, with optimisation periods of so many seconds."""
    found: dict[str, Any] = {"sites": sites, "every_s": every, "fixed": fixed}
    for each in CASES:
        if case in ("", each.name):
            with tempfile.TemporaryDirectory() as directory:
                figures = asyncio.run(_live(each, Path(directory), sites, seed, every, seconds, fixed=fixed))
            print(f"{each.name}: " + ", ".join(f"{key} {value}" for key, value in figures.items()))
            found |= {f"{each.name}_{key}": value for key, value in figures.items()}
    totals = ("lost", "twice", "out_of_order", "ledger_difference", "constraint_missed")
    found |= {key: sum(value for name, value in found.items() if name.endswith(f"_{key}")) for key in totals}
    found["load"] = round(os.getloadavg()[0], 1)
    return found


def _document(case: _Case, count: int, seed: int, every: float) -> dict[str, Any]:
    names = [f"s{number:02d}" for number in range(count)]
    generator = np.random.default_rng(seed)
    places = generator.uniform(0, 60, (count, 2))
    pairs = [
        {"between": [names[i], names[j]], "delay": f"{2 + np.hypot(*(places[i] - places[j])):.1f}ms"}
        for i in range(count)
        for j in range(i)
    ]
    parents: dict[str, str] = {}
    while len(parents) < count - 1:  # a random tree that keeps to the bound that one of the cases has
        name = names[len(parents) + 1]
        parent = names[int(generator.integers(len(parents) + 1))]
        if list(parents.values()).count(parent) < 4:
            parents[name] = parent
    return {
        "sites": {name: {"upload": "100 Mbit/s", "download": "100 Mbit/s"} for name in names},
        "links": {"pairs": pairs},
        "streams": {
            "fleet": {"root": names[0], "source": {"format": "generator", "kind": "fleet", "seed": 3}, "key": "vehicle"}
        },
        "plan": {"fleet": parents},
        "subscriptions": {
            f"at-{name}": {"stream": "fleet", "site": name, "where": _WANTED[number % len(_WANTED)]}
            for number, name in enumerate(names[1:])
        },
        "objective": case.objective,
        "constraints": list(case.constraints),
        "options": {"planner": "tuner", "tuner_every": f"{every:g}s"},
    }


async def _live(
    case: _Case, directory: Path, count: int, seed: int, every: float, seconds: float, *, fixed: bool
) -> dict[str, Any]:
    text = yaml.safe_dump(_document(case, count, seed, every))
    deployment = parse_deployment(text, "bench.yaml", GENERATOR_SCHEMAS)
    settings = Settings(state_dir=directory, job=False, links=DelayedLinks.of)
    async with (
        open_runtime(settings, deployment) as runtime,
        await Client.connect(None, state_dir=directory) as client,
    ):
        readers, feed = Readers(client, keep=True), _Feed(Address(runtime.url, Logs()))
        readers.start(list(deployment.subscriptions))
        feeding = asyncio.create_task(feed.run())
        try:
            if fixed:
                await client.control("tune", measured={})
            report, took_s = await _until_reached(runtime, case, seconds, readers)
            feed.ended.set()
            await feeding
            status = await _drain(runtime, readers)
        finally:
            await cancel_all([feeding])
            await readers.stop()
        tuning = runtime.tuner.tuning
        assert tuning is not None
        virtual = await asyncio.to_thread(_virtual, tuning, deployment)
        plans = [each.after for each in runtime.catalog.plans(200)]
        return {
            **_figures(case, report, took_s, deployment),
            **virtual,
            **_delivered(status, readers),
            "constraint_missed": sum(max(_fans(plan)) > 4 for plan in plans) if case.constraints else 0,
            "rows": feed.batches * _BATCH,
        }


async def _until_reached(
    runtime: Runtime, case: _Case, seconds: float, readers: Readers
) -> tuple[TuningReport, float | None]:
    """The report when the goal is reached and the last step measured, and the time until the last step."""
    root = runtime.catalog.snapshot().deployment.streams["fleet"].root
    end_s = time.monotonic() + seconds
    while True:
        await asyncio.sleep(0.5)
        readers.check()
        report = (await read_reports(runtime.fabric, TuningReport)).get("_")
        if report is not None and report.costs and case.reached(report, root):
            taken = [step for step in report.steps if step.state == "in force"]
            last = taken[-1] if taken else None
            if last is None or last.measured is not None or last.cost_before is None or last.run != report.run:
                return report, max((step.at_s for step in taken), default=0.0)
        if time.monotonic() > end_s and report is not None:
            return report, None


async def _drain(runtime: Runtime, readers: Readers) -> dict[str, Any]:
    end_s = time.monotonic() + _DRAIN_S
    while True:
        status = await runtime.status()
        readers.check()
        if drained(status) or time.monotonic() > end_s:
            return status
        await asyncio.sleep(0.5)


def _figures(case: _Case, report: TuningReport, took_s: float | None, deployment: Deployment) -> dict[str, Any]:
    taken = [step for step in report.steps if step.state == "in force"]
    known = [point.cost for point in report.costs if point.cost is not None and point.sites == len(deployment.sites)]
    off = [
        abs(step.measured - step.predicted) / max(abs(step.predicted), 1e-9)
        for step in taken
        if step.measured is not None and step.predicted is not None
    ]
    root = deployment.streams["fleet"].root
    return {
        "reached": took_s is not None and case.reached(report, root),
        "steps": len(taken),
        "refused": len(report.steps) - len(taken),
        "seconds": None if took_s is None else round(took_s, 1),
        "periods": None if took_s is None else round(took_s / report.every_s, 1),
        "cost_before": round(known[0], 6) if known else None,
        "cost": None if report.cost is None else round(report.cost, 6),
        "measured_against_predicted": round(float(np.median(off)), 4) if off else None,
    }


def _virtual(tuning: TuningRun, deployment: Deployment) -> dict[str, Any]:
    """The protocol in virtual time from the same tree, by the declared delays."""
    plan = deployment.plan
    assert plan is not None
    wishes = Wishes(tuning.wishes.objective, tuning.wishes.constraints, every_s=120.0, measured=MeasuredScene())
    scene = Scene(with_relays_of(tuning.scene.problem, plan))
    again = TuningRun.begin(1, 0.0, wishes, scene, plan)
    brief = again.word(scene.names[0], 0, plan).brief
    assert brief is not None
    simulation = StreamSimulation([scene.overlays["fleet"]], settings_of(brief, brief.trees[0]))
    simulation.start([scene.shapes(plan)["fleet"]])
    simulation.run(_VIRTUAL_PERIODS * wishes.every_s)
    steps = simulation.applied()
    return {
        "virtual_steps": len(steps),
        "virtual_seconds": round(max((at for at, _ in steps), default=0.0), 1),
        "virtual_cost": round(simulation.cost(), 6),
    }


def _delivered(status: dict[str, Any], readers: Readers) -> dict[str, int]:
    found = {"lost": 0, "twice": 0, "out_of_order": 0, "ledger_difference": 0}
    for name, line in status["subscriptions"].items():
        seqs = [seq for each in readers.deliveries[name] for seq in each.seqs.tolist()]
        got = len(set(seqs))
        found["lost"] += line["matched"] - line["reduced"] - line["expired"] - got
        found["twice"] += len(seqs) - got
        found["out_of_order"] += sum(one > other for one, other in pairwise(seqs))
        found["ledger_difference"] += abs(
            line["matched"] - line["delivered"] - line["reduced"] - line["expired"] - line["in_flight"]
        )
    return found


def _fans(plan: Plan) -> list[int]:
    parents = list(plan.trees["fleet"].parents.values())
    return [parents.count(parent) for parent in parents]
