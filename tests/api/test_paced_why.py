"""`why` over HTTP searches in the process that serves all readers: one question of an identity at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.api.test_users import caller, token_of
from tests.live import until
from tests.service.test_grants import world

from headgate.api.pacing import WAITING
from headgate.api.server import serving
from headgate.client import Client
from headgate.service.access import make_token
from headgate.service.http_process import address_of, listen

pytestmark = pytest.mark.nats


def test_questions_of_one_wait_for_each_other_and_nobody_else_waits_for_them(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            state = here.directory / "state"
            token, listening = make_token(state), listen("127.0.0.1:0")
            async with (
                await Client.connect(state_dir=state) as client,
                serving(client, listening, token, state) as gateway,
            ):
                for name in ("ada", "bob"):
                    await (await here.user(name)).close()
                address, names = address_of(listening), ("ada", "bob")
                wishes = [{"name": f"{each}s", "stream": "staff", "site": "leaf"} for each in names]
                async with (
                    caller(address, token_of(here, "ada")) as ada,
                    caller(address, token_of(here, "bob")) as bob,
                ):
                    await ada("POST", "/api/subscriptions", 201, json=wishes[0])
                    await bob("POST", "/api/subscriptions", 201, json=wishes[1])
                    await here.commit(0, 10)
                    questions = gateway.of_user(gateway.users.registry().users["ada"]).questions
                    why = "/api/subscriptions/adas/why"
                    async with questions.turn():  # one of ada's is being answered
                        asked = [
                            asyncio.create_task(ada("GET", why, 200, params={"seq": 1 + number}))
                            for number in range(WAITING - 1)
                        ]
                        await until(lambda: _full(questions._waiting))
                        refused = await ada("GET", why, params={"where": "speed > 3"})
                        assert refused.status_code == 429
                        assert refused.headers["content-type"] == "application/problem+json"
                        assert int(refused.headers["retry-after"]) >= 1
                        assert refused.json()["type"] == "urn:headgate:too-many"
                        assert "questions of yours wait already" in refused.json()["detail"]
                        answer = await bob("GET", "/api/subscriptions/bobs/why", 200, params={"seq": 1})
                        assert answer["seq"] == 1
                        assert not any(each.done() for each in asked)
                    assert [each["seq"] for each in await asyncio.gather(*asked)] == [1, 2, 3]

    asyncio.run(run())


async def _full(waiting: int) -> bool:
    return waiting == WAITING
