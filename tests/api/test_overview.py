"""What the dashboard asks for: the overview, attainment by pages, and previews, judged against brute force."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.api.helpers import Api, api_test
from tests.client.helpers import rows
from tests.live import small, until

from headgate.api import gateway
from headgate.protocol.reports import ArrivalReport, LinksReport, LinkUp, PeerFigures, RelayReport
from headgate.service import status
from headgate.service.link_status import links_now

pytestmark = pytest.mark.nats


def test_an_overview_has_links_with_rates_and_attainment_pages(tmp_path: Path, nats_url: str) -> None:
    many = {f"n{number:02}": {"site": "mid", "where": f"vehicle = 'v{number:03}'"} for number in range(20)}
    document = small(all={"site": "leaf", "quality": {"at_least": 0.5}, "paths": 2}, **many)
    document["links"] = {"default_delay": "5 ms", "pairs": [{"between": ["root", "mid"], "capacity": "1 Mbit/s"}]}

    async def work(api: Api) -> None:
        await api.json("GET", "/api/overview")
        await api.live.commit("fleet", rows(0, 300), 0)
        api.live.readers.start(["all"])

        async def carried() -> Any:
            found = await api.json("GET", "/api/overview")
            link = next((each for each in found["links"] if each["name"] == "root->mid"), None)
            second = [each["name"] for each in found["links"] if each["second"]]
            return found if link and link["bytes_per_s"] and second else None

        found = await until(carried)
        (second,) = [each for each in found["links"] if each["second"]]
        assert (second["name"], second["second"], second["planned"]) == ("root->leaf", ["fleet"], False)
        link = next(each for each in found["links"] if each["name"] == "root->mid")
        assert (link["limit_bytes_per_s"], link["limited_by"], link["streams"]) == (125_000, "capacity", ["fleet"])
        assert link["load"] == pytest.approx(link["bytes_per_s"] / 125_000)
        assert (link["declared_bytes_per_s"], link["budget_bytes_per_s"]) == (125_000, 125_000)
        assert (link["round_trip_s"], link["resent"]) == (None, None)  # both ends are one server
        assert (found["subscriptions"], found["contracts"], found["contracts_below"]) == (21, 1, 0)
        assert found["streams"]["fleet"]["parents"] == {"mid": "root", "leaf": "mid"}
        assert found["sites"]["mid"]["subscriptions"] == 20
        page = await api.json("GET", "/api/attainment", params={"search": "N0 vehicle", "limit": 4, "sort": "name"})
        assert ([each["name"] for each in page["rows"]], page["total"]) == (["n00", "n01", "n02", "n03"], 10)
        more = {"search": "n0", "limit": 4, "sort": "name", "descending": True, "offset": 8}
        page = await api.json("GET", "/api/attainment", params=more)
        assert [each["name"] for each in page["rows"]] == ["n01", "n00"]
        assert sum(each["count"] for each in page["heat"]) == page["total"] == len(page["cells"]) == 10
        assert (await api.json("GET", "/api/attainment", params={"site": "leaf"}))["rows"][0]["name"] == "all"
        assert (await api.json("GET", "/api/attainment", params={"state": "unwell"}))["total"] == 0
        await api.json("GET", "/api/attainment", 422, params={"sort": "luck"})
        await api.json("GET", "/api/attainment", 422, params={"limit": 1001})

    api_test(tmp_path, nats_url, document, work)


def test_links_are_shown_as_declared_measured_and_used(
    tmp_path: Path, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What relays and kernels of other hosts would say of a link is in the overview and in the metrics alike."""
    document = small(all={"site": "leaf"})
    document["links"] = {"pairs": [{"between": ["root", "mid"], "capacity": "1 Mbit/s"}]}
    carried = RelayReport(site="root", time_ms=1, link_bytes={"fleet:mid": 9}, link_messages={"fleet:mid": 1})
    seen = ArrivalReport(bytes=9, used_bytes_per_s=24_000.0, rate_bytes_per_s=25_000.0, queue_s=0.5, busy=True)
    relays = {"root": carried, "mid": RelayReport(site="mid", time_ms=1, taken={"root": seen})}
    kernel = PeerFigures(round_trip_s=0.075, least_round_trip_s=0.07, resent=0.125)
    watched = {
        "mid": LinksReport(site="mid", time_ms=1, above={"": LinkUp(address="m:1")}),
        "root": LinksReport(site="root", time_ms=1, below={"m:1": kernel}),
    }

    async def work(api: Api) -> None:
        monkeypatch.setattr(status, "links_now", lambda deployment, *_: links_now(deployment, relays, watched))

        async def shown() -> Any:
            links = (await api.json("GET", "/api/overview"))["links"]
            return next((each for each in links if each["name"] == "root->mid" and each["used_bytes_per_s"]), None)

        link = await until(shown)
        assert link["declared_bytes_per_s"] == link["budget_bytes_per_s"] == link["limit_bytes_per_s"] == 125_000
        assert (link["measured_bytes_per_s"], link["measured_busy"], link["used_bytes_per_s"]) == (25_000, True, 24_000)
        assert link["off"] == "declared 5.0 times too high"
        assert (link["round_trip_s"], link["resent"]) == (0.075, 0.125)
        text = (await api.http.get("/metrics")).text
        for name, value in (
            ("declared_bytes_per_second", "125000.0"),
            ("measured_bytes_per_second", "25000.0"),
            ("used_bytes_per_second", "24000.0"),
            ("budget_bytes_per_second", "125000.0"),
            ("round_trip_seconds", "0.075"),
            ("resent_ratio", "0.125"),
            ("misdeclared", "1.0"),
        ):
            assert f'headgate_link_{name}{{from="root",to="mid"}} {value}' in text

    api_test(tmp_path, nats_url, document, work)


