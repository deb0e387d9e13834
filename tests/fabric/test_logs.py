"""Logs: fenced appends, full logs, exact reads, purges by their owner."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from nats.js import api

from headgate.fabric import EmbeddedServer, Fabric, FabricError, FencedError, LogFullError, SyncFabric
from headgate.wire.logs import Log, Logs

pytestmark = pytest.mark.nats


def with_fabric(url: str, work: Callable[[Fabric], Awaitable[None]]) -> None:
    """Run a test in a namespace of its own."""

    async def run() -> None:
        async with await Fabric.connect(url, Logs(f"f{uuid.uuid4().hex[:12]}", inbox_messages=3)) as fabric:
            await work(fabric)

    asyncio.run(run())


def test_an_append_that_expects_another_last_message_is_refused(nats_url: str) -> None:
    async def work(fabric: Fabric) -> None:
        log, subject = fabric.logs.root("s"), fabric.logs.commit("s")
        await fabric.ensure(log)
        first = await fabric.publish(subject, b"1", expect=0)
        with pytest.raises(FencedError):
            await fabric.publish(subject, b"zombie", expect=0)
        await fabric.publish(fabric.logs.part("s"), b"another subject does not count")
        assert await fabric.publish(subject, b"2", expect=first) == first + 2
        stored = await fabric.last(log, subject)
        assert stored is not None
        assert (stored.data, stored.subject) == (b"2", subject)
        assert [each.data for each in await fabric.read(log, subject, 0)] == [b"1", b"2"]

    with_fabric(nats_url, work)


def test_a_full_inbox_refuses_and_concerns_nobody_else(nats_url: str) -> None:
    async def work(fabric: Fabric) -> None:
        log = fabric.logs.inbox("site")
        await fabric.ensure(log)
        slow, quick = fabric.logs.delivery("site", 1), fabric.logs.delivery("site", 2)
        for number in range(3):
            await fabric.publish(slow, b"%d" % number)
        with pytest.raises(LogFullError):
            await fabric.publish(slow, b"too much")
        last = await fabric.publish(quick, b"fits")
        await fabric.purge(log, slow, last)
        await fabric.publish(slow, b"again")
        assert await fabric.subjects(log, f"{fabric.logs.namespace}.inbox.>") == {slow: 1, quick: 1}

    with_fabric(nats_url, work)


def test_a_full_log_refuses(nats_url: str) -> None:
    async def work(fabric: Fabric) -> None:
        log = Log(f"{fabric.logs.namespace}_SMALL", (f"{fabric.logs.namespace}.small",), 2000)
        await fabric.ensure(log)
        await fabric.publish(log.subjects[0], b"x" * 1000)
        with pytest.raises(LogFullError):
            await fabric.publish(log.subjects[0], b"x" * 1000)
        await fabric.ensure(Log(log.name, log.subjects, 4000))  # wider limits keep what it holds
        await fabric.publish(log.subjects[0], b"x" * 1000)
        assert len(await fabric.read(log, log.subjects[0], 0)) == 2
        await fabric.delete(log)
        assert await fabric.info(log) is None
        with pytest.raises(FabricError, match=rf"there is no log {log.name} \(is the deployment up\?\)"):
            await fabric.last(log, log.subjects[0])

    with_fabric(nats_url, work)


def test_a_purge_keeps_what_its_owner_did_not_account_for(nats_url: str) -> None:
    async def work(fabric: Fabric) -> None:
        log, one, other = fabric.logs.root("s"), fabric.logs.part("s"), fabric.logs.dead("s")
        await fabric.ensure(log)
        places = [await fabric.publish(subject, b"%d" % n) for n in range(4) for subject in (one, other)]
        await fabric.purge(log, one, places[4])
        assert [each.sequence for each in await fabric.read(log, one, 0)] == [places[4], places[6]]
        assert len(await fabric.read(log, other, 0)) == 4
        assert await fabric.get(log, places[0]) is None
        kept = await fabric.get(log, places[1])
        assert kept is not None
        assert kept.data == b"0"

    with_fabric(nats_url, work)


def test_only_the_latest_value_of_a_state_is_kept(nats_url: str) -> None:
    async def work(fabric: Fabric) -> None:
        await fabric.ensure(fabric.logs.state)
        for number in range(5):
            await fabric.publish(fabric.logs.ack(1), b"%d" % number)
        assert [each.data for each in await fabric.read(fabric.logs.state, fabric.logs.ack(1), 0)] == [b"4"]

    with_fabric(nats_url, work)


def test_a_state_log_that_made_room_for_new_values_refuses_them_from_now_on(nats_url: str) -> None:
    """One of an earlier version deleted its oldest value when it was full, which may be the head of the catalog."""

    async def work(fabric: Fabric) -> None:
        log = replace(fabric.logs.state, max_bytes=2_000)
        subjects = list(log.subjects)
        old = api.StreamConfig(name=log.name, subjects=subjects, max_msgs_per_subject=1, discard=api.DiscardPolicy.OLD)
        await fabric._js.add_stream(old)
        await fabric.publish(fabric.logs.head, b"7")
        await fabric.ensure(log)
        await fabric.publish(fabric.logs.ack(1), b"x" * 1_500)
        with pytest.raises(LogFullError):
            await fabric.publish(fabric.logs.ack(2), b"x" * 1_500)
        assert [each.data for each in await fabric.read(log, fabric.logs.head, 0)] == [b"7"]
        await fabric.publish(fabric.logs.head, b"8")
        assert [each.data for each in await fabric.read(log, fabric.logs.head, 0)] == [b"8"]

    with_fabric(nats_url, work)


def test_reading_is_in_order_and_in_portions(nats_url: str) -> None:
    with SyncFabric(nats_url, Logs(f"f{uuid.uuid4().hex[:12]}")) as fabric:
        log, subject = fabric.logs.root("s"), fabric.logs.part("s")
        fabric.ensure(log)
        places = fabric.publish_all(subject, [b"%d" % n for n in range(50)])
        found, place = [], 0
        while batch := fabric.read(log, subject, place, limit=7):
            assert len(batch) <= 7
            found += batch
            place = batch[-1].sequence
        assert [each.sequence for each in found] == sorted(places)
        by_place = dict(zip(places, range(50), strict=True))
        assert all(int(each.data) == by_place[each.sequence] for each in found)
        assert all(each.time_s > 0 for each in found)


def test_following_goes_on_across_a_restart_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is missed and nothing comes twice, with the server killed while somebody waits."""
    monkeypatch.setattr("headgate.fabric.client._TIMEOUT_S", 1.0)

    async def run(server: EmbeddedServer) -> None:
        logs = Logs("x")
        async with await Fabric.connect(server.url, logs) as reader, await Fabric.connect(server.url, logs) as writer:
            log, subject = logs.root("s"), logs.part("s")
            await writer.ensure(log)
            await writer.publish(subject, b"0")
            stream = reader.follow(log, subject)
            found = await anext(stream)
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            for number in (1, 2):
                await _stored(writer, subject, b"%d" % number)
            async with asyncio.timeout(30):
                found += await waiting
                while len(found) < 3:
                    found += await anext(stream)
            await stream.aclose()
            assert [each.data for each in found] == [b"0", b"1", b"2"]

    with EmbeddedServer(tmp_path) as server:
        asyncio.run(run(server))


async def _stored(fabric: Fabric, subject: str, data: bytes) -> None:
    """Append once, however long the connection takes to come back."""
    async with asyncio.timeout(30):
        while True:
            try:
                last = await fabric.last(fabric.logs.root("s"), subject)
                assert last is not None
                if last.data != data:
                    await fabric.publish(subject, data, expect=last.sequence)
            except FabricError:
                await asyncio.sleep(0.1)
            else:
                return


def test_names_that_cannot_be_part_of_a_subject_are_refused() -> None:
    for name in ("", "a b", "a.b", "a>", "*", "x" * 65):
        with pytest.raises(ValueError, match="cannot be part of a subject"):
            Logs().published(name)
