"""Limits of one identity: what its filters cost together, bytes that it reads, connections that are answered."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import nats
import pytest
from tests.live import until
from tests.service.test_grants import read, world

from headgate.client import Client, ClientError
from headgate.fabric import FabricError
from headgate.fabric.keys import read_claims, statement_of
from headgate.service.allowances import BURST_S
from headgate.service.requests import Answers, Request
from headgate.wire.sizes import USER_REQUEST_BYTES as LIMIT

pytestmark = pytest.mark.nats


def test_all_filters_of_a_user_together_have_a_limit(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, limits={"filter_cost": "1 us"}) as here, await here.user("ada") as ada:
            where = "secret RLIKE '[a-z]+[0-9]'"
            made, said = 0, ""
            wish = {"stream": "staff", "site": "leaf", "where": where}
            while made < 99 and not said:
                more = {**wish, "where": f"{where} AND id > {made}"}
                try:
                    await ada.control("subscribe", name=f"s{made}", subscription=more)
                    made += 1
                except ClientError as error:
                    said = str(error)
            assert "together would take about 1 us a row, 1 are allowed" in said
            assert made > 2
            await ada.unsubscribe("s0")
            await ada.control("subscribe", name="again", subscription=wish)
            await here.operator.control("subscribe", name="any", subscription=wish)  # operators are not limited
            async with await here.user("bob") as bob:
                await bob.control("subscribe", name="bobs", subscription=wish)

    asyncio.run(run())


@pytest.mark.long
def test_bytes_that_a_user_reads_are_paced_and_nobody_elses(tmp_path: Path) -> None:
    async def run() -> None:
        rate = 10_000
        async with (
            world(tmp_path, limits={"bytes": f"{rate / 1000:g} kB/s"}) as here,
            await here.user("ada") as ada,
            await here.user("bob") as bob,
        ):
            for client, name in ((ada, "hers"), (bob, "his")):
                await (await client.subscribe(name, stream="staff", site="leaf")).close()
            for first in range(0, 8_000, 1_000):
                await here.commit(first, first + 1_000)
            fabric = here.operator.fabric
            subject = fabric.logs.delivery("leaf", here.runtime.control.contexts.snapshot.subscription_ids["hers"])

            async def all_there() -> bool:
                last = await fabric.last(fabric.logs.inbox("leaf"), subject)
                return last is not None and fabric.codec.coverage(last.data)[1] == 8_000

            await until(all_there)
            sizes = [len(each.data) for each in await fabric.read(fabric.logs.inbox("leaf"), subject, 0)]
            began_s = time.monotonic()
            got, given_up = await read(ada, "hers", 8_000)
            took_s = time.monotonic() - began_s
            assert (got.num_rows, given_up) == (8_000, {})
            # What may be taken ahead, and the last answer, are not waited for.
            assert took_s > (sum(sizes) - max(sizes)) / rate - BURST_S, (took_s, sizes)
            assert (await here.ledger("hers"))["difference"] == 0
            began_s = time.monotonic()
            async for delivery in await bob.subscribe("his"):
                assert len(delivery)
                break
            assert time.monotonic() - began_s < took_s  # bob has his own allowance

    asyncio.run(run())


def test_who_has_expired_is_not_answered(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here, await here.user("ada") as ada:
            assert (await ada.control("mine"))["subscriptions"] == {}
            people = here.runtime.people
            old = replace(people.registry.users["ada"], expires_s=int(time.time()) - 1)
            people.registry = people.registry.changed(old)
            with pytest.raises((ClientError, FabricError, ValueError)):
                await ada.snapshot()

    asyncio.run(run())


def test_connections_above_the_limit_are_not_answered(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, limits={"connections": 2}) as here, await here.user("ada") as ada:
            file = str(here.directory / "ada.creds")
            async with await Client.connect(here.runtime.listens_at, user_credentials=file) as second:
                for client in (ada, second):
                    assert (await client.control("mine"))["subscriptions"] == {}
                async with await Client.connect(here.runtime.listens_at, user_credentials=file) as third:
                    with pytest.raises((ClientError, FabricError, ValueError)):
                        await third.snapshot()
                assert (await ada.control("mine"))["subscriptions"] == {}

    asyncio.run(run())


@pytest.mark.parametrize(("size", "refused"), [(LIMIT - 1, False), (LIMIT, False), (LIMIT + 1, True)])
def test_a_request_of_a_user_that_is_too_large_is_not_read(size: int, refused: bool) -> None:
    read: list[Request] = []

    def admit(request: Request) -> Request:
        read.append(request)
        return request

    async def handler(_: Request) -> dict[str, Any]:
        return {"done": True}

    async def run() -> None:
        data = b'{"x":"' + b"y" * (size - 8) + b'"}'
        answer = json.loads(await Answers().answering(handler, admit=admit)(data))
        assert ("a user's may have 1,048,576" in answer.get("error", "")) is refused
        assert answer.get("kind") == ("too-large" if refused else None)
        assert len(read) == (0 if refused else 1)
        assert json.loads(await Answers().answering(handler)(data)) == {"done": True}  # an operator's

    asyncio.run(run())


def test_the_server_ends_a_connection_that_sends_more_than_a_request_may_have(tmp_path: Path) -> None:
    """So that nobody has to take it in; those who publish rows may send as much as there is."""

    async def run() -> None:
        async with world(tmp_path) as here, await here.user("ada") as ada:
            with pytest.raises(FabricError, match="a user's may have"):
                await ada.fabric.request(ada.fabric.logs.control("subscribe"), b"x" * (LIMIT + 1))
            ended = asyncio.Event()

            async def failed(_: Exception) -> None:
                ended.set()

            raw = await nats.connect(
                here.runtime.listens_at,
                user_credentials=str(here.directory / "ada.creds"),
                error_cb=failed,
                allow_reconnect=False,
            )
            await raw.publish("hg.as.ada.subscribe", b"x" * (LIMIT + 1))
            await asyncio.wait_for(ended.wait(), 20)
            assert (await ada.control("mine"))["subscriptions"] == {}
            answer = await here.operator.control("user-add", name="bob", subscribe=["staff"], publish=["staff"])
            assert nats_limits(answer["credentials"])["payload"] == -1

    asyncio.run(run())


def nats_limits(credentials: str) -> dict[str, Any]:
    """What credentials say that a user may send and hold."""
    return dict(read_claims(statement_of(credentials))["nats"])
