"""The newest revision and its snapshot, when what announces them is garbage."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from headgate.fabric import Fabric
from headgate.model import Deployment, Schema, Site, Source, Stream, Subscription
from headgate.protocol.published import head_revision, load_snapshot, newest_readable
from headgate.relay.tables import Tables, publish_snapshot
from headgate.wire.identity import Identity
from headgate.wire.logs import Logs
from headgate.wire.snapshot import Snapshot, SnapshotWriter, base_revision
from headgate.wire.unreadable import UnreadableError

pytestmark = pytest.mark.nats


def published(url: str, work: Callable[[Fabric], Awaitable[None]]) -> None:
    """Run a test on a namespace with revisions 1 to 3."""

    async def run() -> None:
        async with await Fabric.connect(url, Logs(f"p{uuid.uuid4().hex[:12]}")) as fabric:
            for log in (fabric.logs.state, fabric.logs.tables):
                await fabric.ensure(log)
            for revision in (1, 2, 3):
                await publish_snapshot(fabric, Snapshot(revision, Deployment({}, {})))
            await work(fabric)

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize("garbage", [b"", b"garbage", b"-3", b"7", b"\xff" * 2000, b"9" * 30])
def test_a_head_that_cannot_be_read_is_named_and_the_newest_snapshot_is_taken(nats_url: str, garbage: bytes) -> None:
    async def work(fabric: Fabric) -> None:
        place = await fabric.publish(fabric.logs.head, garbage)
        assert await head_revision(fabric) == 3
        (found,) = fabric.quarantine.messages
        assert (found.log, found.subject, found.sequence) == (fabric.logs.state.name, fabric.logs.head, place)
        assert (await anext(Tables(fabric).heads())).revision == 3

    published(nats_url, work)


def test_a_snapshot_that_cannot_be_read_is_named_and_the_one_before_it_is_taken(nats_url: str) -> None:
    async def work(fabric: Fabric) -> None:
        logs = fabric.logs
        place = await fabric.publish(logs.table(9), b"\xff\xff\xff\xff\xff\xff\xff\x7f")
        with pytest.raises(UnreadableError, match=f"message {place} of log {logs.tables.name}"):
            await load_snapshot(fabric, 9)
        await fabric.publish(logs.head, b"garbage")
        assert await head_revision(fabric) == 3
        assert {each.subject for each in fabric.quarantine.messages} == {logs.head, logs.table(9)}

    published(nats_url, work)


def test_garbage_in_the_place_of_a_coming_revision_is_replaced_by_it(nats_url: str) -> None:
    async def work(fabric: Fabric) -> None:
        logs = fabric.logs
        await fabric.publish(logs.table(4), b"garbage")
        await fabric.publish(logs.table_part(4, 1), b"garbage")
        await publish_snapshot(fabric, Snapshot(4, Deployment({}, {}, options={"a": "x" * 200})), most=20)
        found = await load_snapshot(fabric, 4)
        assert found is not None
        assert found.deployment.options == {"a": "x" * 200}
        assert await head_revision(fabric) == 4
        assert [each.subject for each in fabric.quarantine.messages] == [logs.table(4)]

    published(nats_url, work)


def changed(revision: int, others: int = 300) -> Snapshot:
    """A revision of many subscriptions that differs from others by one of them."""
    wanted = {f"n{k * 7919 % 10_007:05}": f"x > {k * k * 7919}" for k in range(others)} | {"z": f"x > {revision}"}
    found = {name: Subscription(name, "s", "lab", where) for name, where in sorted(wanted.items())}
    ids = {name: k for k, name in enumerate(found)}
    stream = Stream("s", Schema.of({"x": "int"}), Source("generator"), "lab")
    deployment = Deployment({"s": stream}, {"lab": Site("lab")}, subscriptions=found)
    return Snapshot(revision, deployment, None, ids, ids)


def test_revisions_are_published_as_changes_and_read_alike(nats_url: str) -> None:
    async def work(fabric: Fabric) -> None:
        logs, writer = fabric.logs, SnapshotWriter()
        made = [changed(revision) for revision in range(10, 20)]
        for each in made:
            await publish_snapshot(fabric, each, writer=writer)
        stored = {each.revision: await fabric.last(logs.tables, logs.table(each.revision)) for each in made}
        bases = {revision: base_revision(found.data) for revision, found in stored.items() if found is not None}
        assert bases == {10: None} | {revision: revision - 1 for revision in range(11, 20)}
        for each in reversed(made):
            async with await Fabric.connect(nats_url, logs) as reader:  # which has read nothing
                assert await load_snapshot(reader, each.revision) == each
        assert [await load_snapshot(fabric, each.revision) for each in made] == made

        # After a restore another revision has the number of one that was read before.
        other = [
            replace(changed(each.revision, 250), identity=Identity(mark=f"again-{each.revision}")) for each in made
        ]
        again = SnapshotWriter()
        await fabric.purge(logs.tables, logs.any_table, 1 << 62)
        for each in other:
            await publish_snapshot(fabric, each, writer=again)
        fabric.revisions.keep(made[-2])
        assert await load_snapshot(fabric, 19) == other[-1]
        await fabric.purge(logs.tables, logs.table(18), 1 << 62)
        await publish_snapshot(fabric, made[-2])
        async with await Fabric.connect(nats_url, logs) as reader:
            with pytest.raises(UnreadableError, match=r"version 18 is another one than it is a change of"):
                await load_snapshot(reader, 19)

        # What a change stands on is gone, or is something else: that is named, and the newest that reads is taken.
        await fabric.purge(logs.tables, logs.table(15), 1 << 62)
        async with await Fabric.connect(nats_url, logs) as reader:
            with pytest.raises(UnreadableError, match=r"tables\.16.*version 15, which it is a change of, is gone"):
                await load_snapshot(reader, 17)
            assert await head_revision(reader) == 18
            assert await newest_readable(reader) == 18
        await fabric.publish(logs.table(15), b"garbage")
        async with await Fabric.connect(nats_url, logs) as reader:
            with pytest.raises(UnreadableError, match=r"tables\.15"):
                await load_snapshot(reader, 17)
            await publish_snapshot(reader, other[5])  # whole, from the catalog, in its place
            assert await load_snapshot(reader, 17) == other[7]

    published(nats_url, work)
