"""Streams, sites, links, objectives and plans that change while a deployment runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.api.helpers import Api, api_test, serve
from tests.client.helpers import rows
from tests.live import running, small, until

pytestmark = pytest.mark.nats


def test_a_new_site_a_new_stream_and_their_first_rows(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        made = await api.json("PUT", "/api/sites/tromso", json={"upload": "3 MB/s"})
        assert made["changed"] == ["site tromso"]
        stream = {"root": "tromso", "schema": {"station": "string", "level": "double"}, "source": {"format": "nats"}}
        made = await api.json("PUT", "/api/streams/tide", json=stream)
        assert {"stream tide", "tree tide"} <= set(made["changed"])
        assert (await api.json("GET", "/api/streams/tide"))["root"] == "tromso"
        await api.json(
            "POST",
            "/api/subscriptions",
            201,
            json={"name": "high", "stream": "tide", "site": "leaf", "where": "level > 2"},
        )
        await api.json("POST", "/api/subscriptions", 201, json={"name": "far", "stream": "fleet", "site": "tromso"})
        stored = await api.json("POST", "/api/streams/tide/rows", json={"station": "north", "level": 3.0})
        assert stored["stored"] == 1
        await api.live.commit("fleet", rows(0, 40), 0)
        level = pa.record_batch({"station": ["a", "b"], "level": [1.0, 3.0]})
        await api.live.commit("tide", level, 0)
        api.live.readers.start(["all", "far", "high"])
        status = await api.live.settle()
        assert [status["subscriptions"][name]["delivered"] for name in ("all", "far", "high")] == [40, 40, 1]
        assert status["streams"]["tide"]["rows_in"] == 2

        async def quiet() -> bool:  # the new site has not reported at first
            return (await api.live.runtime.status())["findings"] == []

        await until(quiet)
        refused = await api.json("DELETE", "/api/sites/tromso", 422)
        assert "tromso" in refused["detail"]
        refused = await api.json("DELETE", "/api/streams/tide", 422)
        assert "high" in refused["detail"]
        for name in ("far", "high"):
            await api.json("DELETE", f"/api/subscriptions/{name}")
        gone = await api.json("PATCH", "/api/declared", json={"streams": {"tide": None}, "sites": {"tromso": None}})
        assert {"site tromso", "stream tide"} <= set(gone["changed"])
        await api.json("GET", "/api/streams/tide", 404)
        await api.live.commit("fleet", rows(40, 60), 1)
        assert (await api.live.settle())["subscriptions"]["all"]["delivered"] == 60

    document = small(all={"site": "leaf"})
    del document["plan"]
    api_test(tmp_path, nats_url, document, work)


def test_bandwidths_links_and_objectives_change_and_stay_after_a_restart(tmp_path: Path, nats_url: str) -> None:
    document = small(all={"site": "leaf"})
    del document["plan"]

    async def run() -> None:
        async with running(document, tmp_path, nats_url, namespace="reshaped") as live, serve(live) as api:
            await api.json("PATCH", "/api/sites/mid", json={"upload": "2 MB/s"})
            await api.json(
                "POST", "/api/changes", json={"changes": ["site root upload=1MB/s", "link root-mid delay=9ms"]}
            )
            await api.json("PATCH", "/api/links/mid/leaf", json={"capacity": "1 MB/s"})
            await api.json("PATCH", "/api/objective", json={"objective": "minimise average(path_latency)"})
            await api.json("PATCH", "/api/objective", json={"constraints": ["fanout <= 2"]})
            declared = await api.json("GET", "/api/declared")
            assert declared["sites"]["mid"] == {"upload": "2000000.0 B/s"}
            budgets = live.runtime.nodes["mid"].machine.state.budgets
            assert budgets is not None

            async def followed() -> bool:
                assert budgets is not None
                return budgets.rate("mid", "leaf") == 1e6 and budgets.rate("root", "leaf") == 1e6

            await until(followed)
            for path, body, status, said in (
                ("/api/sites/mid", {"uplaod": "2 MB/s"}, 422, "unknown key 'uplaod'"),
                ("/api/sites/mit", {}, 404, "no site 'mit' (did you mean 'mid'?)"),
                ("/api/streams/fleet", {"root": "mit"}, 422, "did you mean 'mid'?"),
                ("/api/links/mid/mid", {"delay": "1 s"}, 422, "paired with itself"),
                ("/api/objective", {"constraints": ["fanout <= 0"]}, 409, "fanout"),
                ("/api/objective", {"objective": "minimise fanuot"}, 422, "objective"),
            ):
                refused = await api.json("PATCH", path, status, json=body)
                assert said in refused["detail"], refused
            before = live.runtime.catalog.snapshot().deployment
        async with running(document, tmp_path, nats_url, namespace="reshaped") as live:
            after = live.runtime.catalog.snapshot().deployment
            assert (after.sites, after.links, after.objective) == (before.sites, before.links, before.objective)
            assert after.constraints == ("fanout <= 2",)

    asyncio.run(run())


def test_a_paused_subscription_takes_nothing_and_goes_on_where_it_is_resumed(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        live = api.live
        live.readers.start(["fast", "all"])
        await live.commit("fleet", rows(0, 30), 0)
        await live.settle()
        first = len(live.seqs("fast"))
        paused = await api.json("POST", "/api/subscriptions/fast/pause")
        assert paused["subscription"]["paused"] is True
        assert paused["subscription"]["where"] == "speed > 10"
        assert (await api.json("PATCH", "/api/subscriptions/fast", json={"weight": 2}))["subscription"][
            "paused"
        ] is True
        await live.commit("fleet", rows(30, 60), 1)
        await live.settle()
        assert len(live.seqs("fast")) == first
        resumed = await api.json("POST", "/api/subscriptions/fast/resume")
        assert "paused" not in resumed["subscription"]
        assert (resumed["id"], resumed["class"]) == (paused["id"], resumed["class"])
        await live.commit("fleet", rows(60, 90), 2)
        status = await live.settle()
        wanted = [n + 1 for n, speed in enumerate(rows(0, 90).column("speed").to_pylist()) if speed > 10]
        assert live.seqs("fast") == [seq for seq in wanted if seq <= 30 or seq > 60]
        assert live.seqs("all") == list(range(1, 91))
        assert status["subscriptions"]["fast"]["difference"] == 0
        await api.json("POST", "/api/bulk/pause", json={"names": ["fast", "all"]})
        await api.json("POST", "/api/bulk/resume", json={"names": ["fast", "all"]})
        await api.json("POST", "/api/subscriptions/fest/pause", 404)

    api_test(tmp_path, nats_url, small(fast={"site": "leaf", "where": "speed > 10"}, all={"site": "mid"}), work)


def test_a_plan_is_proposed_rejected_approved_and_remembered(tmp_path: Path, nats_url: str) -> None:
    document: dict[str, Any] = small(all={"site": "leaf"}, near={"site": "mid"})
    document["streams"]["fleet"]["rate"] = "100/s"

    async def work(api: Api) -> None:
        assert (await api.json("GET", "/api/plan/proposed"))["proposal"] is None
        made = (await api.json("POST", "/api/plan/propose", json={"algorithm": "brush"}))["proposal"]
        assert (made["state"], made["moves"]) == ("pending", 1)
        assert made["steps"] == ["fleet: serve root -> leaf", "fleet: switch root -> leaf", "fleet: stop mid -> leaf"]
        assert made["moved"] == [{"stream": "fleet", "site": "leaf", "from": "mid", "to": "root"}]
        await api.json("POST", "/api/plan/approve", 404, json={"proposal": "another"})
        assert (await api.json("POST", "/api/plan/reject", json={"proposal": made["id"]}))["state"] == "rejected"
        refused = await api.json("POST", "/api/plan/approve", 409, json={"proposal": made["id"]})
        assert "was rejected" in refused["detail"]
        again = (await api.json("POST", "/api/plan/propose", json={"algorithm": "brush"}))["proposal"]
        done = await api.json("POST", "/api/plan/approve", json={"proposal": again["id"]})
        assert done["steps"] == made["steps"]
        assert (await api.json("GET", "/api/plan"))["plan"]["fleet"]["parents"] == {"mid": "root", "leaf": "root"}
        history = (await api.json("GET", "/api/plan/history"))["plans"]
        assert [each["moves"] for each in history] == [1, 2]
        assert history[0]["what"] == f"plan {again['id']} approved"
        assert history[0]["moved"] == made["moved"]
        joined = [
            {"stream": "fleet", "site": one, "from": None, "to": to} for one, to in (("leaf", "mid"), ("mid", "root"))
        ]
        assert history[1]["moved"] == joined
        foreseen = [(each["quality"], each["quality_after"], each["tuned"]) for each in history]
        assert foreseen == [(again["quality"], again["quality_proposed"], None), (None, None, None)]
        assert (again["quality_proposed"] > 0, history[0]["by"]) == (True, again["by"])
        assert (await api.json("GET", "/api/plan/proposed"))["proposal"]["state"] == "approved"
        stale = (await api.json("POST", "/api/plan/propose", json={"algorithm": "brush"}))["proposal"]
        await api.json("PUT", "/api/sites/far", json={})
        await api.json("PUT", "/api/subscriptions/there", json={"stream": "fleet", "site": "far"})
        late = await api.json("POST", "/api/plan/approve", 409, json={"proposal": stale["id"]})
        assert "leaves out far for fleet" in late["detail"]
        await api.json("POST", "/api/plan/propose", 422, json={"algorithm": "brooom"})
        assert (await api.json("GET", "/api/plan/tuning"))["tuning"] is None
        central = await api.json("POST", "/api/plan/tuning", 409, json={"mode": "random"})
        assert "the central planner owns the plan" in central["detail"]

    api_test(tmp_path, nats_url, document, work)
