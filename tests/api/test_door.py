"""Limits of users at the door of the API: how often they ask, how many requests are dealt with, what they publish."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send
from tests.api.test_users import caller, served, token_of
from tests.service.test_grants import World, world

from headgate.api.access import Access, Visitor
from headgate.api.door import AT_A_TIME, ApiDoor
from headgate.api.publishing import LEAST_BYTES
from headgate.fabric.registry import User
from headgate.model import RequestLimits
from headgate.service.http_process import note_limits, read_limits


class _Named(Access):
    """Whoever gives a name has it."""

    def __init__(self) -> None:
        super().__init__("secret", 1)

    def identify(self, connection: HTTPConnection) -> Visitor:
        name = connection.headers["name"]
        return Visitor(name, None if name == "operator" else User(name, "key", 0, subscribes=("*",)))


class _Application:
    """Counts who comes in, and answers when it is told to."""

    def __init__(self) -> None:
        self.entered: Counter[str] = Counter()
        self.answers = asyncio.Semaphore(0)

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        name = HTTPConnection(scope).headers["name"]
        self.entered[name] += 1
        if name == "ada":
            await self.answers.acquire()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def _ask(door: ApiDoor, name: str, path: str = "/api/streams") -> asyncio.Task[int]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def asked() -> int:
        said: list[Any] = []

        async def send(message: Any) -> None:
            said.append(message)

        scope = {"type": "http", "method": "GET", "path": path, "headers": [(b"name", name.encode())]}
        await door(scope, receive, send)
        return int(said[0]["status"])

    return asyncio.create_task(asked())


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_flood_of_one_user_has_a_few_turns_and_another_is_served_at_once() -> None:
    async def run() -> None:
        application, limits = _Application(), RequestLimits(http_per_s=1000.0, waiting=100)
        door = ApiDoor(application, _Named(), limits)
        flood = [_ask(door, "ada") for _ in range(AT_A_TIME + 100)]
        await _settle()
        assert application.entered["ada"] == AT_A_TIME
        over = _ask(door, "ada")
        await _settle()
        assert application.entered["ada"] == AT_A_TIME
        for name in ("bob", "operator"):
            asked = _ask(door, name)
            await _settle()
            assert asked.done()  # not one of ada's was served meanwhile
            assert asked.result() == 200
        assert not any(each.done() for each in flood)
        assert await over == 429
        flood[50].cancel()  # a client that goes while it waits
        application.answers.release()
        await _settle()
        assert application.entered["ada"] == AT_A_TIME + 1
        for _ in range(200):
            application.answers.release()
        done = await asyncio.gather(*flood, return_exceptions=True)
        assert Counter(map(str, done))["200"] == AT_A_TIME + 99
        assert application.entered["ada"] == AT_A_TIME + 99
        again = [_ask(door, "ada") for _ in range(AT_A_TIME)]  # all turns were given back
        assert await asyncio.gather(*again) == [200] * AT_A_TIME

    asyncio.run(run())


def test_what_waits_for_rows_takes_no_turn() -> None:
    async def run() -> None:
        application = _Application()
        door = ApiDoor(application, _Named(), RequestLimits())
        path = "/api/subscriptions/hers/rows"
        readers = [_ask(door, "ada", path) for _ in range(3 * AT_A_TIME)]
        await _settle()
        assert application.entered["ada"] == 3 * AT_A_TIME
        for _ in readers:
            application.answers.release()
        await asyncio.gather(*readers)

    asyncio.run(run())


@pytest.mark.nats
def test_who_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    async def run() -> None:
        limits = {"http": "0.1/s"}
        async with world(tmp_path, limits=limits) as here, _served(here) as (address, token):
            for name in ("ada", "bob"):
                await (await here.user(name)).close()
            async with (
                caller(address, token) as operator,
                caller(address, token_of(here, "ada")) as ada,
                caller(address, token_of(here, "bob")) as bob,
            ):
                await ada("GET", "/api/streams", 200)  # 0.1/s for 4 s: one request ahead
                refused = await ada("GET", "/api/streams")
                assert (refused.status_code, refused.headers["content-type"]) == (429, "application/problem+json")
                assert 1 <= int(refused.headers["retry-after"]) <= 10
                assert "'ada' asks too often: 0.1 requests a second" in refused.json()["detail"]
                await bob("GET", "/api/streams", 200)
                for _ in range(5):
                    await operator("GET", "/api/streams", 200)

    asyncio.run(run())


@pytest.mark.nats
def test_who_publishes_more_than_it_may_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, limits={"publish": "100 B/s"}) as here, _served(here) as (address, _):
            for name in ("ada", "bob"):
                answer = await here.operator.control("user-add", name=name, publish=["staff"])
                (here.directory / f"{name}.creds").write_text(answer["credentials"], encoding="utf-8")
            path = "/api/streams/staff/rows"
            tiny = [{"id": number} for number in range(1000)]
            async with (
                caller(address, token_of(here, "ada")) as ada,
                caller(address, token_of(here, "bob")) as bob,
            ):
                assert (await ada("POST", path, 200, json=tiny))["stored"] == 1000
                before = await _published(here)
                refused = await ada("POST", path, json=tiny[:1])
                assert refused.status_code == 429
                # Every row counts as 64 bytes, two seconds of the rate are free.
                assert 1000 * LEAST_BYTES / 100 - 60 < int(refused.headers["retry-after"]) <= 1000 * LEAST_BYTES / 100
                assert "publishes more than it may, 100 bytes a second; nothing was stored" in refused.json()["detail"]
                assert await _published(here) == before
                await bob("POST", path, 200, json=tiny[:1])
                assert await _published(here) == before + 1

    asyncio.run(run())


def test_limits_are_kept_for_gateways(tmp_path: Path) -> None:
    (tmp_path / "http").mkdir()
    assert read_limits(tmp_path).bytes_per_s is not None  # nobody has said: the service counts
    for limits in (RequestLimits(), RequestLimits(bytes_per_s=5.0, http_per_s=3.0)):
        note_limits(tmp_path, limits)
        assert read_limits(tmp_path) == limits


async def _published(here: World) -> int:
    fabric = here.operator.fabric
    info = await fabric.info(fabric.logs.input("staff"))
    assert info is not None
    return int(info.state.messages)


def _served(here: World) -> Any:
    return served(here, here.runtime.control.limits)
