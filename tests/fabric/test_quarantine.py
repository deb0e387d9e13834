"""What a process sets aside: counted once, named, bounded, published, restored."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid

import pytest

from headgate.fabric import Fabric, Stored, keep_quarantine, read_quarantine, report_quarantine
from headgate.protocol.quarantine import MOST, Quarantine
from headgate.wire.logs import Logs
from headgate.wire.sealed import read_number

LOG = Logs().state


def put(sequence: int, data: bytes = b"junk") -> Stored:
    return Stored(sequence, "hg.mark.a.s", data)


def test_a_readable_message_is_given_and_another_is_recorded_once() -> None:
    quarantine = Quarantine(clock=lambda: 1000.0)
    assert quarantine.take(LOG, put(1, b"12"), read_number) == 12
    assert (quarantine.count, quarantine.changed) == (0, False)
    for _ in range(3):
        assert quarantine.take(LOG, put(2), read_number, "taken as 0") is None
    assert quarantine.count == 1
    (found,) = quarantine.messages
    assert (found.log, found.subject, found.sequence, found.action) == ("HG_STATE", "hg.mark.a.s", 2, "taken as 0")
    assert "junk" in found.cause


@pytest.mark.parametrize(("put_in", "named"), [(MOST - 1, MOST - 1), (MOST, MOST), (MOST + 1, MOST)])
def test_it_names_so_many_and_counts_all(put_in: int, named: int) -> None:
    quarantine = Quarantine(time.time)
    for sequence in range(put_in):
        quarantine.take(LOG, put(sequence), read_number)
    assert (quarantine.count, len(quarantine.messages)) == (put_in, named)
    assert quarantine.messages[-1].sequence == put_in - 1


def test_what_was_not_met_for_an_hour_is_only_counted() -> None:
    now = [0.0]
    quarantine = Quarantine(clock=lambda: now[0])
    quarantine.take(LOG, put(1), read_number)
    now[0] = 3601.0
    quarantine.take(LOG, put(2), read_number)
    assert [each.sequence for each in quarantine.messages] == [2]
    assert quarantine.count == 2


@pytest.mark.nats
def test_it_is_published_read_by_others_and_restored_after_a_restart(nats_url: str) -> None:
    async def work() -> None:
        logs = Logs(f"q{uuid.uuid4().hex[:12]}")
        async with await Fabric.connect(nats_url, logs) as fabric:
            await fabric.ensure(logs.state)
            await fabric.publish(logs.mark("a", "s"), b"junk")
            stored = await fabric.last(logs.state, logs.mark("a", "s"))
            assert stored is not None
            assert fabric.quarantine.take(logs.state, stored, read_number) is None
            await report_quarantine(fabric, "relay-a")
            await fabric.publish(logs.quarantine("other"), b"{")
        async with await Fabric.connect(nats_url, logs) as fabric:
            found = await read_quarantine(fabric)
            assert [each.sequence for each in found["relay-a"].messages] == [stored.sequence]
            assert [each.subject for each in fabric.quarantine.messages] == [logs.quarantine("other")]
        async with await Fabric.connect(nats_url, logs) as fabric, await Fabric.connect(nats_url, logs) as other:
            keeping = asyncio.create_task(keep_quarantine(fabric, "relay-a"))
            await fabric.publish(logs.mark("b", "s"), b"more")
            again = await fabric.last(logs.state, logs.mark("b", "s"))
            assert again is not None
            fabric.quarantine.take(logs.state, again, read_number)
            while (await read_quarantine(other))["relay-a"].count < 2:  # noqa: ASYNC110 - a log is polled
                await asyncio.sleep(0.05)
            found = await read_quarantine(other)
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping
            assert [each.subject for each in found["relay-a"].messages] == [
                logs.mark("a", "s"),
                logs.mark("b", "s"),
            ]
            assert found["relay-a"].count == 2

    asyncio.run(asyncio.wait_for(work(), 30))


@pytest.mark.nats
def test_a_message_with_a_status_of_its_own_is_read_and_one_can_be_removed(nats_url: str) -> None:
    async def work() -> None:
        logs = Logs(f"q{uuid.uuid4().hex[:12]}")
        async with await Fabric.connect(nats_url, logs) as fabric:
            log, subject = logs.root("s"), logs.commit("s")
            await fabric.ensure(log)
            await fabric.publish(subject, b"1")
            await fabric._client.publish(subject, b"2", headers={"Status": "404"})
            await fabric.publish(subject, b"3")
            found = await fabric.read(log, subject, 0)
            assert [each.data for each in found] == [b"1", b"2", b"3"]
            await fabric.remove(log, found[1].sequence)
            assert [each.data for each in await fabric.read(log, subject, 0)] == [b"1", b"3"]

    asyncio.run(asyncio.wait_for(work(), 30))
