"""The newest revision and its snapshot, when what announces them is garbage."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest

from headgate.fabric import Fabric
from headgate.model import Deployment
from headgate.protocol.published import head_revision, load_snapshot
from headgate.relay.tables import Tables, publish_snapshot
from headgate.wire.logs import Logs
from headgate.wire.snapshot import Snapshot
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