def test_a_preview_is_what_brute_force_says(tmp_path: Path, nats_url: str) -> None:
    document = small(all={"site": "mid"}, fast={"site": "leaf", "where": "speed > 20"})
    document["streams"]["fleet"]["rate"] = "50/s"

    async def work(api: Api) -> None:
        new = {"name": "new", "stream": "fleet", "site": "leaf", "where": "speed > 10 and speed > 5"}
        nothing = (await api.json("POST", "/api/preview", json=new))["parts"][0]
        assert (nothing["evaluated"], nothing["share_at_least"]) == (0, None)
        api.gateway.recent._known.clear()
        batch = rows(0, 400)
        for number in range(4):
            await api.live.commit("fleet", batch.slice(number * 100, 100), number)
        speeds = batch.column("speed").to_pylist()
        wanted, carried = sum(each > 10 for each in speeds), sum(each > 20 for each in speeds)
        found = await api.json("POST", "/api/preview", json=new)
        assert found["filter"]["simplified"] == "speed > 10"
        part = found["parts"][0]
        assert (part["matched"], part["looked_at"], part["evaluated"]) == (wanted, 400, 400)
        assert part["share_at_least"] == part["share_at_most"] == wanted / 400
        assert part["rows_per_s"] > 0
        assert part["path"] == ["root", "mid", "leaf"]
        # All rows go to mid already, and to leaf those of `fast`.
        assert [each["extra_share"] for each in part["hops"]] == [0, (wanted - carried) / 400]
        assert "new" not in (await api.json("GET", "/api/status"))["subscriptions"]
        bad = await api.json("POST", "/api/preview", 422, json={**new, "where": "sped > 1"})
        assert "did you mean 'speed'?" in bad["detail"]

    api_test(tmp_path, nats_url, document, work)


def test_a_subscription_that_is_made_is_told_its_share_at_once(tmp_path: Path, nats_url: str) -> None:
    """By the rows that were drawn before matching, whether anybody wanted them or not: here all rows there are."""
    batch = rows(0, 16)
    speeds = batch.column("speed").to_pylist()

    def share(least: float) -> float:
        return sum(each > least for each in speeds) / 16

    async def work(api: Api) -> None:
        new = {"name": "new", "stream": "fleet", "site": "leaf", "where": "speed > 10"}
        nothing = await api.json("POST", "/api/subscriptions", 201, json={**new, "name": "early"})
        assert (nothing["matched_share"], nothing["matched_sample"]) == (None, None)
        await api.live.commit("fleet", batch, 0)
        api.gateway.shares._drawn.clear()  # a sample is read every few seconds
        made = await api.json("POST", "/api/subscriptions", 201, json=new)
        assert 0 < made["matched_share"] == share(10) < 1
        sample = made["matched_sample"]
        assert (sample["rows"], sample["at_least"] < share(10) < sample["at_most"]) == (16, True)
        changed = {key: value for key, value in new.items() if key != "name"} | {"where": "speed > 20"}
        other = await api.json("PUT", "/api/subscriptions/new", json=changed)
        assert other["matched_share"] == share(20) != share(10)
        assert (await api.json("GET", "/api/subscriptions/early"))["matched_share"] == share(10)
        for least in (0, 5, 15, 30):  # one filter after another, as somebody who tries them does
            found = await api.json("PATCH", "/api/subscriptions/new", json={"where": f"speed > {least}"})
            assert found["matched_share"] == share(least)

    api_test(tmp_path, nats_url, small(fast={"site": "leaf", "where": "speed > 25"}), work)


