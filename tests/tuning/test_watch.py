"""`headgate tune --watch` against a running deployment: its plan in force, its measured rates, steps proposed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.live import running, small, until

from headgate.cli.tune import _look, _tuned, declared_of
from headgate.pipeline.sources import generate
from headgate.tuning.measured import from_status
from headgate.tuning.search import Options

pytestmark = pytest.mark.nats


def test_steps_are_proposed_from_what_a_running_deployment_measured(tmp_path: Path, nats_url: str) -> None:
    document = small(300, all={"site": "leaf"}, some={"site": "mid", "where": "speed > 40"})

    async def run():
        async with running(document, tmp_path, nats_url) as live:
            place = (nats_url, tmp_path, live.address.logs.namespace, None)
            before, plan = await _look(*place)
            live.readers.start(["all", "some"])
            await live.commit("fleet", generate("fleet", 3, 0, 300), 0)
            await live.settle()

            async def reported():
                status, plan = await _look(*place)
                known = [link["latency_s"] for link in status["links"].values()]
                return (status, plan) if len(known) == 2 and None not in known else None

            after, again = await until(reported)
            return live.runtime.catalog.snapshot().deployment, plan, again, before, after

    deployment, plan, again, before, after = asyncio.run(run())
    assert plan == again
    assert plan is not None
    assert plan.trees["fleet"].parents == {"mid": "root", "leaf": "mid"}
    figures = from_status(before, after, declared_of(deployment))
    assert {tuple(link["between"]) for link in figures["links"]} == {("mid", "root"), ("leaf", "mid")}
    assert all(0 <= link["latency_s"] < 10 for link in figures["links"])
    assert set(figures["sites"]) == {"root", "mid", "leaf"}
    assert all(0 < site["relay_cpu"] < 10 for site in figures["sites"].values())
    assert figures["sizes"]["rate_rows_per_s"]["fleet"] > 0
    assert figures["sizes"]["selectivity"]["all"] == 1.0
    assert 0 < figures["sizes"]["selectivity"]["some"] < 1
    result = _tuned(deployment, plan, "minimise average(hops) over clients", (), Options(periods=20), figures)
    assert result.before == plan
    assert result.plan.trees["fleet"].parents == {"mid": "root", "leaf": "root"}
    assert [step.kind for step in result.steps[0].steps] == ["connect", "catch up", "drop"]
    slow = {**figures, "sites": {**figures["sites"], "mid": {"relay_cpu": 0.5}}}
    away = _tuned(deployment, plan, "minimise sum(path_relay_cpu) over clients", (), Options(periods=20), slow)
    assert away.plan.trees["fleet"].parents == {"mid": "root", "leaf": "root"}
