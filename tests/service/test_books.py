"""The books over logs in which some messages are garbage: what can be counted is, and the rest is named."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np
import pytest

from headgate.fabric import Fabric
from headgate.fabric.runner import run_machine
from headgate.model import Deployment, Schema, Site, Source, Stream, Subscription
from headgate.protocol.port import LogPort
from headgate.relay.tables import Tables, publish_snapshot
from headgate.service import books as service_books
from headgate.service.books import StreamBooks, read_books, read_tallies
from headgate.service.keeper import Keeper, KeeperMachine, store_books
from headgate.wire.ledger import Tally
from headgate.wire.logs import Logs
from headgate.wire.manifest import Manifest, PartRef, encode_manifest
from headgate.wire.snapshot import Snapshot
from headgate.wire.sums import Matched

pytestmark = pytest.mark.nats
STREAMS = {name: Stream(name, Schema.of({"x": "int"}), Source("generator"), "lab") for name in ("s", "t")}
WANTED = {"all": Subscription("all", "s", "lab"), "others": Subscription("others", "t", "lab")}
NO_CLASSES = (np.zeros(0, np.uint64), np.zeros(0, np.uint64))
IDS = {"all": 1, "others": 2}
SNAPSHOT = Snapshot(
    1, Deployment(STREAMS, {"lab": Site("lab")}, subscriptions=WANTED), None, IDS, {"all": 7, "others": 8}
)


def manifest(stream: str, batch: int, version: int = 1, after: int | None = None) -> bytes:
    """Ten rows of a stream, of which its one class matches three."""
    found = {"s": 7, "t": 8}[stream]
    ids, counts = np.array([found], np.uint64), np.array([3], np.uint64)
    parts, start = (PartRef(0, 10, 0),), 10 * batch if after is None else after
    return encode_manifest(Manifest(stream, "line", batch, version, start, parts, ids, counts, time_ms=1000 + batch))


def in_a_namespace(url: str, work: Callable[[Fabric], Awaitable[None]]) -> None:
    async def run() -> None:
        logs = Logs(f"b{uuid.uuid4().hex[:12]}")
        async with await Fabric.connect(url, logs) as fabric:
            for log in (logs.state, logs.tables, logs.root("s"), logs.root("t")):
                await fabric.ensure(log)
            await publish_snapshot(fabric, SNAPSHOT)
            await work(fabric)

    asyncio.run(asyncio.wait_for(run(), 60))


async def put(fabric: Fabric, *messages: bytes, stream: str = "s") -> list[int]:
    return [await fabric.publish(fabric.logs.commit(stream), each) for each in messages]


async def books(fabric: Fabric) -> dict[str, StreamBooks]:
    return {each.stream: each for each in await read_books(fabric, Tables(fabric), ["s", "t"])}


def named(fabric: Fabric) -> dict[tuple[str, int], str]:
    return {each.key: each.action for each in fabric.quarantine.messages}


def test_a_commit_that_cannot_be_read_stops_its_stream_alone_until_it_is_taken_out(nats_url: str) -> None:
    async def work(fabric: Fabric) -> None:
        log = fabric.logs.root("s")
        _, bad = await put(fabric, manifest("s", 0), b"garbage")
        await put(fabric, manifest("t", 0), manifest("t", 1), stream="t")
        machine = KeeperMachine("s", fabric.logs)
        keeping = asyncio.create_task(run_machine(fabric, machine, Tables(fabric).snapshot))
        found = await books(fabric)
        assert (found["s"].head, found["t"].head, found["t"].stopped) == (10, 20, "")
        assert f"message {bad} of log {log.name} ({fabric.logs.commit('s')}) cannot be read" in found["s"].stopped
        assert f"headgate unreadable --drop {log.name}:{bad}" in found["s"].stopped
        await put(fabric, manifest("s", 2))  # as if the one that cannot be read had been batch 1
        assert (await books(fabric))["s"].head == 10
        assert "stop" in named(fabric)[log.name, bad]
        await fabric.remove(log, bad)
        found = await books(fabric)
        assert (found["s"].head, "goes on from row 20" in found["s"].stopped) == (10, True)
        await fabric.remove(log, bad + 1)
        await put(fabric, manifest("s", 1), manifest("s", 2))
        assert ((await books(fabric))["s"].head, (await books(fabric))["s"].stopped) == (30, "")
        while machine.keeper.reading.matched.head < 30:  # noqa: ASYNC110 - the keeper tries again every second
            await asyncio.sleep(0.05)
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping

    in_a_namespace(nats_url, work)


def test_garbage_between_commits_that_follow_each_other_is_passed_over(nats_url: str) -> None:
    async def work(fabric: Fabric) -> None:
        places = await put(fabric, b"", manifest("s", 0), b"x" * 70_000, b"{}", manifest("s", 1))
        found = (await books(fabric))["s"]
        assert (found.head, found.stopped, found.entries[0].matched) == (20, "", 6)
        log = fabric.logs.root("s").name
        assert {named(fabric)[log, places[0]], named(fabric)[log, places[2]]} == {"passed over"}

    in_a_namespace(nats_url, work)


def test_a_commit_of_a_version_that_nobody_published_does_not_hang(nats_url: str) -> None:
    async def work(fabric: Fabric) -> None:
        await put(fabric, manifest("s", 0), manifest("s", 1, version=99))
        found = (await books(fabric))["s"]
        assert found.head == 10
        assert "it is of version 99 of the catalog, and the newest is 1" in found.stopped

    in_a_namespace(nats_url, work)


def test_sums_that_are_folded_while_the_books_are_read_make_no_difference(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscriber acknowledges, and the keeper folds the sums up to there, right after acknowledgements were read."""

    async def work(fabric: Fabric) -> None:
        await put(fabric, *(manifest("s", batch) for batch in range(4)))
        await fabric.publish(fabric.logs.ack(1), Tally(1, starts=0, boundary=10, mark=10, delivered=3).encode())
        await store_books(fabric, Tables(fabric), "s")

        async def read(port: LogPort) -> dict[int, Tally]:
            found = await read_tallies(port)
            await fabric.publish(fabric.logs.ack(1), Tally(1, starts=0, boundary=30, mark=30, delivered=9).encode())
            await store_books(fabric, Tables(fabric), "s")
            return found

        monkeypatch.setattr(service_books, "read_tallies", read)
        entry = (await books(fabric))["s"].entries[0]
        assert (entry.delivered, entry.in_flight, entry.difference) == (3, 9, 0)

    in_a_namespace(nats_url, work)


