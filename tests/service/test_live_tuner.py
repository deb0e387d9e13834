"""The tuner between relays on a real server: sites change places while rows flow, and no row is lost or doubled."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.client.helpers import no_difference, rows
from tests.live import Live, running, until

from headgate.cli.tune_live import Watching, tune_live
from headgate.client import ClientError
from headgate.protocol.reports import TuningReport
from headgate.service.demo.links import DelayedLinks
from headgate.service.reports import read_reports

pytestmark = pytest.mark.nats
SITES = ("root", "a", "b", "c")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done once in a while is done at once: nothing here is about how often."""
    for place in (
        "relay.unit._IDLE_S",
        "service.live_tuner._LOOK_S",
        "client.acknowledging._ACK_EVERY_S",
    ):
        monkeypatch.setattr(f"headgate.{place}", 0.1)


def _chain(**options: Any) -> dict[str, Any]:
    """Four sites in a chain, 5 ms between any two, and a subscription at each but the first."""
    return {
        "sites": {name: {"upload": "100 Mbit/s", "download": "100 Mbit/s"} for name in SITES},
        "links": {"default_delay": "5ms"},
        "streams": {
            "fleet": {"root": "root", "source": {"format": "generator", "kind": "fleet", "seed": 3}, "key": "vehicle"}
        },
        "plan": {"fleet": {child: parent for parent, child in pairwise(SITES)}},
        "subscriptions": {f"at-{site}": {"stream": "fleet", "site": site} for site in SITES[1:]},
        "objective": "minimise sum(path_latency)",
        "constraints": ["fanout <= 2"],
        "options": options,
    }


async def _report(live: Live) -> TuningReport | None:
    return (await read_reports(live.runtime.fabric, TuningReport)).get("_")


@pytest.mark.long
def test_the_chain_becomes_the_star_that_the_constraint_allows_while_rows_flow(tmp_path: Path, nats_url: str) -> None:
    async def work(live: Live) -> None:
        names = [f"at-{site}" for site in SITES[1:]]
        live.readers.start(names)
        batch = 0

        async def feed() -> None:
            nonlocal batch
            await live.commit("fleet", rows(10 * batch, 10 * batch + 10), batch)
            batch += 1

        await feed()
        await live.client.control("tune", every="4s", measured={})

        async def measured() -> TuningReport | None:
            report = await _report(live)
            if report is not None and len(report.costs) + len(report.steps) > batch:
                await feed()  # as often as something happens
            done = report is not None and len(report.steps) == 1 and report.cost == pytest.approx(0.020)
            return report if done else None

        report: TuningReport = await until(measured, 120.0)
        await feed()
        status = await live.settle()
        assert await no_difference(live)
        for name in names:
            assert live.seqs(name) == list(range(1, 10 * batch + 1)), name
        assert all(line["matched"] == 10 * batch for line in status["subscriptions"].values())

        assert report.trees == {"fleet": {"a": "root", "b": "root", "c": "b"}}
        for each in live.runtime.catalog.plans(50):
            parents = list(each.after.trees["fleet"].parents.values())
            assert max(map(parents.count, parents)) <= 2
        assert not any(point.missed for point in report.costs)
        (step,) = report.steps
        assert (step.state, step.moves, step.predicted) == ("in force", {"b": "root"}, pytest.approx(0.010))
        assert step.measured in (None, pytest.approx(0.010))
        history = (await live.client.control("plan-history"))["plans"]
        (change,) = [each for each in history if each["tuned"] is not None]
        assert [(each["site"], each["to"]) for each in change["moved"]] == [("b", "root")]
        assert (change["revision"], change["quality_after"]) == (step.revision, None)
        assert change["tuned"]["transformation"] == step.transformation
        assert change["tuned"]["cost_predicted"] == pytest.approx(change["tuned"]["cost"] - 0.010)

    async def run() -> None:
        async with running(_chain(planner="tuner"), tmp_path, nats_url, links=DelayedLinks.of) as live:
            await work(live)

    asyncio.run(run())


def test_the_owner_alone_changes_the_plan(tmp_path: Path, nats_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the planner owns the plan the tuner is refused, and the other way round."""

    async def run() -> None:
        async with running(_chain(), tmp_path, nats_url) as live:
            with pytest.raises(ClientError, match="the central planner owns the plan"):
                await live.client.control("tune", objective="minimise sum(path_latency)")
            await live.client.control("change", deployment={"options": {"planner": "tuner", "tuner_every": "60s"}})
            with pytest.raises(ClientError, match="the tuner owns the plan"):
                await live.client.control("plan-propose", algorithm="search")

            async def begun() -> bool:
                report = await _report(live)
                return report is not None and report.state == "running"

            await until(begun)
            with pytest.raises(ClientError, match="no mode 'serial'"):
                await live.client.control("tune", mode="serial")
            with pytest.raises(ClientError, match="attained_quality"):
                await live.client.control("tune", objective="maximise sum(attained_quality)")
            asked = await live.client.control("tune", every="30s", mode="random,concurrent")
            report = await _report(live)
            assert report is not None
            assert report.run == asked["run"]
            assert (report.every_s, report.modes) == (30.0, ["random", "concurrent"])
            capsys.readouterr()
            await tune_live(live.client, {"every": "20s"}, Watching(as_json=True))
            document = json.loads(capsys.readouterr().out)
            assert (document["every_s"], document["modes"], document["steps"]) == (20.0, ["bottleneck"], [])
            assert document["constraints"][-1] == "fanout <= 2"
            await tune_live(live.client, {}, Watching(seconds=0.1))
            assert "a period is 20 s, state: running" in capsys.readouterr().out
            around = (frozenset({"a"}), {}, set[str]())
            assert not live.runtime.bypass._change(*around)  # of a silent relay: its standbys serve
            await live.client.control("change", deployment={"options": {"planner": "central"}})

            async def off() -> bool:
                report = await _report(live)
                return report is not None and report.state == "off"

            await until(off)
            assert live.runtime.bypass._change(*around)

    asyncio.run(run())
