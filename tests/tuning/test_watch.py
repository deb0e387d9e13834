"""`headgate tune --watch` against a running deployment: its plan in force, its measured rates, steps proposed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.live import running, small

from headgate.cli.tune import _look, _tuned
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
            await live.commit("fleet", generate("fleet", 3, 0, 300), 0)
            after, again = await _look(*place)
            return live.runtime.catalog.snapshot().deployment, plan, again, before, after

    deployment, plan, again, before, after = asyncio.run(run())
    assert plan == again
    assert plan is not None
    assert plan.trees["fleet"].parents == {"mid": "root", "leaf": "mid"}
    figures = from_status(before, after)
    assert figures["sizes"]["rate_rows_per_s"]["fleet"] > 0
    assert figures["sizes"]["selectivity"]["all"] == 1.0
    assert 0 < figures["sizes"]["selectivity"]["some"] < 1
    result = _tuned(deployment, plan, "minimise average(hops) over clients", (), Options(periods=20), figures)
    assert result.before == plan
    assert result.plan.trees["fleet"].parents == {"mid": "root", "leaf": "root"}
    assert [step.kind for step in result.steps[0].steps] == ["connect", "catch up", "drop"]
