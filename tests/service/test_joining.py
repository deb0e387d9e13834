"""Joins on the live system: a site of unknown bandwidth sheds, and those it serves find parents by the protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.live import running, sites

from headgate.model import Plan, Tree
from headgate.pipeline.sources import generate
from headgate.relay.output import QueueLimits
from headgate.service.replanning import Rules

pytestmark = pytest.mark.nats

NAMES = ("at-a", "at-b")


@pytest.mark.long
def test_a_site_that_turns_out_to_be_slow_serves_fewer(tmp_path: Path, nats_url: str) -> None:
    document: dict[str, Any] = {
        "sites": sites("root", "a", "b"),
        "streams": {
            "fleet": {"root": "root", "source": {"format": "generator", "kind": "fleet", "seed": 3, "limit": 100}}
        },
        "subscriptions": {
            "at-a": {"site": "a", "stream": "fleet", "quality": {"drop": 0.1}},
            "at-b": {"site": "b", "stream": "fleet", "quality": {"drop": 0.1}},
        },
        "options": {"emulate_upload": {"root": "200 kbit/s"}},
    }
    settings: dict[str, Any] = {
        "limits": QueueLimits(max_rows=300),
        "replan": Rules(every_s=3600.0),
        "settle_s": 1.0,
    }

    async def run() -> None:
        async with running(document, tmp_path, nats_url, **settings) as live:
            runtime = live.runtime
            runtime.catalog.set_plan(Plan({"fleet": Tree("fleet", "root", {"a": "root", "b": "root"})}))
            await runtime.control.publish()
            live.readers.start(list(NAMES))
            joiner = runtime.joiner
            assert joiner is not None
            batch = 0
            while not joiner.joins:
                await live.commit("fleet", generate("fleet", 3, 200 * batch, 200 * (batch + 1)), batch)
                batch += 1
            (join,) = joiner.joins
            plan = runtime.catalog.snapshot().plan
            assert plan is not None
            assert join.before == "root"
            assert join.after in ("a", "b")
            assert plan.trees["fleet"].parents[join.site] == join.after
            assert join.hop_s > 0  # the file declares no delay: this is what both ends have measured
            status = await live.settle(60)
            assert status["joins"] == [msgspec.to_builtins(join)]
            for name in NAMES:
                line = status["subscriptions"][name]
                assert line["matched"] == line["delivered"] + line["reduced"] == 200 * batch, str(line)
                assert live.seqs(name) == sorted(set(live.seqs(name)))
                assert line["difference"] == 0

    asyncio.run(run())