@pytest.mark.parametrize("how", ["garbage", "another digit", "another stream's"])
def test_sums_that_cannot_be_read_are_summed_up_again(nats_url: str, how: str) -> None:
    async def work(fabric: Fabric) -> None:
        logs = fabric.logs
        await put(fabric, *(manifest("s", batch) for batch in range(4)))
        tally = Tally(1, starts=0, boundary=20, mark=20, delivered=6)
        await fabric.publish(logs.ack(1), tally.encode())
        await store_books(fabric, Tables(fabric), "s")
        before = (await books(fabric))["s"]
        assert (before.entries[0].matched, before.entries[0].difference, before.entries[0].oldest_ms) == (12, 0, 1002)
        stored = await fabric.last(logs.state, logs.ledger("s"))
        assert stored is not None
        text = stored.data.replace(b'"evaluated":40', b'"evaluated":41')
        assert text != stored.data
        bad = {"garbage": b"garbage", "another digit": text, "another stream's": stored.data.replace(b'"s"', b'"t"')}[
            how
        ]
        place = await fabric.publish(logs.ledger("s"), bad)
        assert (await books(fabric))["s"].to_document() == before.to_document()
        assert (logs.state.name, place) in named(fabric)

        # Where manifests are gone too, it says from where on it counts.
        third = (await fabric.read(logs.root("s"), logs.commit("s"), 0))[2].sequence
        await fabric.purge(logs.root("s"), logs.commit("s"), third)
        found = (await books(fabric))["s"]
        assert (found.lost, found.head, found.rows_in) == (20, 40, 20)

    in_a_namespace(nats_url, work)


