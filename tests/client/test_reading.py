"""Reading a subscription through the client: real NATS and relays, rows committed as the job does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest
from tests.client.helpers import connect, live_test, no_difference, read, rows, seqs
from tests.live import Live, running, small, until

from headgate.client import ClientError, Inbox, SyncClient
from headgate.client.delivery import closing, decode_position
from headgate.fabric import Crew, cancel_all
from headgate.protocol.acks import read_tally
from headgate.relay.node import RelayNode
from headgate.relay.output import QueueLimits
from headgate.wire.ledger import Tally
from headgate.wire.message import block_range

pytestmark = pytest.mark.nats

ROWS = 120


def test_rows_come_as_arrow_pandas_and_dicts_the_same_in_both_formats(tmp_path: Path, nats_url: str) -> None:
    document = small(binary={"site": "leaf"}, text={"site": "leaf", "format": "json"})

    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, ROWS), 0)
        sent = rows(0, ROWS)
        for name in ("binary", "text"):
            (first, *_) = found = await read(live.client, name, ROWS)
            assert seqs(found) == list(range(1, ROWS + 1))
            table = pa.Table.from_batches([each.rows for each in found])
            assert table.to_pylist() == sent.to_pylist()
            assert table.schema.names == sent.schema.names
            frame = first.to_pandas()
            assert list(frame.index) == first.seqs.tolist()
            assert list(frame["vehicle"]) == [row["vehicle"] for row in first.to_pylist()]

    live_test(tmp_path, nats_url, document, work)


def test_the_plain_client_reads_and_ends_by_its_timeout(tmp_path: Path, nats_url: str) -> None:
    document = small(all={"site": "mid"}, some={"site": "mid"})

    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, ROWS), 0)
        await asyncio.to_thread(plainly, live)

    def plainly(live: Live) -> None:
        with SyncClient(live.address.url, namespace=live.address.logs.namespace) as client:
            got: list[int] = []
            while len(got) < ROWS:  # each ends when nothing came for half a second
                got += seqs(list(client.subscribe("all", timeout_s=0.5)))
            assert got == list(range(1, ROWS + 1))
            assert list(client.subscribe("all", timeout_s=0.1)) == []
            first = next(iter(client.subscribe("some", max_rows=7)))
            assert (len(first), len(first.to_pylist()), len(first.to_pandas())) == (7, 7, 7)
            assert client.control("status")["streams"]["fleet"]["rows_in"] == ROWS
            with pytest.raises(ClientError, match=r"no subscription 'al' \(did you mean 'all'\?\)"):
                client.subscribe("al")

    live_test(tmp_path, nats_url, document, work)


def test_a_position_gives_every_row_once_also_inside_a_commit(tmp_path: Path, nats_url: str) -> None:
    """The crashed client never acknowledges: what the position token says is all that a new client has."""
    document = small(all={"site": "leaf"})

    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, ROWS), 0)
        got: list[int] = []
        position = None
        for _ in range(3):
            async with await connect(live) as client:
                inbox = await client.subscribe("all", position=position, max_rows=25)
                async with asyncio.timeout(30):
                    delivery = await anext(inbox.__aiter__())
                got += delivery.seqs.tolist()
                position = delivery.position
        assert got == list(range(1, 76))
        async with await connect(live) as client:
            got += seqs(await read(client, "all", 45, position=position))
        assert got == list(range(1, ROWS + 1))
        await until(lambda: no_difference(live))

    live_test(tmp_path, nats_url, document, work)


def test_a_kept_position_is_acknowledged_before_anything_new_comes(tmp_path: Path, nats_url: str) -> None:
    """An inbox that is full up to that position takes nothing new until it is acknowledged."""
    document = small(all={"site": "leaf"})

    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, ROWS), 0)
        async with await connect(live) as client:
            delivery = await anext((await client.subscribe("all")).__aiter__())  # never done with, as far as it knows
        async with await connect(live) as client:
            inbox = await client.subscribe("all", position=delivery.position)
            reading = asyncio.create_task(anext(inbox.__aiter__()))

            async def acknowledged() -> bool:
                stored = await client.fabric.last(client.fabric.logs.state, client.fabric.logs.ack(inbox.id))
                assert not reading.done(), "nothing new was committed"
                return stored is not None and Tally.decode(stored.data).mark == delivery.upto == ROWS

            try:
                await until(acknowledged)
            finally:
                await cancel_all([reading])

    live_test(tmp_path, nats_url, document, work)


def test_without_a_position_reading_goes_on_from_what_was_done(tmp_path: Path, nats_url: str) -> None:
    document = small(all={"site": "leaf"})

    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, ROWS), 0)
        async with await connect(live) as client:
            inbox = await client.subscribe("all", max_rows=30)
            async for delivery in inbox:  # the third delivery is not done with when the loop is left
                if delivery.upto == 90:
                    break
        async with await connect(live) as client:
            found = await read(client, "all", 60)
        assert seqs(found) == list(range(61, ROWS + 1))
        await until(lambda: no_difference(live))

    live_test(tmp_path, nats_url, document, work)


def test_going_back_to_an_older_position_keeps_the_ledger_right(tmp_path: Path, nats_url: str) -> None:
    document = small(all={"site": "leaf"})

    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, ROWS), 0)
        async with await connect(live) as client:
            (first, *_) = await read(client, "all", ROWS, max_rows=10)
            await until(lambda: no_difference(live))
            again = await read(client, "all", 50, position=first.position, max_rows=50)
            assert seqs(again) == list(range(11, 61))
            assert await no_difference(live)
            await live.commit("fleet", rows(ROWS, 2 * ROWS), 1)
            assert seqs(await read(client, "all", ROWS)) == list(range(ROWS + 1, 2 * ROWS + 1))
        await until(lambda: no_difference(live))

    live_test(tmp_path, nats_url, document, work)


def test_a_position_must_be_one_and_of_this_subscription(tmp_path: Path, nats_url: str) -> None:
    document = small(all={"site": "mid"}, other={"site": "mid"})

    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, 10), 0)
        (delivery,) = await read(live.client, "all", 10)
        with pytest.raises(ClientError, match="not a position token"):
            await live.client.subscribe("all", position="bm90IG9uZQ==")
        with pytest.raises(ClientError, match="the position is of subscription 1, not of 2"):
            await live.client.subscribe("other", position=delivery.position)

    live_test(tmp_path, nats_url, document, work)


async def _left_before_it_was_taken(live: Live, leave: Callable[[Inbox], Awaitable[None]]) -> Inbox:
    """A reader that has ten rows, and is left when the next ten were counted and wait for its loop to take them."""
    inbox = await live.client.subscribe("all")
    assert isinstance(inbox, Inbox)
    deliveries = aiter(inbox)
    async with asyncio.timeout(30):
        assert len(await anext(deliveries)) == 10
        ready = asyncio.Event()

        class Late(asyncio.Event):
            async def wait(self) -> Literal[True]:
                await ready.wait()
                return await super().wait()

        inbox._came = Late()
        asking = asyncio.ensure_future(anext(deliveries, None))
        await live.commit("fleet", rows(10, 20), 1)

        async def counted() -> bool:
            return inbox._handed is not None

        await until(counted)
        await leave(inbox)
        ready.set()
        if inbox.gone():
            assert await asking is None
        else:
            asking.cancel()
            await asyncio.wait([asking])
        inbox._came = asyncio.Event()
    return inbox


def test_rows_that_were_on_their_way_to_the_loop_when_it_detached_come_again(tmp_path: Path, nats_url: str) -> None:
    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, 10), 0)

        async def detach(_: Inbox) -> None:
            await live.client.detach("all")

        await _left_before_it_was_taken(live, detach)
        assert seqs(await read(live.client, "all", 10)) == list(range(11, 21))
        assert await no_difference(live)

    live_test(tmp_path, nats_url, small(all={"site": "mid"}), work)


def test_rows_that_were_on_their_way_to_a_loop_that_ended_come_with_the_next(tmp_path: Path, nats_url: str) -> None:
    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, 10), 0)

        async def stay(inbox: Inbox) -> None:
            assert decode_position(inbox.position, inbox.id).mark == 10

        inbox = await _left_before_it_was_taken(live, stay)
        async with asyncio.timeout(30), closing(inbox) as deliveries:
            assert (await anext(deliveries)).seqs.tolist() == list(range(11, 21))

    live_test(tmp_path, nats_url, small(all={"site": "mid"}), work)


def test_a_second_reader_takes_over_and_the_first_is_told(tmp_path: Path, nats_url: str) -> None:
    document = small(all={"site": "mid"})

    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, 10), 0)
        first = (await live.client.subscribe("all")).__aiter__()
        async with asyncio.timeout(30):
            assert len(await anext(first)) == 10
        async with await connect(live) as other:
            assert seqs(await read(other, "all", 10)) == list(range(1, 11))  # not done with, so it comes again

        async def go_on() -> None:
            for batch in range(1, 100):
                await live.commit("fleet", rows(10 * batch, 10 * batch + 10), batch)
                await anext(first)

        with pytest.raises(ClientError, match="another client has taken over the subscription 'all'"):
            await asyncio.wait_for(go_on(), 30)

    live_test(tmp_path, nats_url, document, work)


def test_a_reader_who_only_looks_changes_nothing(tmp_path: Path, nats_url: str) -> None:
    document = small(all={"site": "mid"})

    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, 10), 0)
        reader = (await live.client.subscribe("all")).__aiter__()
        async with await connect(live) as other:
            for _ in range(2):
                assert seqs(await read(other, "all", 10, peek=True)) == list(range(1, 11))
        async with asyncio.timeout(30):
            assert len(await anext(reader)) == 10
            await live.commit("fleet", rows(10, 20), 1)
            assert (await anext(reader)).seqs.tolist() == list(range(11, 21))
        await reader.aclose()

    live_test(tmp_path, nats_url, document, work)


def test_a_damaged_message_acknowledges_nothing_that_is_not_confirmed(tmp_path: Path, nats_url: str) -> None:
    document = small(all={"site": "mid"})

    async def work(live: Live) -> None:
        await live.commit("fleet", rows(0, ROWS), 0)
        fabric, number = live.client.fabric, (await live.client.snapshot()).subscription_ids["all"]
        inbox = await live.client.subscribe("all", confirming=True)
        got: list[int] = []
        async for delivery in inbox:
            if not got:
                await fabric.publish(fabric.logs.delivery("mid", number), b"not a message")
                await live.commit("fleet", rows(ROWS, 2 * ROWS), 1)
            got += seqs([delivery])
            if len(got) >= 2 * ROWS:
                break
        await inbox.close()
        assert got == list(range(1, 2 * ROWS + 1))
        assert (await read_tally(fabric, number)).mark == 0

    live_test(tmp_path, nats_url, document, work)


def test_callbacks_hear_of_a_gap_that_is_repaired(tmp_path: Path, nats_url: str) -> None:
    document = small(all={"site": "leaf"})

    async def work(live: Live) -> None:
        fabric, logs = live.client.fabric, live.client.fabric.logs
        inbox, subject = logs.inbox("leaf"), logs.delivery("leaf", 1)
        for batch in range(3):
            await live.commit("fleet", rows(10 * batch, 10 * batch + 10), batch)

            async def arrived(upto: int = 10 * batch + 10) -> bool:
                stored = await fabric.last(inbox, subject)
                return stored is not None and block_range(stored.data)[1] == upto

            await until(arrived)
        stored = await fabric.read(inbox, subject, 0)
        assert len(stored) == 3
        await fabric._js.delete_msg(inbox.name, stored[1].sequence)
        gaps: list[tuple[int, int]] = []
        found = await read(live.client, "all", 30, on_gap=lambda after, upto: gaps.append((after, upto)))
        assert seqs(found) == list(range(1, 31))
        assert gaps == [(10, 20)]

    live_test(tmp_path, nats_url, document, work)


def test_callbacks_hear_what_was_given_up(tmp_path: Path, nats_url: str) -> None:
    document = small(all={"site": "root"})

    async def run() -> None:
        async with running(document, tmp_path, nats_url, relays=False) as live, Crew() as crew:
            await live.commit("fleet", rows(0, 10), 0)
            await live.commit("fleet", rows(10, 90), 1)
            limits = QueueLimits(max_rows=50)
            crew.spawn(RelayNode(live.client.fabric, "root", limits=limits).run())
            heard: list[tuple[dict[str, int], int, int]] = []
            inbox = await live.client.subscribe("all", on_digest=lambda *told: heard.append(told))
            found = []
            async with asyncio.timeout(30), closing(inbox) as deliveries:
                async for delivery in deliveries:
                    found.append(delivery)
                    if delivery.upto == 90:
                        inbox.done()
                        break
            given_up = sum(sum(reasons.values()) for reasons, _, _ in heard)
            assert given_up + sum(map(len, found)) == 90
            assert given_up > 0
            assert sum(sum(each.given_up.values()) for each in found) == given_up
            assert all(reasons and after < upto for reasons, after, upto in heard)
            await until(lambda: no_difference(live))

    asyncio.run(run())
