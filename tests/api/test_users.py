"""Users over HTTP: the same rights as over NATS, by the same gate, for every operation that there is."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.service.test_grants import HIDDEN, World, world

from headgate.api.gateway import ServedPart
from headgate.api.server import serving
from headgate.client import Client
from headgate.fabric.tokens import API, LOGIN, make_user_token, read_user_token
from headgate.model import RequestLimits
from headgate.service.access import make_token
from headgate.service.http_process import address_of, listen

pytestmark = pytest.mark.nats


class Caller:
    """Somebody with a token."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def __call__(self, method: str, path: str, status: int | None = None, **more: Any) -> Any:
        answer = await self.http.request(method, path, **more)
        assert status is None or answer.status_code == status, (method, path, answer.status_code, answer.text[:300])
        return answer.json() if status is not None and answer.content else answer


@asynccontextmanager
async def served(here: World, limits: RequestLimits | None = None) -> AsyncIterator[tuple[str, str]]:
    state = here.directory / "state"
    token, listening = make_token(state), listen("127.0.0.1:0")
    part = ServedPart(limits=limits or RequestLimits())
    async with await Client.connect(state_dir=state) as client, serving(client, listening, token, state, part=part):
        yield address_of(listening), token


@asynccontextmanager
async def caller(address: str, token: str) -> AsyncIterator[Caller]:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=30, trust_env=False) as http:
        yield Caller(http)


def token_of(here: World, name: str, purpose: str = API, seconds: float = 60) -> str:
    text = (here.directory / f"{name}.creds").read_text(encoding="utf-8")
    return make_user_token(text, purpose, int(time.time() + seconds))


