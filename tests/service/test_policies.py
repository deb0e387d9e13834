"""Policies on the live path: a slow link, an inbox that is not read, digests in the stream, exact books."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.live import Live, running, small, until

from headgate.fabric import cancel_all
from headgate.pipeline.sources import generate
from headgate.protocol.reports import RelayReport
from headgate.relay.output import QueueLimits
from headgate.service.demo.run import drained
from headgate.service.reports import read_reports
from headgate.tuning.measured import from_status
from headgate_studies.bench.link_watch import LinkWatch

pytestmark = pytest.mark.nats

POLICY: dict[str, Any] = {
    "levels": [{"delta": {"attribute": "speed", "change": 3, "key": "vehicle"}}, {"every": 2}],
    "digest": [{"max": "speed"}, {"distinct": "vehicle"}],
}


async def _commit(live: Live, batches: range, rows: int = 50) -> None:
    for batch in batches:
        await live.commit("fleet", generate("fleet", 3, rows * batch, rows * (batch + 1)), batch)


def _check(live: Live, status: dict[str, Any], name: str, matched: int) -> dict[str, Any]:
    """The books balance, and the reader was told exactly what they say, with a digest wherever rows are missing."""
    line: dict[str, Any] = status["subscriptions"][name]
    assert line["matched"] == line["delivered"] + line["reduced"] == matched
    assert line["difference"] == 0
    deliveries = live.readers.deliveries[name]
    assert sum(sum(each.given_up.values()) for each in deliveries) == line["reduced"]
    assert all(each.digest["count"] == sum(each.given_up.values()) for each in deliveries if each.given_up)
    seqs = live.seqs(name)
    assert seqs == sorted(set(seqs))
    return line


@pytest.mark.long
def test_an_inbox_that_is_not_read_keeps_what_its_policy_wants(tmp_path: Path, nats_url: str) -> None:
    document = small(100, away={"site": "leaf", "policy": POLICY}, there={"site": "leaf"})
    limits = QueueLimits(max_rows=120, linger_s=0.0, idle_s=0.0)

    async def run() -> None:
        async with running(document, tmp_path, nats_url, limits=limits, inbox_messages=2) as live:
            live.readers.start(["there"])
            for batch in range(12):
                await _commit(live, range(batch, batch + 1))

                async def arrived(rows: int = 50 * (batch + 1)) -> bool:
                    return (await live.runtime.status())["subscriptions"]["there"]["delivered"] >= rows

                await until(arrived)
            live.readers.start(["away"])
            line = _check(live, await live.settle(), "away", 600)
            assert line["reduced"] > 200
            assert set(line["reduced_by"]) <= {"delta", "every", "oldest"}
            assert "delta" in line["reduced_by"]
            digests = [each.digest for each in live.readers.deliveries["away"] if each.digest]
            assert all(each["max(speed)"] > 0 and each["distinct(vehicle)"] > 0 for each in digests)

    asyncio.run(run())


@pytest.mark.long
def test_a_slow_link_gives_up_by_the_policies_below_it(tmp_path: Path, nats_url: str) -> None:
    document = small(100, one={"site": "leaf", "policy": POLICY}, two={"site": "mid", "policy": POLICY})
    document["sites"]["root"]["upload"] = "16 kbit/s"
    limits = QueueLimits(max_rows=100, linger_s=0.0, idle_s=0.0)

    async def run() -> None:
        async with running(document, tmp_path, nats_url, limits=limits) as live:
            live.readers.start(["one", "two"])
            await _commit(live, range(12))
            status = await live.settle(90)
            for name in ("one", "two"):
                line = _check(live, status, name, 600)
                assert line["reduced"] > 0
                assert line["delivered"] > 0

            await _tells_the_tuner_what_was_lost(live, status["subscriptions"])

    asyncio.run(run())


@pytest.mark.long
def test_max_rows_of_a_subscription_holds_behind_a_slow_link(tmp_path: Path, nats_url: str) -> None:
    """A bounded subscription shares the link, and even its class, with one that is not bounded and loses nothing."""
    document = small(100, bounded={"site": "leaf", "policy": {"max_rows": 60}}, whole={"site": "mid"})
    document["sites"]["root"]["upload"] = "120 kbit/s"
    seen: list[dict[str, Any]] = []

    async def run() -> None:
        async with running(document, tmp_path, nats_url, limits=QueueLimits(linger_s=0.0, idle_s=0.0)) as live:
            live.readers.start(["bounded", "whole"])
            await _commit(live, range(6), rows=200)

            async def watched() -> dict[str, Any] | None:
                status = await live.runtime.status()
                seen.append({name: dict(status["subscriptions"][name]) for name in ("bounded", "whole")})
                return status if drained(status) else None

            status = await until(watched, 90)
            line = status["subscriptions"]["bounded"]
            assert line["matched"] == line["delivered"] + line["reduced"] == 1200
            assert line["reduced"] > 500
            assert status["subscriptions"]["whole"]["delivered"] == 1200

    asyncio.run(run())
    waited = [each["whole"] for each in seen if each["whole"]["queued_rows"] > 300]
    assert waited, "the other one's rows did pile up"
    assert all(each["queues"]["root->mid"]["rows"] > 200 for each in waited)
    assert max(each["queued_s"] for each in waited) > 1.0
    assert all(each["queued_bytes"] > each["queued_rows"] for each in waited)
    for each in seen:
        queues = each["bounded"]["queues"]
        assert queues.get("root->mid", {"rows": 0})["rows"] <= 60
        # Behind a message on its way half of the limit is left, however large the message is.
        assert all(queue["rows"] <= 60 + 30 for queue in queues.values()), queues
        assert each["bounded"]["queued_rows"] == sum(queue["rows"] for queue in queues.values())


async def _tells_the_tuner_what_was_lost(live: Live, lines: dict[str, Any]) -> None:
    """The measured loss of the slow link is what did not cross it, and no subscriber lost less."""

    async def reported() -> tuple[dict[str, Any], int] | None:
        found = await live.runtime.status()
        carried = (await read_reports(live.client.fabric, RelayReport))["root"].link_rows["fleet:mid"]
        link = found["links"]["root->mid"]
        return (found, carried) if link["owed"] == carried + link["reduced"] == 600 else None

    after, carried = await until(reported)
    before = {**after, "time_ms": after["time_ms"] - 1000, "links": {}, "sites": {}}
    figures = from_status(before, after)
    lost = next(link["loss"] for link in figures["links"] if link.get("from") == "root")
    assert lost == pytest.approx(1 - carried / 600)
    assert 0 < lost <= min(line["reduced"] for line in lines.values()) / 600
    assert figures["sites"]["root"]["loss_rate"] == lost


def _measured(live: Live) -> Callable[[], Awaitable[dict[str, Any] | None]]:
    """The link to mid, once its receiver has said what it carries."""

    async def ask() -> dict[str, Any] | None:
        link: dict[str, Any] = (await live.runtime.status())["links"]["root->mid"]
        return link if link["measured_bytes_per_s"] else None

    return ask


def test_links_of_a_site_share_its_upload_by_bytes(tmp_path: Path, nats_url: str) -> None:
    """Wide rows on one link, narrow ones on the other: while both have something to send they get the same bytes."""
    document = small(100, wide={"site": "mid"}, narrow={"site": "leaf", "select": ["vehicle", "speed"]})
    document["sites"]["root"]["upload"] = "240 kbit/s"
    document["plan"] = {"fleet": {"mid": "root", "leaf": "root"}}

    links = {site: LinkWatch("root", site) for site in ("mid", "leaf")}

    async def run() -> None:
        async with running(document, tmp_path, nats_url) as live:
            watching = [asyncio.create_task(link.watch(live.runtime)) for link in links.values()]
            live.readers.start(["wide", "narrow"])
            await _commit(live, range(1), rows=1500)
            status = await live.settle(60)
            assert all(line["delivered"] == line["matched"] == 1500 for line in status["subscriptions"].values())
            assert status["links"]["root->mid"]["declared_bytes_per_s"] == 30_000
            link = await until(_measured(live))
            assert 0 < link["measured_bytes_per_s"] < 40_000  # no more than the upload and what a bucket holds
            await cancel_all(watching)

    asyncio.run(run())
    last = links["leaf"].arrivals[-1][0]
    narrow = sum(size for _, size in links["leaf"].arrivals)
    assert sum(size for _, size in links["mid"].arrivals) > 1.5 * narrow
    assert links["mid"].bytes_between(0.0, last) == pytest.approx(narrow, rel=0.25)
