"""A sender that is cut off: order, no duplicates, and an exact account of what was given up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.client import ClientError
from headgate.client.entrance import Entrance
from headgate.client.publishing import to_table
from headgate.client.sender import Sender, conform
from headgate.fabric import EmbeddedServer, Fabric, FabricError
from headgate.model import Column, Schema, Source, Stream
from headgate.reduction import merged
from headgate.wire.logs import Logs
from headgate.wire.unsent import Unsent, decode_unsent

pytestmark = pytest.mark.nats
STREAM = Stream(
    "readings",
    Schema((Column("n", pa.int64()), Column("at", pa.timestamp("us", "UTC")))),
    Source("nats", {"payload": "jsonl"}),
    "root",
)


def _rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"n": number} for number in range(start, stop)]


@asynccontextmanager
async def _connected(url: str, kind: type[Fabric] = Fabric) -> AsyncIterator[Fabric]:
    async with await kind.connect(url, Logs("send")) as fabric:
        await fabric.ensure(fabric.logs.input("readings"))
        yield fabric
        await fabric.delete(fabric.logs.input("readings"))


async def _stored(fabric: Fabric) -> list[int]:
    """The numbers in the stream's input log, in its order."""
    found = await fabric.read(fabric.logs.input("readings"), fabric.logs.published("readings"), 0)
    return [json.loads(line)["n"] for each in found for line in each.data.splitlines()]


async def _declared(fabric: Fabric) -> list[Unsent]:
    """What the sender has told the stream that it gave up."""
    found = await fabric.read(fabric.logs.input("readings"), fabric.logs.unsent("readings"), 0)
    return [decode_unsent(each.data) for each in found]


def test_rows_published_while_the_server_is_away_arrive_in_order_and_once(tmp_path: Path) -> None:
    told: list[int] = []

    async def run() -> None:
        server = EmbeddedServer(tmp_path, sync_always=False)
        await asyncio.to_thread(server.start)
        try:
            async with _connected(server.url) as fabric:
                sender = Sender(
                    Entrance.at_home(fabric, STREAM.name),
                    STREAM,
                    {"levels": [{"every": 2}]},
                    max_rows=60,
                    batch_rows=10,
                    on_digest=lambda counts, _: told.append(sum(counts.values())),
                )
                async with sender:
                    sender.publish(_rows(0, 25))
                    assert await sender.flush(20)
                    assert await _stored(fabric) == list(range(25))
                    await asyncio.to_thread(server.stop)
                    for start in range(25, 225, 20):
                        sender.publish(_rows(start, start + 20))
                        await asyncio.sleep(0)
                    assert sender.report().waiting <= 70
                    await asyncio.to_thread(server.start)
                    assert await sender.flush(30)
                report, stored = sender.report(), await _stored(fabric)
                declared = await _declared(fabric)
                assert {reason for each in declared for reason in each.reasons} == {"every"}
                assert sum(each.count for each in declared) == report.declared == sum(report.reduced.values())
                assert stored == sorted(set(stored))
                assert stored[-1] == 224
                assert (report.offered, report.stored, report.waiting) == (225, len(stored), 0)
                assert report.offered == report.stored + sum(report.reduced.values()) > report.stored
                assert sum(told) == sum(report.reduced.values())
        finally:
            await asyncio.to_thread(server.stop)

    asyncio.run(run())


class _Forgetful(Fabric):
    """Stores, and loses every second answer."""

    answers = 0

    async def publish(self, *arguments: Any, **options: Any) -> int:
        found = await super().publish(*arguments, **options)
        _Forgetful.answers += 1
        if _Forgetful.answers % 2:
            raise FabricError("the answer was lost")
        return found


def test_a_message_whose_answer_was_lost_is_stored_once(nats_url: str) -> None:
    async def run() -> None:
        async with _connected(nats_url, _Forgetful) as fabric:
            async with Sender(Entrance.at_home(fabric, STREAM.name), STREAM, batch_rows=10) as sender:
                sender.publish(_rows(0, 50))
                assert await sender.flush(20)
            assert await _stored(fabric) == list(range(50))
            report = sender.report()
            assert (report.stored, report.messages, report.again, report.unsure) == (50, 5, 5, 0)

    asyncio.run(run())


def test_what_waits_too_long_is_given_up_and_said(nats_url: str) -> None:
    class Deaf(Fabric):
        """Takes declarations and no rows."""

        async def publish(self, subject: str, *arguments: Any, **options: Any) -> int:
            if subject == self.logs.published("readings"):
                raise FabricError("no answer")
            return await super().publish(subject, *arguments, **options)

    async def run() -> None:
        async with _connected(nats_url, Deaf) as fabric:
            told: dict[str, int] = {}
            policy = {"levels": [{"every": 2}], "digest": [{"max": "n"}]}
            async with Sender(
                Entrance.at_home(fabric, STREAM.name),
                STREAM,
                policy,
                batch_rows=10,
                expires_s=0.05,
                on_digest=lambda counts, _: told.update(counts),
            ) as sender:
                sender.publish(_rows(0, 30))
                assert await sender.flush(20)
            report = sender.report()
            assert (report.offered, report.stored, report.unsure, report.expired) == (30, 0, 10, 20)
            assert told == {"unsure": 10, "expired": 20}
            declared = reduce(merged, await _declared(fabric), None)
            assert declared is not None
            assert declared.reasons == {"expired": 20, "unsure": 10}
            assert declared.show()["max(n)"] == 29
            assert report.declared == 30
            with pytest.raises(ClientError, match="rows cannot wait 7200 s"):
                Sender(Entrance.at_home(fabric, STREAM.name), STREAM, expires_s=7200.0)
            with pytest.raises(ClientError, match="reads from 'generator'"):
                Sender(
                    Entrance.at_home(fabric, STREAM.name), Stream("other", STREAM.schema, Source("generator"), "root")
                )

    asyncio.run(run())


def test_rows_are_given_the_streams_types_or_refused() -> None:
    found = conform(to_table([{"at": "2026-03-01T12:00:00Z", "n": 3}]), STREAM)
    assert found.schema.equals(STREAM.schema.arrow)
    assert found["at"][0].as_py().isoformat() == "2026-03-01T12:00:00+00:00"
    with pytest.raises(ClientError, match="column 'n'"):
        conform(to_table([{"n": "three"}]), STREAM)
    with pytest.raises(ClientError, match="has no column 'm'"):
        conform(to_table([{"m": 3}]), STREAM)
