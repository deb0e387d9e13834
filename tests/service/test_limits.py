"""Limits of one identity: what its filters cost together, bytes that it reads, connections that are answered."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.live import until
from tests.service.test_grants import read, world

from headgate.client import Client, ClientError
from headgate.fabric import FabricError
from headgate.service.allowances import BURST_S

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
