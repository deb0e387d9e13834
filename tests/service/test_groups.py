"""Group subscriptions of a running deployment: rows are dealt to members, of operators and of users."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from tests.live import until

from headgate.catalog import DeploymentError, parse_deployment
from headgate.client import Client, ClientError, GroupMember
from headgate.model import GroupRule, Schema
from headgate.pipeline.worker import Address
from headgate.service.describing import subscription_document
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.codec import decode_subscription, encode_subscription
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

JOBS = {"root": "root", "source": {"format": "nats"}, "schema": {"id": "bigint", "zone": "string"}, "key": ["id"]}
DOCUMENT: dict[str, Any] = {
    "sites": {"root": {}, "leaf": {}},
    "streams": {"jobs": JOBS},
    "plan": {"jobs": {"leaf": "root"}},
    "subscriptions": {
        "work": {"stream": "jobs", "site": "leaf", "group": {"lease": "60 s"}},
        "zones": {"stream": "jobs", "site": "leaf", "group": {"deal": "$zone = zone", "context": {"zone": ""}}},
    },
}


def with_group(group: Any) -> dict[str, Any]:
    return {**DOCUMENT, "subscriptions": {"work": {"stream": "jobs", "site": "leaf", "group": group}}}


@pytest.mark.parametrize(
    ("group", "rule"),
    [
        (True, GroupRule()),
        ("-id", GroupRule("-id")),
        ({"lease": "5 s"}, GroupRule(lease_s=5.0)),
        ({"deal": "$a * id", "context": {"a": 1.5}}, GroupRule("$a * id", context={"a": 1.5})),
    ],
)
def test_a_group_is_written_in_the_file_and_read_again(group: Any, rule: GroupRule) -> None:
    found = parse_deployment(yaml.safe_dump(with_group(group)), "test.yaml").subscriptions["work"]
    assert found.group == rule
    assert decode_subscription("work", json.loads(json.dumps(encode_subscription(found)))) == found
    again = with_group(subscription_document(found)["group"])
    assert parse_deployment(yaml.safe_dump(again), "test.yaml").subscriptions["work"] == found


@pytest.mark.parametrize(
    ("deal", "said"), [("$a", "$a"), ("zone", "number"), ("idd", "idd"), ("id +", "end"), ({"lease": "0 s"}, "greater")]
)
def test_a_rule_that_cannot_be_followed_is_refused(deal: Any, said: str) -> None:
    with pytest.raises(DeploymentError, match=r"test\.yaml") as refused:
        parse_deployment(yaml.safe_dump(with_group(deal)), "test.yaml")
    assert said in str(refused.value)


@asynccontextmanager
async def deployed(directory: Path) -> AsyncIterator[tuple[Runtime, Client]]:
    deployment = parse_deployment(yaml.safe_dump(DOCUMENT), "test.yaml")
    async with (
        open_runtime(Settings(state_dir=directory, job=False), deployment) as runtime,
        await Client.connect(state_dir=directory) as client,
    ):
        yield runtime, client


async def commit(runtime: Runtime, first: int, stop: int, batch: int) -> None:
    rows = [{"id": number, "zone": "ab"[number % 2]} for number in range(first, stop)]

    def work() -> None:
        assert runtime.server is not None
        with DirectCommits(Address(runtime.server.url, Logs()), "test") as direct:
            schema = Schema.of(JOBS["schema"]).arrow  # type: ignore[arg-type] # a mapping
            direct.commit("jobs", pa.RecordBatch.from_pylist(rows, schema=schema), batch, 0.0)

    await asyncio.to_thread(work)


async def gathered(member: GroupMember, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        delivery = await member.next(2.0)
        found += [row["id"] for row in delivery.to_pylist()] if delivery is not None else []
    return found


async def line(runtime: Runtime, name: str) -> dict[str, Any]:
    async def settled() -> dict[str, Any] | None:
        found = (await runtime.status())["subscriptions"][name]
        return found if found["in_flight"] == 0 and found["delivered"] else None

    return dict(await until(settled))


@pytest.mark.nats
def test_each_row_goes_to_one_member_and_the_group_has_one_line(tmp_path: Path) -> None:
    async def run() -> None:
        async with deployed(tmp_path) as (runtime, client):
            work, zones = "work", "zones"
            async with client.join(work, "a", max_rows=50) as a, client.join(work, "b", max_rows=50) as b:
                assert await a.next(0.1) is None  # both are there before the first row comes
                assert await b.next(0.1) is None
                await commit(runtime, 0, 40, 0)
                mine, others = await asyncio.gather(gathered(a, 20), gathered(b, 20))
                assert sorted(mine + others) == list(range(40))
                assert mine == list(range(0, 40, 2)) or others == list(range(0, 40, 2))  # in turn
                status = (await runtime.status())["subscriptions"][work]["group"]
                assert {*status["members"]} <= {"a", "b"}
                a.done()
                await commit(runtime, 40, 60, 1)
                kept = await gathered(b, 10)  # the last 20 of `b` are done with this question
                taken = await gathered(a, 10)
                assert sorted(kept + taken) == list(range(40, 60))
                # `b` goes without having said that it is done with its last ten: they are for `a`.
                b._held = ()  # as if it had died before it was done
                await b.leave()
                assert sorted(await gathered(a, 10)) == sorted(kept)
                a.done()
            with pytest.raises(ClientError, match="is a group"):
                await client.subscribe(work)
            with pytest.raises(ClientError, match="have no value 'nose'"):
                await client.join(zones, "x", context={"nose": 1}).next()
            async with (
                client.join(zones, "even", context={"zone": "a"}) as even,
                client.join(zones, "odd", context={"zone": "b"}) as odd,
            ):
                assert await gathered(even, 60) == list(range(60))  # what is there when only one has come is its own
                assert await odd.next(0.1) is None
                await commit(runtime, 60, 70, 2)
                found = await asyncio.gather(gathered(even, 5), gathered(odd, 5))
                assert found == [[60, 62, 64, 66, 68], [61, 63, 65, 67, 69]]
                even.done()
                odd.done()
            async with client.join(work, "c") as c:
                assert sorted(await gathered(c, 10)) == list(range(60, 70))
                c.done()
            for name in (work, zones):
                found = await line(runtime, name)
                assert (found["matched"], found["delivered"], found["difference"]) == (70, 70, 0)

    asyncio.run(asyncio.wait_for(run(), 90))


@pytest.mark.nats
def test_a_user_joins_its_own_groups_only_and_the_program_prints_what_a_member_gets(tmp_path: Path) -> None:
    async def run() -> None:
        async with deployed(tmp_path) as (runtime, client):
            answer = await client.control("user-add", name="ada", subscribe=["jobs"])
            creds = tmp_path / "ada.creds"
            creds.write_text(answer["credentials"], encoding="utf-8")
            async with await Client.connect(runtime.listens_at, user_credentials=str(creds)) as ada:
                await ada.control(
                    "subscribe", name="hers", subscription={"stream": "jobs", "site": "leaf", "group": True}
                )
                with pytest.raises(ClientError, match="no subscription 'work' of yours"):
                    await ada.join("work").next()
                await commit(runtime, 0, 6, 0)
                async with ada.join("hers", "one", max_rows=4) as one:
                    assert await gathered(one, 4) == [0, 1, 2, 3]
                    one.done()
            arguments = ["tail", "work", "--member", "m", "--json", "--count", "6", "--state-dir", str(tmp_path)]
            program = [sys.executable, "-m", "headgate.cli", *arguments]
            done = await asyncio.to_thread(subprocess.run, program, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            assert [json.loads(text)["id"] for text in done.stdout.splitlines()] == list(range(6))
            assert (await line(runtime, "work"))["delivered"] == 6

    asyncio.run(asyncio.wait_for(run(), 90))
