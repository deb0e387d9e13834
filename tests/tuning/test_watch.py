"""`headgate tune --watch` against a running deployment: its plan in force, what it measured, steps proposed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.live import running, small, until

from headgate.cli.options import ConnectionOptions
from headgate.cli.tune import _look, _show, tuned_live
from headgate.pipeline.sources import generate
from headgate.service.status import read_status
from headgate.tuning.scene import BYTES
from headgate.tuning.search import Options

pytestmark = pytest.mark.nats


def test_steps_are_proposed_from_what_a_running_deployment_measured(
    tmp_path: Path, nats_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = small(300, all={"site": "leaf"}, some={"site": "mid", "where": "speed > 40"})

    async def run():
        async with running(document, tmp_path, nats_url) as live:
            live.readers.start(["all", "some"])
            await live.commit("fleet", generate("fleet", 3, 0, 300), 0)
            await live.settle()

            async def reported():
                status = await read_status(live.client.fabric, live.client.tables)
                known = [link["latency_s"] for link in status["links"].values()]
                return status if len(known) == 2 and None not in known else None

            await until(reported)
            looking = asyncio.create_task(
                _look(ConnectionOptions(tmp_path, nats_url, live.address.logs.namespace), 2.5)
            )
            batch = 0
            while not looking.done():
                batch += 1
                await live.commit("fleet", generate("fleet", 3, 300 * batch, 300 * (batch + 1)), batch)
                await live.settle()
            return await looking

    look = asyncio.run(run())
    assert look.snapshot.plan.trees["fleet"].parents == {"mid": "root", "leaf": "mid"}
    measured = look.measured
    assert set(measured.links["link_latency"]) == {("mid", "root"), ("leaf", "mid")}
    assert all(0 <= value < 10 for value in measured.links["link_latency"].values())
    assert measured.directed["link_loss"] == {("root", "mid"): 0.0, ("mid", "leaf"): 0.0}
    assert measured.sites["loss_rate"] == {"root": 0.0, "mid": 0.0}
    assert set(measured.sites["relay_cpu"]) == {"root", "mid", "leaf"}
    assert all(0 < value < 10 for value in measured.sites["relay_cpu"].values())
    assert measured.rates == {"fleet": BYTES}
    assert look.problem.flows[0].rate_rows_per_s > 0
    everything, some = (
        next(member.interest.size for member in look.problem.members if member.site == site) for site in ("leaf", "mid")
    )
    assert 0 < some < everything

    def tuned(look, objective):
        return tuned_live(look, look.snapshot.deployment, objective, (), Options(periods=20))

    result = tuned(look, "minimise average(hops) over clients")
    assert result.before == look.snapshot.plan
    assert result.plan.trees["fleet"].parents == {"mid": "root", "leaf": "root"}
    assert [step.kind for step in result.steps[0].steps] == ["connect", "catch up", "drop"]
    slow = replace(measured, sites={**measured.sites, "relay_cpu": {"mid": 0.5}})
    away = tuned(replace(look, measured=slow), "minimise sum(path_relay_cpu) over clients")
    assert away.plan.trees["fleet"].parents == {"mid": "root", "leaf": "root"}
    lossy = replace(measured, directed={"link_loss": {("mid", "leaf"): 0.25}})
    kept = tuned(replace(look, measured=lossy), "minimise max(path_loss) over clients")
    assert kept.cost_before == pytest.approx(0.25)
    assert kept.plan.trees["fleet"].parents == {"mid": "root", "leaf": "root"}
    _show(kept, steps=False, as_json=False)
    shown = capsys.readouterr().out
    assert "link_loss: measured on 1 link; others what their sender gives up elsewhere" in shown
    assert "rows and bytes on links measured (fleet)" in shown
