"""Versions of the catalog as relays and readers get them, however many there have been."""

from __future__ import annotations

import asyncio

import pytest

from headgate.catalog import Snapshot
from headgate.fabric import Fabric, Logs
from headgate.model import Deployment, Schema, Site, Source, Stream
from headgate.relay import tables
from headgate.relay.tables import Tables, publish_snapshot

pytestmark = pytest.mark.nats
VERSIONS = tables._KEPT + 8


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
            assert sum(found.known(version) is not None for version in range(1, VERSIONS + 1)) == tables._KEPT

    asyncio.run(work())
