"""Changing a running deployment through the client, and what it says to wrong names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.client.helpers import connect, live_test, no_difference, read, rows, seqs
from tests.live import Live, small, until

from headgate.client import Client, ClientError, SyncClient
from headgate.fabric import FabricError
from headgate.protocol.reports import RelayReport
from headgate.service.reports import read_reports

pytestmark = pytest.mark.nats


def test_subscriptions_are_made_changed_and_ended(tmp_path: Path, nats_url: str) -> None:
    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, 10), 0)
        await live.client.subscribe("mine", stream="fleet", site="leaf", select=["vehicle"])
        await live.commit("fleet", rows(10, 30), 1)
        found = await read(live.client, "mine", 20)
        assert seqs(found) == list(range(11, 31))
        assert found[0].rows.schema.names == ["vehicle"]
        status = await live.runtime.status()
        assert status["subscriptions"]["mine"]["starts"] == 10
        await live.client.subscribe("mine", stream="fleet", site="leaf", where="speed < 0", format="json")
        await live.commit("fleet", rows(30, 50), 2)
        revision = await live.client.unsubscribe("mine")
        assert revision > status["revision"]
        await live.commit("fleet", rows(50, 60), 3)
        with pytest.raises(ClientError, match="no subscription 'mine'"):
            await live.client.subscribe("mine")
        status = await live.runtime.status()
        (ended,) = (each for name, each in status["subscriptions"].items() if name.startswith("(ended"))
        assert (ended["matched"], ended["delivered"], ended["difference"]) == (20, 20, 0)

    live_test(tmp_path, nats_url, small(all={"site": "mid"}), work)


def test_a_context_holds_from_a_place_on_and_the_catalog_takes_it_over(tmp_path: Path, nats_url: str) -> None:
    document = small(fast={"site": "leaf", "where": "speed > $limit", "context": {"limit": 1000}})

    async def work(live: Live) -> None:
        before = (await live.client.snapshot()).revision
        await live.commit("fleet", rows(0, 20), 0)
        place = await live.client.set_context("fast", limit=-1)
        assert await live.client.set_context("fast", limit=-1) == place
        assert (await live.client.snapshot()).revision == before
        await live.commit("fleet", rows(20, 40), 1)
        assert seqs(await read(live.client, "fast", 20)) == list(range(21, 41))
        await until(lambda: no_difference(live))
        await live.client.control("subscribe", name="other", subscription={"stream": "fleet", "site": "mid"})
        snapshot = await live.client.snapshot()
        assert snapshot.deployment.subscriptions["fast"].context == {"limit": -1}
        assert snapshot.contexts == {"fleet": place}

    live_test(tmp_path, nats_url, document, work)


def test_wrong_names_and_values_are_refused_with_the_nearest(tmp_path: Path, nats_url: str) -> None:
    document = small(storms={"site": "leaf", "where": "speed > $limit", "context": {"limit": 1}}, other={"site": "mid"})

    async def work(live: Live) -> None:
        client = live.client
        good: dict[str, Any] = {"stream": "fleet", "site": "leaf"}
        for attempt, said in (
            (lambda: client.subscribe("strms"), r"no subscription 'strms' \(did you mean 'storms'\?\)"),
            (lambda: client.unsubscribe("strms"), r"unknown subscription 'strms' \(did you mean 'storms'\?\)"),
            (lambda: client.set_context("strms", limit=1), r"'strms' \(did you mean 'storms'\?\)"),
            (lambda: client.set_context("storms", limit="fast"), "limit"),
            (
                lambda: client.set_context("storms", limmit=3),
                r"'limmit' \(did you mean 'limit'\?\)",
            ),
            (lambda: client.set_context("storms", max=3), r"context value 'max' \(its values are limit\)"),
            (lambda: client.subscribe("new", **{**good, "site": "leav"}), r"'leav' \(did you mean 'leaf'\?\)"),
            (lambda: client.subscribe("new", **{**good, "stream": "fleat"}), r"'fleat' \(did you mean 'fleet'\?\)"),
            (lambda: client.subscribe("new", **good, where="sped > 1"), r"'sped'.*did you mean 'speed'\?"),
            (lambda: client.subscribe("new", **good, wher="speed > 1"), r"'wher'.*did you mean 'where'\?"),
            (lambda: client.publish("fleat", [{"vehicle": 1}]), r"no stream 'fleat' \(did you mean 'fleet'\?\)"),
            (lambda: client.publish("fleet", [{"vehicle": 1}]), "reads from 'generator'"),
        ):
            with pytest.raises(ClientError, match=said):
                await attempt()
        assert (await client.snapshot()).revision == live.runtime.catalog.head()

    live_test(tmp_path, nats_url, document, work)


def test_a_namespace_or_a_directory_without_a_deployment_is_said_at_once(tmp_path: Path, nats_url: str) -> None:
    async def run() -> None:
        async with await Client.connect(nats_url, namespace="nothing-here") as client, asyncio.timeout(20):
            with pytest.raises(FabricError, match="is the deployment up"):
                await client.subscribe("any")
            with pytest.raises(FabricError, match="is the deployment up"):
                await client.unsubscribe("any")

    asyncio.run(run())
    with pytest.raises(ClientError, match="nothing is running in"):
        SyncClient(state_dir=tmp_path)


async def report_time(live: Live, site: str) -> int:
    """When a relay reported last, which it does after it has looked after its inboxes."""
    reports = await read_reports(live.client.fabric, RelayReport)
    return reports[site].time_ms if site in reports else 0


async def later(live: Live, site: str, than_ms: int) -> bool:
    return await report_time(live, site) > than_ms


@pytest.mark.long
def test_a_message_that_is_no_acknowledgement_harms_nobody(tmp_path: Path, nats_url: str) -> None:
    async def work(live: Live) -> None:
        fabric = live.client.fabric
        await live.commit("fleet", rows(0, 10), 0)
        for junk in (b"", b"[]", b'{"delivered": 1}', b'{"subscription": 1, "commit_delay": {"no": 1}}'):
            await fabric.publish(fabric.logs.ack(1), junk)
            reported = await report_time(live, "mid")
            await until(lambda reported=reported: later(live, "mid", reported))
            assert (await live.runtime.status())["subscriptions"]["all"]["in_flight"] == 10
        async with await connect(live) as client:
            assert seqs(await read(client, "all", 10)) == list(range(1, 11))
        await until(lambda: no_difference(live))

    live_test(tmp_path, nats_url, small(all={"site": "mid"}), work)


def test_a_context_follows_the_rows_of_another_subscription(tmp_path: Path, nats_url: str) -> None:
    document = small(
        me={"site": "mid", "where": "vehicle = 'v001'", "select": ["speed"]},
        faster={"site": "leaf", "where": "speed > $speed", "context": {"speed": 1000.0}, "context_from": "me"},
    )

    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, 60), 0)
        own = [each["speed"] for each in rows(0, 60).to_pylist() if each["vehicle"] == "v001"]
        assert own

        async def followed() -> bool:
            return bool(live.runtime.control.contexts.current("faster")["speed"] == own[-1])

        await until(followed, 20)
        await live.commit("fleet", rows(60, 120), 1)
        wanted = [60 + k + 1 for k, each in enumerate(rows(60, 120).to_pylist()) if each["speed"] > own[-1]]
        assert seqs(await read(live.client, "faster", len(wanted))) == wanted

    live_test(tmp_path, nats_url, document, work)