def test_what_nobody_wanted_makes_the_share_a_range(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        batch = rows(0, 200)
        await api.live.commit("fleet", batch, 0)
        speeds = batch.column("speed").to_pylist()
        kept, wanted = sum(each > 20 for each in speeds), sum(each > 30 for each in speeds)
        new = {"name": "new", "stream": "fleet", "site": "root", "where": "speed > 30"}
        part = (await api.json("POST", "/api/preview", json=new))["parts"][0]
        assert (part["looked_at"], part["evaluated"], part["matched"]) == (kept, 200, wanted)
        assert part["share_at_least"] == wanted / 200
        assert part["share_at_most"] == (wanted + 200 - kept) / 200
        assert part["hops"] == part["path"] == []

    api_test(tmp_path, nats_url, small(fast={"site": "leaf", "where": "speed > 20"}), work)


def test_a_preview_says_who_would_get_less(tmp_path: Path, nats_url: str) -> None:
    """A link that is full by what is declared: one more subscription takes from those behind it only."""
    document = small(near={"site": "mid", "where": "speed > 20"}, far={"site": "leaf", "where": "speed < 10"})
    document["streams"]["fleet"]["rate"] = "1000/s"
    document["sites"]["mid"] = {"upload": "200 kbit/s"}

    async def work(api: Api) -> None:
        await api.live.commit("fleet", rows(0, 400), 0)
        new = {"name": "new", "stream": "fleet", "site": "leaf", "where": "speed between 10 and 30"}
        costs = (await api.json("POST", "/api/preview", json=new))["parts"][0]["costs"]
        assert [each["subscription"] for each in costs["losers"]] == ["far"]
        assert costs["losers"][0]["drop_after"] > costs["losers"][0]["drop_before"]
        assert (costs["losers_count"], costs["granted"]["site"]) == (1, "leaf")
        assert costs["granted"]["binds"].startswith("upload of mid")
        none = (await api.json("POST", "/api/preview", json={**new, "site": "root"}))["parts"][0]["costs"]
        assert (none["losers"], none["losers_count"]) == ([], 0)

    api_test(tmp_path, nats_url, document, work)


def test_a_report_that_takes_long_is_read_behind_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one waits; later ones get the one before while it is read again, and hear of it when that fails."""
    now_s, read, failing = 100.0, 0, False

    async def report() -> int:
        nonlocal now_s, read
        if failing:
            raise TimeoutError
        read, now_s = read + 1, now_s + 5.0
        return read

    async def run() -> None:
        nonlocal now_s, failing
        monkeypatch.setattr(gateway.time, "monotonic", lambda: now_s)
        recent = gateway.Recent(report, fresh_s=1.0)
        assert await recent.get() == 1
        now_s += 10.0
        assert await recent.get() == 1  # it takes five seconds to read, so ten are not old
        now_s += 10.0
        assert await recent.get() == 1
        await asyncio.sleep(0)
        assert await recent.get() == 2
        now_s, failing = now_s + 20.0, True
        assert await recent.get() == 2
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await recent.get()
        await recent.close()

    asyncio.run(run())


def test_what_the_plan_grants_is_not_waited_for_for_ever(
    tmp_path: Path, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscription that is made while the plan is evaluated for seconds is answered without what it is granted."""

    async def work(api: Api) -> None:
        known = await api.json("GET", "/api/subscriptions/here")
        assert known["granted"]["site"] == "leaf"
        slow = threading.Event()
        evaluate = gateway.granted
        monkeypatch.setattr(gateway, "_GRANTED_S", 0.05)
        monkeypatch.setattr(gateway, "granted", lambda *given: slow.wait(20) and evaluate(*given))
        made = await api.json("POST", "/api/subscriptions", 201, json={"name": "x", "stream": "fleet", "site": "leaf"})
        assert (made["name"], made["granted"]) == ("x", None)
        slow.set()
        monkeypatch.setattr(gateway, "_GRANTED_S", 20.0)
        assert (await api.json("GET", "/api/subscriptions/x"))["granted"]["site"] == "leaf"

    api_test(tmp_path, nats_url, small(here={"site": "leaf"}), work)
