"""What a user is told before it makes a subscription: the share that would match, and nothing of what is others'."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.api.test_users import Caller, caller, served, token_of
from tests.service.test_grants import HIDDEN, World, world

from headgate.api.pacing import PacedQuestions
from headgate.api.problems import ApiError, problem_response

pytestmark = pytest.mark.nats

WISH: dict[str, Any] = {"name": "new", "stream": "staff", "site": "leaf", "where": "speed > 3"}


def test_a_user_is_told_the_share_that_would_match_by_rows_that_nobody_chose(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here, served(here) as (address, _):
            await (await here.user("ada", where="secret LIKE '%7' OR site = 'a'", columns=["id", "speed"])).close()
            async with caller(address, token_of(here, "ada")) as ada:
                nothing = (await ada("POST", "/api/preview", 200, json=WISH))["parts"][0]
                assert (nothing["looked_at"], nothing["share_at_least"]) == (0, None)
                await here.commit(0, 300)  # nobody subscribes, so the root log keeps none of them
                found = await ada("POST", "/api/preview", 200, json=WISH)
                part = found["parts"][0]
                share = sum(map(_hers, here.committed[0].to_pylist())) / 300
                assert part["looked_at"] == 16
                assert part["share_at_least"] < share < part["share_at_most"]
                assert (part["path"], part["hops"]) == ([], [])
                assert found["filter"]["simplified"] == found["subscription"]["where"] == "speed > 3"
                assert not [word for word in HIDDEN if word in str(found)]
                await _refused(ada, here)
                made = await ada("POST", "/api/subscriptions", 201, json=WISH)
                sample = made["matched_sample"]
                assert (sample["at_least"], sample["at_most"]) == (part["share_at_least"], part["share_at_most"])
                assert sample["at_least"] < made["matched_share"] < sample["at_most"]
                assert not [word for word in HIDDEN if word in str(made)]

    asyncio.run(run())


def _hers(row: dict[str, Any]) -> bool:
    return bool(row["speed"] > 3 and (row["site"] == "a" or row["secret"].endswith("7")))


async def _refused(ada: Caller, here: World) -> None:
    """What could not be made is refused as if it were; nothing changes."""
    before = here.runtime.catalog.head()
    said = {}
    for column in ("salary", "nosuch"):
        answer = await ada("POST", "/api/preview", 422, json={**WISH, "where": f"{column} > 1"})
        said[column] = str(answer).replace(column, "COLUMN")
    assert said["salary"] == said["nosuch"]
    for wrong in ({"stream": "other"}, {"weight": 9}, {"owner": "eve"}, {"select": ["id", "secret"]}):
        await ada("POST", "/api/preview", 422, json={**WISH, **wrong})
    assert here.runtime.catalog.head() == before


def test_questions_of_a_user_are_answered_one_by_one_and_a_few_wait() -> None:
    async def run() -> None:
        paced = PacedQuestions(rest=0.0)
        waiting = [asyncio.create_task(paced.ask(lambda number=number: number)) for number in range(4)]  # type: ignore[misc]
        await asyncio.sleep(0)
        with pytest.raises(ApiError, match="4 questions of yours wait"):
            await paced.ask(lambda: 5)
        assert await asyncio.gather(*waiting) == [0, 1, 2, 3]
        assert await paced.ask(lambda: 6) == 6

    asyncio.run(run())


def test_a_question_that_took_long_costs_a_pause_and_the_next_one_is_told_when_to_come_back() -> None:
    """Four times what it took: within the pause one waits, far before its end it is refused."""

    async def run() -> None:
        now_s = 100.0
        paced = PacedQuestions(clock=lambda: now_s)
        async with paced.turn():
            now_s += 20.0
        with pytest.raises(ApiError, match=r"took long.*try again in 80 s") as refused:
            await paced.ask(lambda: 1)
        answer = problem_response(refused.value)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "80")
        now_s += 80.0
        assert await paced.ask(lambda: 2) == 2

    asyncio.run(run())
