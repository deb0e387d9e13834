"""Advice on policies of a running deployment: what the adviser says of the rows that a subscription got lately."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.api.helpers import Api, api_test, command
from tests.api.test_users import caller, served, token_of
from tests.client.helpers import rows
from tests.live import small
from tests.service.test_grants import HIDDEN, world

from headgate.cli.policy import policy as program
from headgate.reduction import parse_policy
from headgate.reduction.advise import advise

pytestmark = pytest.mark.nats
POLICY = {"levels": [{"conflate": "vehicle"}, {"every": 2}]}


def test_a_policy_is_judged_by_the_rows_of_its_subscription(
    tmp_path: Path, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(api: Api) -> None:
        await api.json("POST", "/api/subscriptions/fast/advice", 503, json={})  # nothing came yet
        api.gateway.recent._known.clear()
        batch = rows(0, 400)
        for number in range(4):
            await api.live.commit("fleet", batch.slice(number * 100, 100), number)
        schema = (await api.gateway.snapshot()).deployment.streams["fleet"].schema
        mine = batch.filter(pc.greater(batch.column("speed"), pa.scalar(20.0)))
        found = await api.json("POST", "/api/subscriptions/fast/advice", json={"target": 0.3})
        expected = advise(parse_policy(POLICY, schema), mine, 0.3)
        assert (found["rows"], found["reaches"], found["order"]) == (mine.num_rows, expected.reaches, [*expected.order])
        assert [each["together"] for each in found["levels"]] == [each.together for each in expected.levels]
        other = await api.json("POST", "/api/subscriptions/fast/advice", json={"policy": {"levels": [{"every": 4}]}})
        assert [each["label"] for each in other["levels"]] == ["every"]
        assert other["reaches"] == 1
        made = await api.json("POST", "/api/subscriptions/all/advice", json={"key": "vehicle"})
        assert "conflate" in made["policy"]
        for wrong in ({"target": 0}, {"target": "often"}, {"policy": {"levels": [{"evry": 2}]}}, {"window": 0}):
            await api.json("POST", "/api/subscriptions/fast/advice", 422, json=wrong)
        await api.json("POST", "/api/subscriptions/fats/advice", 404, json={})
        mine_of_all = mine.num_rows / 400
        by_rate = await api.json("POST", "/api/subscriptions/fast/advice", json={"target": f"{10 * mine_of_all}/s"})
        assert by_rate["target"] == pytest.approx(0.25)  # of 40 rows a second, as is declared
        for more, answer in ((["--target", "0.3"], found), (["--target", f"{10 * mine_of_all}/s"], by_rate)):
            said = await command(api, monkeypatch, program, "advise", "subscription:fast", *more)
            assert said.exit_code == 0, said.output
            assert json.loads(said.output.splitlines()[-1]) == answer
        no_rows = await command(api, monkeypatch, program, "advise", "subscription:none")
        assert "no row of 'none' came lately" in str(no_rows.exception)

    nothing = {"site": "leaf", "where": "speed < 0"}
    fast = {"site": "leaf", "where": "speed > 20", "policy": POLICY}
    document = small(all={"site": "leaf"}, fast=fast, none=nothing)
    document["streams"]["fleet"]["rate"] = "40/s"
    api_test(tmp_path, nats_url, document, work)


def test_a_user_is_advised_by_the_rows_and_columns_that_it_may_have(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here, served(here) as (address, _):
            await (await here.user("ada", where="site = 'a'", columns=["id", "speed"])).close()
            await (await here.user("eve")).close()
            wish: dict[str, Any] = {"stream": "staff", "site": "leaf"}
            async with caller(address, token_of(here, "ada")) as ada, caller(address, token_of(here, "eve")) as eve:
                await ada("POST", "/api/subscriptions", 201, json={"name": "hers", **wish})
                await eve("POST", "/api/subscriptions", 201, json={"name": "eves", **wish})
                await here.commit(0, 200)
                mine = pc.sum(pc.equal(here.committed[0].column("site"), "a")).as_py()
                found = await ada("POST", "/api/subscriptions/hers/advice", 200, json={})
                assert found["rows"] == mine
                assert not [word for word in HIDDEN if word in str(found)]
                hidden = {"policy": {"levels": [{"delta": {"attribute": "salary", "change": 1}}]}}
                said = await ada("POST", "/api/subscriptions/hers/advice", 422, json=hidden)
                assert "salary" in said["detail"]  # as it was asked, and as for a column that there is not
                nosuch = {"policy": {"levels": [{"delta": {"attribute": "nosuch", "change": 1}}]}}
                other = await ada("POST", "/api/subscriptions/hers/advice", 422, json=nosuch)
                assert other["detail"].replace("nosuch", "salary") == said["detail"]
                await ada("POST", "/api/subscriptions/eves/advice", 404, json={})

    asyncio.run(run())
