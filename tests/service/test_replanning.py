"""Planning while running: measured figures replace assumed ones, and a better plan takes over without a loss."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.live import Live, running, sites
from typer.testing import CliRunner

from headgate.catalog import parse_deployment
from headgate.cli.groups import Program
from headgate.cli.plan import register
from headgate.cli.status_sheets import planner_line
from headgate.model import Plan, Tree
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.planning.replan import Effort
from headgate.relay.output import QueueLimits
from headgate.service.replanning import Rules, attained_quality

pytestmark = pytest.mark.nats

LIMITS = QueueLimits(max_rows=300)
NAMES = ("at-a", "at-b", "at-c", "few")


def _document() -> dict[str, Any]:
    """A root that declares 2 rows a second and has upload for about one copy of what really comes."""
    return {
        "sites": {**sites("a", "b", "c"), "root": {"upload": "400 kbit/s"}},
        "streams": {
            "fleet": {
                "root": "root",
                "source": {"format": "generator", "kind": "fleet", "seed": 3, "limit": 100},
                "rate": "2/s",
            }
        },
        "subscriptions": {
            "at-a": {"site": "a", "stream": "fleet", "quality": {"drop": 0.1}},
            "at-b": {"site": "b", "stream": "fleet", "quality": {"drop": 0.1}},
            "at-c": {"site": "c", "stream": "fleet", "select": ["vehicle", "speed"]},
            "few": {"site": "c", "stream": "fleet", "where": "status = 'fault'"},
        },
    }


async def _commit_until(live: Live, batch: int, seen: Any) -> int:
    """Commit batches of 200 rows until something was seen; the number of the next batch."""
    while not await seen():
        await live.commit("fleet", generate("fleet", 3, 200 * batch, 200 * (batch + 1)), batch)
        batch += 1
    return batch


@pytest.mark.long
def test_a_plan_made_of_assumptions_gives_way_to_one_made_of_measurements(tmp_path: Path, nats_url: str) -> None:
    rules = Rules(every_s=0.3, confirm=2, rest_s=0.0, window_s=0.5, effort=Effort(move_gain=0.05))

    async def run() -> None:
        async with running(_document(), tmp_path, nats_url, namespace="replanned", replan=rules, limits=LIMITS) as live:
            # At two rows a second every plan is as good as any other: take the one that later is not.
            live.runtime.catalog.set_plan(Plan({"fleet": Tree("fleet", "root", dict.fromkeys("abc", "root"))}))
            await live.runtime.control.publish()
            live.readers.start(list(NAMES))

            async def changed() -> bool:
                return bool((await live.runtime.status())["planner"].get("changes", 0))

            batch = await _commit_until(live, 0, changed)
            report = (await live.runtime.status())["planner"]
            after = live.runtime.catalog.snapshot().plan
            assert after is not None
            assert set(after.trees["fleet"].parents.values()) != {"root"}

            async def carried() -> bool:
                links = (await live.runtime.status())["links"]
                return any(not link.startswith("root") for link in links)

            await _commit_until(live, batch, carried)
            status = await live.settle(90)
            for name in NAMES:
                line = status["subscriptions"][name]
                assert line["matched"] == line["delivered"] + line["reduced"], str(line)
                assert line["difference"] == 0
                seqs = live.seqs(name)
                assert seqs == sorted(set(seqs))
                assert len(seqs) == line["delivered"]
            (change,) = [
                each for each in (await live.client.control("plan-history"))["plans"] if each["by"] == "planner"
            ][-1:]
            assert change["quality"] < change["quality_after"]
            assert {each["from"] for each in change["moved"]} == {"root"}
            stream = report["streams"]["fleet"]
            assert stream["rate_assumed"] == 2.0
            assert stream["rate"] > 200
            assert live.runtime.control.figures().rate_rows_per_s["fleet"] > 200  # whoever joins is placed by it too
            assert 5 < stream["row_bytes"] < stream["row_bytes_assumed"]
            faults = report["subscriptions"]["few"]
            share = status["subscriptions"]["few"]["matched"] / status["subscriptions"]["at-a"]["matched"]
            assert faults["selectivity"] == pytest.approx(share, abs=0.05)
            subscriptions = live.runtime.catalog.snapshot().deployment.subscriptions
            for name, line in report["subscriptions"].items():
                if line["drop"] is not None:
                    value = subscriptions[name].quality.value(line["drop"], line["delay_s"] or 0.0)
                    assert line["quality"] == pytest.approx(value)

    asyncio.run(run())
    app = Program()
    register(app)
    shown = CliRunner().invoke(app, ["--live", "--nats", nats_url, "--namespace", "replanned"])
    assert shown.exit_code == 0, shown.output
    assert all(name in shown.output for name in (*NAMES, "rows/s assumed", "quality, predicted", "the model predicts"))


def test_what_is_called_measured_is_the_quality_of_measured_drop_and_delay() -> None:
    deployment = parse_deployment(yaml.safe_dump(_document()), "test.yaml", GENERATOR_SCHEMAS)
    value = deployment.subscriptions["at-a"].quality.value
    found = {"at-a": value(0.746, 0.02), "at-b": value(0.0, 96.0), "at-c": value(1.0, 0.1), "few": None}
    mean, zeros, counted = attained_quality(deployment, found)
    assert mean == pytest.approx((0.5 * 0.1 / 0.746 * 0.5 * 0.05) ** (1 / 3))
    assert (zeros, counted) == (0, 3)
    assert attained_quality(deployment, {"at-a": 0.0, "at-b": 0.5}) == (pytest.approx(0.5), 1, 2)
    assert attained_quality(deployment, dict.fromkeys(NAMES)) == (None, 0, 0)
    line = {"drop": 0.7, "delay_s": 96.0}
    report = {
        "quality": mean, "quality_zeros": zeros, "quality_of": counted, "quality_predicted": 1.0,
        "quality_reachable": 1.0, "moves": 0, "state": "keeping", "fixed": False, "changes": 0, "window_s": 30.0,
        "subscriptions": dict.fromkeys(NAMES, line), "constraints_missed": ["constraint `fanout <= 1` is missed: x"],
    }  # fmt: skip
    text = planner_line(report)
    assert f"quality {mean:.3f} by drop and delay measured over 30 s, 1 settled nothing" in text
    assert "the model predicts 1.000" in text
    assert text.endswith("\nplan: constraint `fanout <= 1` is missed: x")
    assert "no quality measured" in planner_line({**report, "quality": None})


def test_a_plan_that_the_file_gives_is_judged_and_kept(tmp_path: Path, nats_url: str) -> None:
    rules = Rules(every_s=0.2, confirm=1, rest_s=0.0, window_s=0.2, effort=Effort(move_gain=0.05))
    document = {**_document(), "plan": {"fleet": {"a": "root", "b": "root", "c": "root"}}}

    async def run() -> None:
        async with running(document, tmp_path, nats_url, replan=rules, limits=LIMITS) as live:
            live.readers.start(list(NAMES))

            async def judged() -> bool:
                return float((await live.runtime.status())["planner"].get("gain", 0.0)) > 0.05

            await _commit_until(live, 0, judged)
            report = (await live.runtime.status())["planner"]
            assert report["fixed"]
            for name in ("at-a", "at-b"):
                line = report["subscriptions"][name]
                assert line["drop"] is None or line["drop"] <= 0.1 or line["quality"] < 0.5, str(line)
            assert report["changes"] == 0
            plan = live.runtime.catalog.snapshot().plan
            assert plan is not None
            assert plan.trees["fleet"].parents == document["plan"]["fleet"]

    asyncio.run(run())
