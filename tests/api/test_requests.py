"""Requests to the API of a running deployment: what they change, what they answer, and how they are refused."""

from __future__ import annotations

import asyncio
import json
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.api.helpers import Api, api_test, command
from tests.client.helpers import rows
from tests.live import small, until

from headgate.api.access import MOST_BYTES
from headgate.api.problems import STATUS
from headgate.catalog import parse_subscription
from headgate.cli.groups import Program
from headgate.cli.plan import register
from headgate.errors import HeadgateError
from headgate.service.describing import subscription_document

pytestmark = pytest.mark.nats
FAST = {"stream": "fleet", "site": "leaf", "where": "speed > 20 and speed > 10"}


def test_a_subscription_from_its_making_to_its_end(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        head = (await api.json("GET", "/api/status"))["revision"]
        made = await api.json("POST", "/api/subscriptions", 201, json={"name": "fast", **FAST})
        assert made["filter"]["simplified"] == "speed > 20"
        assert (made["sharing"], made["revision"]) == (1, head + 1)
        assert (made["granted"]["quality"], made["granted"]["met"]) == (1.0, True)
        same = await api.json("PUT", "/api/subscriptions/fast2", json={**FAST, "site": "mid"})
        assert (same["class"], same["sharing"]) == (made["class"], 2)
        refused = await api.json("POST", "/api/subscriptions", 409, json={"name": "fast", **FAST})
        assert refused["detail"].startswith("there is already a subscription 'fast' (change that one")
        changed = await api.json("PATCH", "/api/subscriptions/fast", json={"where": "speed > 30", "expires": "10 min"})
        assert changed["filter"]["where"] == "speed > 30"
        assert changed["subscription"]["expires"] == "600.0 s"
        moved = await api.json("POST", "/api/subscriptions/fast/move", json={"site": "mid"})
        assert moved["subscription"]["site"] == "mid"
        assert (await api.json("POST", "/api/subscriptions/fast/detach", json={"expires": "1 h"}))["position"]
        names = [each["name"] for each in (await api.json("GET", "/api/subscriptions?site=mid"))["subscriptions"]]
        assert names == ["fast", "fast2"]
        assert (await api.json("DELETE", "/api/subscriptions/fast"))["revision"] > moved["revision"]
        gone = await api.json("GET", "/api/subscriptions/fast", 404)
        assert gone["detail"] == "no subscription 'fast' (did you mean 'fast2'?)"

    document = small(all={"site": "leaf"})
    document["streams"]["fleet"]["rate"] = "100/s"
    api_test(tmp_path, nats_url, document, work)


def test_many_at_once_are_one_revision_or_none_and_listed_by_pages(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        head = (await api.json("GET", "/api/status"))["revision"]
        wanted = {f"s{number:03}": {**FAST, "where": f"speed > {number}"} for number in range(120)}
        bad = {**wanted, "s999": {**FAST, "where": "sped > 1"}}
        refused = await api.json("POST", "/api/bulk/subscribe", 422, json={"subscriptions": bad})
        assert "did you mean 'speed'?" in refused["detail"]
        made = await api.json("POST", "/api/bulk/subscribe", json={"subscriptions": wanted})
        assert (made["revision"], len(made["ids"])) == (head + 1, 120)
        seen: list[str] = []
        after = None
        while True:
            params = {"limit": 50, "search": "S", **({"after": after} if after else {})}
            found = await api.json("GET", "/api/subscriptions", params=params)
            seen += [each["name"] for each in found["subscriptions"]]
            after = found["next"]
            if after is None:
                break
        assert seen == sorted(wanted)
        assert found["total"] == 120
        moved = await api.json("POST", "/api/bulk/move", json={"names": seen[:60], "site": "mid"})
        assert moved["revision"] == head + 2
        assert (await api.json("GET", "/api/subscriptions?site=mid&limit=1"))["total"] == 60
        await api.json("POST", "/api/bulk/unsubscribe", 404, json={"names": ["s000", "nobody"]})
        ended = await api.json("POST", "/api/bulk/unsubscribe", json={"names": seen})
        assert ended["revision"] == head + 3
        page = await api.http.get("/api/subscriptions")
        again = await api.http.get("/api/subscriptions", headers={"If-None-Match": page.headers["etag"]})
        assert (page.json()["total"], again.status_code, again.content) == (1, 304, b"")
        await api.json("PUT", "/api/subscriptions/new", json=FAST)
        other = await api.http.get("/api/subscriptions", headers={"If-None-Match": page.headers["etag"]})
        assert other.status_code == 200

    api_test(tmp_path, nats_url, small(all={"site": "leaf"}), work)


def test_reports_agree_with_the_command_line(tmp_path: Path, nats_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    document = small(all={"site": "leaf"}, near={"site": "mid", "where": "speed > $v", "context": {"v": 10}})

    async def work(api: Api) -> None:
        await api.live.commit("fleet", rows(0, 90), 0)
        api.live.readers.start(["all", "near"])
        await api.live.settle()
        status = await api.live.runtime.status()

        async def caught_up() -> Any:
            found = await api.json("GET", "/api/ledger")  # as it was a moment ago
            return found if found["subscriptions"]["all"]["delivered"] == 90 else None

        ledger = await until(caught_up)
        assert (ledger["wrong"], ledger["findings"]) == (False, status["findings"])
        assert ledger["streams"]["fleet"]["rows_in"] == 90
        stream = await api.json("GET", "/api/streams/fleet")
        assert (stream["now"]["head"], stream["schema"][0]["name"]) == (90, "vehicle")
        assert set((await api.json("GET", "/api/sites"))["sites"]) == {"root", "mid", "leaf"}
        assert (await api.json("GET", "/api/sites/mid"))["subscriptions"] == 1
        links = await api.json("GET", "/api/links")
        assert [each["between"] for each in links["links"]] == [["leaf", "mid"], ["mid", "root"]]
        plan = await api.json("GET", "/api/plan")
        assert plan["plan"]["fleet"]["parents"] == {"mid": "root", "leaf": "mid"}
        assert plan["subscriptions"].keys() == {"all", "near"}
        question = {"changes": ["site root upload=1kbit/s"], "keep": True}
        answer = await api.json("POST", "/api/plan/what-if", json=question)
        assert answer["after"]["metrics"].keys() == answer["before"]["metrics"].keys()
        assert answer["steps"] == []
        change, program = ("--live", "--what-if", "site root upload=1kbit/s", "--keep"), Program()
        register(program)
        said = json.loads((await command(api, monkeypatch, program, *change, "--json")).output)
        assert said["after"]["plan"] == answer["after"]["plan"]
        assert (said["steps"], said["before"].keys()) == (answer["steps"], answer["before"].keys())
        text = (await command(api, monkeypatch, program, *change)).output
        assert "the geometric mean goes from" in text
        assert "nothing was changed" in text
        wrong = await api.json("POST", "/api/plan/what-if", 422, json={"changes": ["site rot upload=1kbit/s"]})
        assert wrong["detail"] == "no site 'rot' (did you mean 'root'?)"
        assert (await api.json("GET", "/api/contexts"))["contexts"] == {"near": {"v": 10}}
        assert (await api.json("PATCH", "/api/subscriptions/near/context", json={"v": 12}))["place"] > 0
        await api.json("PATCH", "/api/contexts", 404, json={"near": {"v": 1}, "neer": {"v": 1}})
        assert (await api.json("GET", "/api/streams/fleet/dead"))["total"] == 0
        await api.json("GET", "/api/streams/flet/dead", 404)

        async def reported() -> bool:
            return bool((await api.json("GET", "/api/measurements"))["links"].keys() == {"root->mid", "mid->leaf"})

        await until(reported)
        assert (await api.json("GET", "/readyz")) == {"state": "running"}
        why = await api.json("GET", "/api/subscriptions/all/why", params={"seq": 7})
        assert (why["fate"], why["row"]["vehicle"]) == ("delivered", rows(6, 7).column("vehicle")[0].as_py())
        assert (await api.json("GET", "/api/subscriptions/all/why", params={"seq": 91}))["fate"] == "unread"
        for question in ({"seq": "91"}, {"where": "speed > 1e6"}, {"key": "nobody"}):  # the program says the same
            told = await api.json("GET", "/api/subscriptions/all/why", params=question)
            words = ["why", "all", *(each for name, value in question.items() for each in (f"--{name}", value))]
            place = ["--nats", nats_url, "--namespace", api.live.address.logs.namespace]
            asked = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "headgate.cli", *words, "--json", *place, stdout=asyncio.subprocess.PIPE
            )
            assert json.loads((await asked.communicate())[0]) == told
        await api.json("GET", "/api/subscriptions/all/why", 422)
        await api.json("GET", "/api/subscriptions/al/why", 404, params={"seq": 7})

    api_test(tmp_path, nats_url, document, work)


def test_a_repeated_request_is_done_once(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        key = {"Idempotency-Key": "ticket-1"}
        first = await api.json("DELETE", "/api/subscriptions/all", headers=key)
        assert await api.json("DELETE", "/api/subscriptions/all", headers=key) == first
        await api.json("DELETE", "/api/subscriptions/all", 404)

    api_test(tmp_path, nats_url, small(all={"site": "leaf"}), work)


def test_what_is_wrong_is_a_problem_document(tmp_path: Path, nats_url: str) -> None:
    async def work(api: Api) -> None:
        for path, body, status, said in (
            ("/api/subscriptions", {"name": "x"}, 422, "stream"),
            ("/api/subscriptions", {}, 422, "body.name: Field required"),
            ("/api/subscriptions", {"name": "x", **FAST, "where": "spead > 1"}, 422, "did you mean 'speed'?"),
            ("/api/subscriptions", {"name": "no name", **FAST}, 422, "no name"),
            ("/api/bulk/unsubscribe", {"names": ["all", "all"]}, 422, "give each name once"),
            ("/api/nothing", {}, 404, "Not Found"),
            ("/api/status", {}, 405, "Method Not Allowed"),
        ):
            found = await api.json("POST", path, status, json=body)
            assert found["status"] == status
            assert said in found["detail"], found
        huge = b" " * (MOST_BYTES + 1)

        async def in_parts() -> AsyncIterator[bytes]:
            for start in range(0, len(huge), 1 << 20):
                yield huge[start : start + (1 << 20)]

        for content in (huge, in_parts()):
            found = await api.json("POST", "/api/bulk/subscribe", 413, content=content)
            assert found["detail"] == "a request may have 16,777,216 bytes (send it in parts)"
        numbers = Random(1)  # what repeats itself would be packed, and fit
        texts = [f"vehicle = '{b64encode(numbers.randbytes(9_000)).decode()}'" for _ in range(999)]
        long = {"subscriptions": {f"s{n}": {**FAST, "where": text} for n, text in enumerate(texts)}}
        assert "NATS takes" in (await api.json("POST", "/api/bulk/subscribe", 413, json=long))["detail"]

    api_test(tmp_path, nats_url, small(all={"site": "leaf"}), work)


def test_every_kind_of_error_has_a_status() -> None:
    def kinds(error: type[HeadgateError]) -> set[str]:
        return {error.usual_kind}.union(*(kinds(each) for each in error.__subclasses__()))

    assert kinds(HeadgateError) <= STATUS.keys()


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"select": ["vehicle", "at"], "expires": "90 s", "weight": 2.5, "priority": 3, "start": "earliest"},
        {"quality": {"delay": "500 ms", "drop": 0.1, "at_least": 0.8}, "format": "json"},
        {
            "quality": {
                "table": {"kind": "linear", "drop": [0, 0.5], "delay": ["1 s", "9 s"], "value": [[1, 1], [0, 0]]}
            }
        },
        {"where": "speed > $v", "context": {"v": 3}, "policy": {"levels": [{"conflate": "vehicle"}]}},
        {"require": {"false_negatives": 0.1}},
    ],
)
def test_a_document_is_read_back_as_the_same_subscription(more: dict[str, Any]) -> None:
    import yaml

    from headgate.catalog import parse_deployment
    from headgate.pipeline.sources import GENERATOR_SCHEMAS

    deployment = parse_deployment(yaml.safe_dump(small(all={"site": "leaf"})), "test.yaml", GENERATOR_SCHEMAS)
    (found,) = parse_subscription("x", {"stream": "fleet", "site": "leaf", **more}, deployment)
    assert parse_subscription("x", subscription_document(found), deployment) == [found]


def test_nothing_is_seen_while_the_deployment_is_away(tmp_path: Path, nats_url: str) -> None:
    """Health is of the process; readiness and everything else need the deployment."""

    async def work(api: Api) -> None:
        await api.live.runtime.control.close()
        refused = await api.json("DELETE", "/api/subscriptions/all", 503)
        assert refused["detail"]
        assert (await api.json("GET", "/healthz")) == {"state": "ok"}

    api_test(tmp_path, nats_url, small(all={"site": "leaf"}), work)
