"""A log that is read as it grows: everything, once, in order, whatever happens to the server's side of it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headgate.fabric import EmbeddedServer, Fabric
from headgate.fabric.streaming import AHEAD, FIRST_BYTES, LogStream, NoStreamError
from headgate.wire.logs import Log, Logs

pytestmark = pytest.mark.nats

Work = Callable[[Fabric, LogStream, Log, str], Awaitable[None]]


def streaming(url: str, work: Work) -> None:
    """Run a test on a site log of its own."""

    async def run() -> None:
        async with await Fabric.connect(url, Logs(f"s{uuid.uuid4().hex[:12]}")) as fabric:
            log, subject = fabric.logs.site("leaf"), fabric.logs.links_into("leaf")
            await fabric.ensure(log)
            stream = fabric.stream(log, subject)
            await work(fabric, stream, log, subject)
            await stream.close()

    asyncio.run(asyncio.wait_for(run(), 50))


async def publish(fabric: Fabric, first: int, count: int) -> None:
    """Messages that say their number."""
    for number in range(first, first + count):
        await fabric.publish(fabric.logs.link("root", "leaf", "s"), b"%d" % number)


async def take(fabric: Fabric, stream: LogStream, log: Log, subject: str, after: int, count: int) -> list[int]:
    """The numbers of the next messages."""
    found: list[int] = []
    while len(found) < count:
        for stored in await fabric.streamed(stream, log, subject, after, min(50, count - len(found))):
            after = stored.sequence
            found.append(int(stored.data))
    return found


@pytest.mark.parametrize("count", [AHEAD // 2 - 1, AHEAD, AHEAD + 1, 5 * AHEAD])
def test_what_is_there_and_what_comes(nats_url: str, count: int) -> None:
    async def work(fabric: Fabric, stream: LogStream, log: Log, subject: str) -> None:
        await publish(fabric, 0, count)
        reading = asyncio.create_task(take(fabric, stream, log, subject, 0, count + 10))
        await publish(fabric, count, 10)
        assert await reading == list(range(count + 10))

    streaming(nats_url, work)


def test_messages_are_as_a_plain_read_gives_them(nats_url: str) -> None:
    async def work(fabric: Fabric, stream: LogStream, log: Log, subject: str) -> None:
        await fabric.publish(fabric.logs.link("root", "leaf", "s"), b"first", expect=0)
        await fabric.publish(fabric.logs.link("other", "leaf", "t"), b"second")
        await fabric.publish(fabric.logs.held("leaf", "token"), b"not of a link")
        found = await fabric.streamed(stream, log, subject, 0, 10)
        if len(found) == 1:
            found += await fabric.streamed(stream, log, subject, found[-1].sequence, 10)
        plain = await fabric.read(log, subject, 0)
        assert [(each.sequence, each.subject, each.data, each.size) for each in found] == [
            (each.sequence, each.subject, each.data, each.size) for each in plain
        ]
        assert [each.time_s for each in found] == pytest.approx([each.time_s for each in plain], abs=1e-3)

    streaming(nats_url, work)


def test_a_reader_that_goes_back_gets_the_same_again(nats_url: str) -> None:
    async def work(fabric: Fabric, stream: LogStream, log: Log, subject: str) -> None:
        await publish(fabric, 0, 20)
        assert await take(fabric, stream, log, subject, 0, 20) == list(range(20))
        assert await take(fabric, stream, log, subject, 5, 15) == list(range(5, 20))

    streaming(nats_url, work)


def test_a_consumer_that_is_gone_is_made_again(nats_url: str) -> None:
    async def work(fabric: Fabric, stream: LogStream, log: Log, subject: str) -> None:
        await publish(fabric, 0, 3)
        assert await take(fabric, stream, log, subject, 0, 3) == [0, 1, 2]
        for consumer in await fabric._js.consumers_info(log.name):  # as a server that was restarted
            await fabric._js.delete_consumer(log.name, consumer.name)
        await publish(fabric, 3, 3)
        assert await take(fabric, stream, log, subject, 3, 3) == [3, 4, 5]

    streaming(nats_url, work)


@pytest.mark.long
@pytest.mark.slow
def test_a_server_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:

        async def work(fabric: Fabric, stream: LogStream, log: Log, subject: str) -> None:
            await publish(fabric, 0, 200)
            assert await take(fabric, stream, log, subject, 0, 100) == list(range(100))
            server.kill()
            server.start()
            reading = asyncio.create_task(take(fabric, stream, log, subject, 100, 200))
            async with await Fabric.connect(server.url, fabric.logs) as other:
                await publish(other, 200, 100)
            assert await reading == list(range(100, 300))

        streaming(server.url, work)


def test_a_reader_without_the_right_to_it_is_told(nats_url: str) -> None:
    async def work(fabric: Fabric, stream: LogStream, log: Log, subject: str) -> None:
        await fabric.delete(log)
        with pytest.raises(NoStreamError):
            await fabric.streamed(stream, log, subject, 0, 10)
        await fabric.ensure(log)
        with pytest.raises(NoStreamError, match="refused before"):  # whoever asks reads the log as usual meanwhile
            await fabric.streamed(stream, log, subject, 0, 10)

    streaming(nats_url, work)


def test_large_messages_are_sent_ahead_by_bytes(nats_url: str) -> None:
    """What lies in the buffers of a slow link is in the way of everything else on the connection."""

    async def work(fabric: Fabric, stream: LogStream, log: Log, subject: str) -> None:
        for _ in range(12):
            await fabric.publish(fabric.logs.link("root", "leaf", "s"), bytes(FIRST_BYTES // 2))
        place, most = 0, 0
        while place < 12:
            place = (await fabric.streamed(stream, log, subject, place, 1))[-1].sequence
            most = max(most, stream._open)
        assert most <= FIRST_BYTES // 65536  # of messages whose size is not known yet

    streaming(nats_url, work)
