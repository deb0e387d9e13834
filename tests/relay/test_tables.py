"""Versions of the catalog as relays and readers get them, however many there have been."""

from __future__ import annotations

import asyncio

import pytest

from headgate.fabric import Fabric, SyncFabric
from headgate.model import Deployment, Schema, Site, Source, Stream, Subscription
from headgate.pipeline.states import read_snapshot
from headgate.relay import tables
from headgate.relay.tables import Tables, publish_snapshot
from headgate.wire.logs import Logs
from headgate.wire.snapshot import Snapshot

pytestmark = pytest.mark.nats
VERSIONS = tables.KEPT + 8


def test_an_old_version_is_found_after_many_newer_ones(nats_url: str) -> None:
    stream = Stream("s", Schema.of({"x": "int"}), Source("generator"), "lab")
    deployment = Deployment({"s": stream}, {"lab": Site("lab")})

    async def work() -> None:
        async with await Fabric.connect(nats_url, Logs("versions")) as fabric:
            for log in (fabric.logs.state, fabric.logs.tables):
                await fabric.ensure(log)
            for version in range(1, VERSIONS + 1):
                await publish_snapshot(fabric, Snapshot(version, deployment, None, {}, {}))
            found = Tables(fabric)
            for version in [*range(VERSIONS, 0, -1), 1, VERSIONS, 2]:
                async with asyncio.timeout(10.0):
                    assert (await found.snapshot(version)).revision == version
                    routes = await found.routes(version, "lab", "s")
                assert routes is None or routes.version == version
            assert found.known(1) is not None
            assert found.known(VERSIONS) is not None
            assert sum(found.known(version) is not None for version in range(1, VERSIONS + 1)) == tables.KEPT

    asyncio.run(work())


def test_a_version_larger_than_a_message_is_published_in_parts_once(nats_url: str) -> None:
    stream = Stream("s", Schema.of({"x": "int"}), Source("generator"), "lab")
    names = [f"n{k * k:x}" for k in range(300)]
    wanted = {name: Subscription(name, "s", "lab", f"x > {k * 7919}") for k, name in enumerate(names)}
    ids = {name: k for k, name in enumerate(names)}
    snapshot = Snapshot(5, Deployment({"s": stream}, {"lab": Site("lab")}, subscriptions=wanted), None, ids, ids)

    async def work() -> None:
        async with await Fabric.connect(nats_url, Logs("parts")) as fabric:
            for log in (fabric.logs.state, fabric.logs.tables):
                await fabric.ensure(log)
            # As if an earlier try had ended after the first part.
            await fabric.publish(fabric.logs.table_part(5, 1), snapshot.to_bytes()[:500])
            for _ in range(2):
                await publish_snapshot(fabric, snapshot, most=500)
            info = await fabric.info(fabric.logs.tables)
            assert info is not None
            assert info.state.messages == 1 + -(-len(snapshot.to_bytes()) // 500) > 3
            assert await Tables(fabric).snapshot(5) == snapshot

    asyncio.run(work())
    with SyncFabric(nats_url, Logs("parts")) as fabric:
        assert read_snapshot(fabric, 5) == snapshot