@pytest.mark.long
def test_users_have_over_http_what_is_theirs_and_nothing_else(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here, served(here) as (address, token):
            await (await here.user("ada", where="site = 'a' OR secret LIKE '%7'", columns=["id", "speed"])).close()
            await (await here.user("eve")).close()
            async with (
                caller(address, token) as operator,
                caller(address, token_of(here, "ada")) as ada,
                caller(address, token_of(here, "eve")) as eve,
            ):
                made = await ada("POST", "/api/subscriptions", 201, json=_wish("hers", where="speed > 3"))
                assert made["subscription"]["where"] == "speed > 3"
                await eve("POST", "/api/subscriptions", 201, json=_wish("eves-4711"))
                await here.commit(0, 100)
                rows = await ada("GET", "/api/subscriptions/hers/rows?wait_s=10", 200)
                found = [row for each in rows["deliveries"] for row in each["rows"]]
                expected = [
                    {"id": each["id"], "speed": each["speed"]}
                    for each in here.committed[0].to_pylist()
                    if each["speed"] > 3 and (each["site"] == "a" or each["secret"].endswith("7"))
                ]
                assert [{key: row[key] for key in ("id", "speed")} for row in found] == expected
                assert {key for row in found for key in row} == {"_seq", "id", "speed"}
                for path in await _paths(operator):
                    answer = await ada("GET", path.replace("{name}", "hers"))
                    assert "eves-4711" not in answer.text, path
                    assert not [word for word in HIDDEN if word in answer.text], (path, answer.text[:500])
                    other = await ada("GET", path.replace("{name}", "eves-4711"))
                    nobody = await ada("GET", path.replace("{name}", "eves-4712"))
                    assert other.status_code == nobody.status_code, path
                    if "{name}" in path:
                        assert other.status_code >= 400, path
                        assert other.text.replace("4711", "4712") == nobody.text
                await _refused(ada, here)
                why = "/api/subscriptions/hers/why"
                assert (await ada("GET", why, 200, params={"seq": found[0]["_seq"]}))["row"].keys() == {"id", "speed"}
                hidden = next(each["id"] for each in here.committed[0].to_pylist() if each["site"] != "a") + 1
                if hidden % 10 != 8:
                    assert (await ada("GET", why, 200, params={"seq": hidden}))["fate"] == "unfound"
                await ada("GET", why, 422, params={"where": "salary > 1"})
                line = (await ada("GET", "/api/ledger", 200))["subscriptions"]
                assert list(line) == ["hers"]
                await ada("DELETE", "/api/subscriptions/hers", 200)
                await here.operator.control("user-revoke", name="ada")
                await ada("GET", "/api/subscriptions", 401)

    asyncio.run(run())


async def _paths(operator: Caller) -> list[str]:
    """Every GET operation that ends by itself."""
    document = await operator("GET", "/openapi.json", 200)
    paths = [path for path, operations in document["paths"].items() if "get" in operations]
    assert len(paths) > 15
    return [path for path in paths if not path.endswith(("/events", "/rows"))]


async def _refused(ada: Caller, here: World) -> None:
    """Changes of what is another's: refused, in the same words as of what is nobody's."""
    before = here.runtime.catalog.head()
    for name in ("eves-4711", "nobodys-4711"):
        asks: list[tuple[str, str, Any]] = [
            ("PUT", f"/api/subscriptions/{name}", {"stream": "staff", "site": "root", "where": "salary > 1"}),
            ("PATCH", f"/api/subscriptions/{name}", {"site": "root"}),
            ("DELETE", f"/api/subscriptions/{name}", None),
            ("POST", f"/api/subscriptions/{name}/move", {"site": "root"}),
            ("POST", f"/api/subscriptions/{name}/detach", {}),
            ("POST", f"/api/subscriptions/{name}/refine", {"resolution": {"space": "1/2"}}),
            ("PATCH", f"/api/subscriptions/{name}/context", {"x": 1}),
            ("POST", f"/api/subscriptions/{name}/pause", None),
            ("POST", f"/api/subscriptions/{name}/resume", None),
            ("PATCH", "/api/declared", {"sites": {"other": {}}}),
            ("DELETE", "/api/streams/staff", None),
            ("POST", "/api/bulk/unsubscribe", {"names": [name]}),
            ("POST", "/api/bulk/move", {"names": [name], "site": "root"}),
            ("POST", "/api/streams/staff/rows", [{"id": 1}]),
            ("POST", "/api/plan/what-if", {"changes": ["site leaf upload=1Mbit/s"]}),
        ]
        for method, path, body in asks:
            answer = await ada(method, path, json=body)
            assert 400 <= answer.status_code < 500, (method, path, answer.status_code, answer.text)
            said = answer.text.replace("salary", "") if "salary" in str(body) else answer.text  # quoted back
            assert not [word for word in HIDDEN if word in said], path
    for path in ("/metrics", "/api/plan", "/api/sites", "/api/links", "/api/measurements", "/api/streams/staff/dead"):
        await ada("GET", path, 403)
    assert here.runtime.catalog.head() == before


def _wish(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "stream": "staff", "site": "leaf", **more}


@pytest.mark.long
def test_a_token_is_its_users_and_holds_for_a_while(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here, served(here) as (address, _):
            await (await here.user("ada")).close()
            await (await here.user("eve")).close()
            good = token_of(here, "ada")
            claims = read_user_token(good)
            assert claims is not None
            assert claims.user == "ada"
            prefix, body, signature = good.split(".")
            forged = json.dumps(["ada", here.runtime.people.registry.users["eve"].key, API, claims.expires_s])
            import base64

            other = base64.urlsafe_b64encode(forged.encode()).decode().rstrip("=")
            eves = token_of(here, "eve").split(".")
            for wrong in (
                token_of(here, "ada", seconds=-1),
                token_of(here, "ada", LOGIN),
                f"{prefix}.{body[:-2]}AA.{signature}",
                f"{prefix}.{other}.{signature}",
                f"{prefix}.{body}.{eves[2]}",
                f"{prefix}.{other}.{eves[2]}",
                f"{prefix}.{body}",
                "hgu...",
            ):
                async with caller(address, wrong) as nobody:
                    await nobody("GET", "/api/subscriptions", 401)
            async with httpx.AsyncClient(base_url=address, timeout=30, trust_env=False) as browser:
                code = token_of(here, "ada", LOGIN)
                assert (await browser.get(f"/login?code={code}")).status_code == 303
                assert (await browser.get("/api/subscriptions")).status_code == 200
                assert (await browser.get("/api/plan")).status_code == 403
                cookie = re.sub("~ada~", "~eve~", browser.cookies[next(iter(browser.cookies))])
                headers = {"Cookie": f"{next(iter(browser.cookies))}={cookie}"}
                async with httpx.AsyncClient(base_url=address, headers=headers, trust_env=False) as thief:
                    assert (await thief.get("/api/subscriptions")).status_code == 401
                    assert (await thief.get(f"/login?code={code}")).status_code == 403  # it works once
                await here.operator.control("user-revoke", name="ada")
                assert (await browser.get("/api/subscriptions")).status_code == 401

    asyncio.run(run())
