"""Readers that are fed from memory: one reading of the site's log, and the log's own messages for who falls behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client as NatsClient
from tests.client.helpers import connect, live_test, no_difference, rows, seqs
from tests.live import Live, small, until

from headgate.client import Client, Delivery
from headgate.client.delivery import closing
from headgate.fabric import Fabric
from headgate.fabric.wide import WideFabric
from headgate.gateway.feeds import Feeds
from headgate.model import Site
from headgate.wire.logs import Log, Logs

pytestmark = pytest.mark.nats
SEVERAL = {f"s{number}": {"site": "leaf"} for number in range(6)}


class Counted:
    """Counts what a connection reads of inboxes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads: Counter[str] = Counter()
        read = Fabric.read

        async def counted(fabric: Fabric, log: Log, subject: str, after: int, **how: Any) -> Any:
            found = await read(fabric, log, subject, after, **how)
            if ".inbox." in subject and found:
                self.reads[subject] += len(found)
            return found

        monkeypatch.setattr(Fabric, "read", counted)


async def collect(client: Client, name: str, got: list[Delivery]) -> None:
    async with closing(await client.subscribe(name)) as deliveries:
        async for delivery in deliveries:
            got += [delivery]


def test_live_rows_are_read_once_for_all(tmp_path: Path, nats_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(live: Live) -> None:
        async with await connect(live) as client:
            feeds = Feeds(client)
            feeds.adopt(client)
            got: dict[str, list[Delivery]] = {name: [] for name in SEVERAL}
            tasks = [asyncio.create_task(collect(client, name, got[name])) for name in SEVERAL]
            feed = feeds.of_site(Site("leaf"))
            assert feed is not None

            async def following() -> bool:
                return feed.readers == len(SEVERAL) and feed.memory.seen is not None

            await until(following)
            counted = Counted(monkeypatch)
            for batch in range(4):
                await live.commit("fleet", rows(10 * batch, 10 * batch + 10), batch)

                async def arrived(count: int = 10 * batch + 10) -> bool:
                    return all(len(seqs(each)) == count for each in got.values())

                await until(arrived)
            assert all(seqs(each) == list(range(1, 41)) for each in got.values())
            assert not counted.reads
            # What is the same for all was decoded once.
            assert len({id(each[-1].rows) for each in got.values()}) == 1
            await until(lambda: no_difference(live))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            assert feed.readers == 0
            await feeds.close()

    live_test(tmp_path, nats_url, small(**SEVERAL), work)


@pytest.mark.long
def test_who_falls_behind_reads_the_log_and_comes_back(
    tmp_path: Path, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory has room for about three messages, and the slow reader takes one while twenty come."""

    async def work(live: Live) -> None:
        async with await connect(live) as client:
            feeds = Feeds(client, max_bytes=4_000)
            feeds.adopt(client)
            fast: list[Delivery] = []
            slow: list[Delivery] = []
            reading = asyncio.create_task(collect(client, "s0", fast))
            async with closing(await client.subscribe("s1", batch=1)) as deliveries:
                await live.commit("fleet", rows(0, 10), 0)
                slow.append(await anext(deliveries))
                for batch in range(1, 21):
                    await live.commit("fleet", rows(10 * batch, 10 * batch + 10), batch)

                    async def arrived(count: int = 10 * batch + 10) -> bool:
                        return len(seqs(fast)) == count

                    await until(arrived)
                feed = feeds.of_site(Site("leaf"))
                assert feed is not None
                assert feed.memory.bytes <= 4_000
                counted = Counted(monkeypatch)
                while len(seqs(slow)) < 210:
                    slow.append(await anext(deliveries))
                behind = sum(counted.reads.values())
                assert behind > 10
                await live.commit("fleet", rows(210, 220), 21)
                slow.append(await anext(deliveries))
                assert sum(counted.reads.values()) == behind  # it came from memory
                assert seqs(slow) == list(range(1, 221))
            reading.cancel()
            await asyncio.wait([reading])
            await feeds.close()

    live_test(tmp_path, nats_url, small(s0={"site": "leaf"}, s1={"site": "leaf"}), work)


def test_a_site_with_a_server_of_its_own_is_followed_from_near_only() -> None:
    """Its log grows elsewhere: memory that was filled from here would stay empty and say that nothing comes."""
    fabric = WideFabric(NatsClient(), Logs())
    client, host = Client(fabric), Site("leaf", nats="nats://10.0.0.1:4222")
    feeds = Feeds(client)
    assert feeds.of_site(host) is None
    assert feeds.of_site(Site("leaf")) is not None
    assert Feeds(client, sites=("mid",)).of_site(Site("leaf")) is None
    fabric.near["leaf"] = WideFabric(NatsClient(), Logs())
    assert Feeds(client).of_site(host) is not None
