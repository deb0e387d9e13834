"""Subscribers that are away: full inboxes, the end of the grace period, and what they are told when they come back."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.live import Live, running, small, until

from headgate.cli.status_sheets import error_lines
from headgate.pipeline.control import UpdateController
from headgate.pipeline.sources import generate
from headgate.relay.output import QueueLimits
from headgate.service.books import read_tallies

pytestmark = pytest.mark.nats


async def _commit(live: Live, batches: int, rows: int = 50, first: int = 0) -> None:
    for batch in range(first, first + batches):
        await live.commit("fleet", generate("fleet", 3, rows * batch, rows * (batch + 1)), batch)


async def _line(live: Live, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (await live.runtime.status())["subscriptions"][name]
    return found


def test_rows_of_a_subscriber_that_stays_away_expire_and_are_declared(tmp_path: Path, nats_url: str) -> None:
    document = small(100, away={"site": "leaf", "expires": "1 s"}, there={"site": "leaf"})

    async def run() -> None:
        async with running(document, tmp_path, nats_url) as live:
            live.readers.start(["there"])
            await _commit(live, 3)
            fabric, logs = live.client.fabric, live.client.fabric.logs
            inbox = logs.delivery("leaf", live.runtime.catalog.snapshot().subscription_ids["away"])

            async def replaced() -> bool:
                stored = await fabric.read(logs.inbox("leaf"), inbox, 0)
                return bool(stored) and b'"expired"' in stored[0].data

            await until(replaced, 30)
            await _commit(live, 1, first=3)
            live.readers.start(["away"])
            status = await live.settle()
            away, there = status["subscriptions"]["away"], status["subscriptions"]["there"]
            assert there["delivered"] == 200
            assert away["expired"] >= 150
            assert away["expired"] + away["delivered"] == away["matched"] == 200
            assert away["difference"] == 0
            assert sum(each.given_up.get("expired", 0) for each in live.readers.deliveries["away"]) == away["expired"]

    asyncio.run(run())


@pytest.mark.long
def test_a_subscriber_that_reads_nothing_fills_only_its_own_inbox(tmp_path: Path, nats_url: str) -> None:
    document = small(100, lazy={"site": "leaf"}, keen={"site": "leaf", "format": "json"})
    limits = QueueLimits(max_rows=200, linger_s=0.0, idle_s=0.0)

    async def run() -> None:
        async with running(document, tmp_path, nats_url, limits=limits, inbox_messages=4) as live:
            live.readers.start(["keen"])
            for batch in range(14):
                await _commit(live, 1, first=batch)
                await until(lambda n=batch: _delivered(live, "keen", 50 * (n + 1)), 20)
            assert (await _line(live, "lazy"))["in_flight"] == 700
            live.readers.start(["lazy"])
            status = await live.settle()
            lazy = status["subscriptions"]["lazy"]
            assert lazy["difference"] == 0
            assert sum(lazy["reduced_by"].values()) == lazy["reduced"] > 0
            assert lazy["reduced"] + lazy["delivered"] == 700
            assert status["subscriptions"]["keen"]["delivered"] == 700

    async def _delivered(live: Live, name: str, count: int) -> bool:
        return sum(map(len, live.readers.deliveries.get(name, []))) >= count

    asyncio.run(run())


def test_a_subscription_may_start_with_what_the_root_log_still_holds_of_its_class(
    tmp_path: Path, nats_url: str
) -> None:
    document = small(100, first={"site": "mid", "where": "speed > 30"})

    async def run() -> None:
        async with running(document, tmp_path, nats_url) as live:
            live.readers.start(["first"])
            await _commit(live, 3)
            await live.settle()
            same = {"stream": "fleet", "site": "leaf", "where": "speed > 30"}
            await live.client.control("subscribe", name="late", subscription={**same, "start": "earliest"})
            await live.client.control("subscribe", name="later", subscription=same)
            live.readers.start(["late", "later"])
            await _commit(live, 2, first=3)
            status = await live.settle()
            assert live.seqs("late") == live.seqs("first")
            assert live.seqs("later") == [seq for seq in live.seqs("first") if seq > 150]
            assert status["subscriptions"]["late"]["starts"] == 0
            assert status["subscriptions"]["later"]["starts"] == 150
            assert all(each["difference"] == 0 for each in status["subscriptions"].values())

    asyncio.run(run())


def test_a_stream_that_keeps_its_rows_has_the_past_of_a_filter_that_is_new(tmp_path: Path, nats_url: str) -> None:
    document = small(100, first={"site": "mid", "where": "speed > 60"})
    document["streams"]["fleet"]["keep"] = "1 h"

    async def run() -> None:
        async with running(document, tmp_path, nats_url) as live:
            live.readers.start(["first"])
            await _commit(live, 2)
            await live.settle()
            moment = datetime.now(UTC).isoformat()
            await _commit(live, 1, first=2)
            everything = pa.Table.from_batches([generate("fleet", 3, 0, 200)])
            slow = np.flatnonzero(everything["speed"].to_numpy() <= 30) + 1
            wanted = {"stream": "fleet", "site": "leaf", "where": "speed <= 30"}
            for name, start in (("all", "earliest"), ("numbered", 60), ("timed", moment), ("after", "now")):
                await live.client.control("subscribe", name=name, subscription={**wanted, "start": start})
            names = ["all", "numbered", "timed", "after"]
            live.readers.start(names)
            await _commit(live, 1, first=3)
            status = await live.settle()
            for name, first in zip(names, (1, 51, 101, 151), strict=True):
                assert live.seqs(name) == [seq for seq in slow.tolist() if seq >= first]
                assert status["subscriptions"][name]["starts"] == first - 1
            assert live.seqs("first") == [
                seq + 1 for seq, speed in enumerate(everything["speed"].to_pylist()) if speed > 60
            ]
            assert all(each["difference"] == 0 for each in status["subscriptions"].values())

    asyncio.run(run())


def test_rows_shed_at_admission_are_counted_and_declared_to_every_subscriber(tmp_path: Path, nats_url: str) -> None:
    document = small(100, all={"site": "leaf"}, none={"site": "mid", "where": "speed > 1000"})
    document["streams"]["fleet"]["admission"] = {"method": "shed", "bound": "60 s"}

    async def run() -> None:
        async with running(document, tmp_path, nats_url) as live:
            live.readers.start(["all", "none"])
            fresh = generate("fleet", 3, 0, 400, origin_us=int((time.time() - 1) * 1e6))
            await live.commit("fleet", fresh, 0, row_cost_s=1e-6)
            await live.commit("fleet", fresh, 1, row_cost_s=0.5)
            status = await live.settle()
            stream, line = status["streams"]["fleet"], status["subscriptions"]["all"]
            assert stream["rows_in"] == 800
            assert 280 <= stream["shed"] <= 320
            assert stream["difference"] == line["difference"] == 0
            assert line["delivered"] == 800 - stream["shed"]
            # Every shed row matched one class, so the sample says exactly what was missed.
            missed = {"estimate": stream["shed"], "low": stream["shed"], "high": stream["shed"]}
            assert stream["errors"]["false_negatives"] == missed
            assert stream["errors"]["sampled_rows"] == 16
            assert error_lines(status)[0].startswith(f"stream fleet: about {stream['shed']} (95 %: {stream['shed']} to")

            async def told() -> bool:
                tallies = await read_tallies(live.client.fabric)
                return [tally.shed for tally in tallies.values()] == [stream["shed"]] * 2

            await until(told, 20)

    asyncio.run(run())


def test_rows_are_not_shed_for_a_subscription_that_may_miss_nothing(tmp_path: Path, nats_url: str) -> None:
    strict = {"site": "mid", "where": "speed >= $least", "context": {"least": 0.0}, "require": "e-science"}
    document = small(100, all={"site": "leaf"}, strict=strict, same={"site": "leaf", "require": "e-science"})
    document["streams"]["fleet"]["admission"] = {"require": {"preset": "sports results", "bound": "60 s"}}

    async def run() -> None:
        async with running(document, tmp_path, nats_url) as live:
            snapshot = await live.client.snapshot()
            assert snapshot.class_ids["all"] != snapshot.class_ids["same"]
            live.controllers["fleet"] = UpdateController(snapshot.deployment.streams["fleet"])
            live.readers.start(["all", "strict", "same"])
            fresh = generate("fleet", 3, 0, 400, origin_us=int((time.time() - 1) * 1e6))
            await live.commit("fleet", fresh, 0, row_cost_s=1e-6)
            await live.client.set_context("strict", least=20.0)
            await live.commit("fleet", fresh, 1, row_cost_s=0.5)
            status = await live.settle()
            stream, lines = status["streams"]["fleet"], status["subscriptions"]
            partly = stream["partly_shed"]
            assert (stream["rows_in"], stream["shed"], stream["difference"]) == (800, 0, 0)
            # A row that `all` alone misses saves a third of its work, and nobody else gives any: one row is kept.
            assert partly == 399
            fast = pc.sum(pc.greater_equal(fresh.column("speed"), 20.0)).as_py()
            still = pc.sum(pc.greater_equal(fresh.column("speed"), 0.0)).as_py()
            assert {name: each["delivered"] for name, each in lines.items()} == {
                "all": 800 - partly,
                "strict": still + fast,
                "same": 800,
            }
            assert all(each["difference"] == 0 for each in lines.values())
            # Each of those rows was missed by one class alone.
            assert stream["errors"]["false_negatives"] == {"estimate": partly, "low": partly, "high": partly}
            missed = {name: each["errors"]["false_negatives"] for name, each in lines.items()}
            assert {name: each["estimate"] for name, each in missed.items()} == {"all": partly, "strict": 0, "same": 0}
            assert missed["all"]["low"] < partly < missed["all"]["high"]  # a sample of 16 is not sure
            assert any(each.startswith(f"subscription all: about {partly} (95 %:") for each in error_lines(status))
            assert f"stream fleet: {partly} rows matched only for those who may miss less" in error_lines(status)

            async def told() -> bool:
                tallies = await read_tallies(live.client.fabric)
                return [tally.partly_shed for tally in tallies.values()] == [partly] * 3

            await until(told, 20)

    asyncio.run(run())