def test_a_keeper_that_comes_late_stores_nothing_older_over_what_is_newer(nats_url: str) -> None:
    async def work(fabric: Fabric) -> None:
        logs, tables = fabric.logs, Tables(fabric)
        await put(fabric, manifest("s", 0))
        old = Keeper(fabric, tables, "s")
        await old.begin()
        await old.reading.catch_up()
        await put(fabric, manifest("s", 1), manifest("s", 2))
        await store_books(fabric, tables, "s")
        await old.store()
        stored = await fabric.last(logs.state, logs.ledger("s"))
        assert stored is not None
        assert Matched.decode(stored.data, "s").head == old.reading.matched.head == 30
        # Where nobody can read what was stored, what a keeper has in memory is stored again.
        await put(fabric, manifest("s", 3))
        await old.reading.catch_up()
        await fabric.publish(logs.ledger("s"), b"garbage")
        await old.store()
        await old.store()
        stored = await fabric.last(logs.state, logs.ledger("s"))
        assert stored is not None
        assert Matched.decode(stored.data, "s").head == 40

    in_a_namespace(nats_url, work)


def test_a_commit_without_rows_starts_no_subscription(nats_url: str) -> None:
    """Nobody below the root sees it: who starts with the earliest row gets the past by the class of its first row."""

    async def work(fabric: Fabric) -> None:
        await put(fabric, manifest("s", 0))
        for version, class_id in ((2, 8), (3, 7)):
            late = {"all": WANTED["all"], "late": replace(WANTED["all"], name="late", start="earliest")}
            deployment = replace(SNAPSHOT.deployment, subscriptions=late)
            ids, classes = {"all": 1, "late": 3}, {"all": 7, "late": class_id}
            await publish_snapshot(fabric, Snapshot(version, deployment, None, ids, classes))
            empty = Manifest("s", "line", version - 1, version, 10, (), *NO_CLASSES)
            await put(fabric, encode_manifest(empty) if version == 2 else manifest("s", 2, 3, after=10))
        (line,) = [each for each in (await books(fabric))["s"].entries if each.subscription == 3]
        assert (line.starts, line.matched) == (0, 6)

    in_a_namespace(nats_url, work)


def test_an_acknowledgement_that_is_none_is_named_and_the_others_count(nats_url: str) -> None:
    async def work(fabric: Fabric) -> None:
        logs = fabric.logs
        good = Tally(2, starts=0, boundary=10, mark=10, delivered=3)
        await fabric.publish(logs.ack(2), good.encode())
        flipped = bytearray(Tally(1, delivered=3).encode())
        flipped[-3] ^= 1
        junk = (
            b"",
            b"[]",
            b'{"subscription": 1, "delivered": "x"}',
            good.encode(),
            bytes(flipped),
            b'{"subscription": 1, "delivered": -1}',
        )
        for each in junk:
            place = await fabric.publish(logs.ack(1), each)
            assert await read_tallies(fabric) == {2: good}
            assert (logs.state.name, place) in named(fabric)
        assert fabric.quarantine.count == len(junk)

    in_a_namespace(nats_url, work)


def test_a_stream_whose_log_is_gone_stops_no_other(nats_url: str) -> None:
    async def work(fabric: Fabric) -> None:
        await put(fabric, manifest("t", 0), stream="t")
        await fabric.delete(fabric.logs.root("s"))
        found = await books(fabric)
        assert f"there is no log {fabric.logs.root('s').name}" in found["s"].stopped
        assert (found["t"].head, found["t"].stopped) == (10, "")

    in_a_namespace(nats_url, work)
