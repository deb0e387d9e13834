"""Who sends more than it may by NATS is put out for a while, and let in again; nobody else notices."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.live import until
from tests.service.test_users import World, world

from headgate.client import Client
from headgate.fabric import FabricError
from headgate.service.publish_watch import LEAST_BYTES, SentByKey, counted

pytestmark = pytest.mark.nats


async def _can_connect(here: World, credentials: str) -> bool:
    try:
        await (await here.client(credentials)).close()
    except FabricError:
        return False
    return True


async def _users(here: World) -> dict[str, Any]:
    users = (await here.operator.control("user-list"))["users"]
    return {each["name"]: each["out_until_s"] for each in users}


async def _send(client: Client, size: int) -> None:
    await client.publish("notes", pa.table({"text": ["x" * size]}))


def test_a_flood_of_one_ends_its_connections_for_a_while(tmp_path: Path) -> None:
    """2 s of the rate are free, so what bob sends is."""

    async def run() -> None:
        async with world(tmp_path, limits={"publish": "20 kB/s"}) as here:
            ada, bob = [await here.credentials(name, publish=["notes"]) for name in ("ada", "bob")]
            async with await here.client(bob) as other, await here.client(ada) as sender:
                await _send(other, 100)
                await _send(sender, 400_000)

                async def out() -> bool:
                    return (await _users(here))["ada"] is not None

                await until(out)
                await until(lambda: _refused(here, ada))
                assert (await _users(here))["bob"] is None
                await _send(other, 100)
                assert other.fabric.connected
                # Another user is revoked meanwhile: who is out stays out, and the other is not let in again.
                eve = await here.credentials("eve", publish=["notes"])
                await here.operator.control("user-revoke", name="eve")
                assert not await _can_connect(here, ada)
                await until(lambda: _can_connect(here, ada))
                assert (await _users(here))["ada"] is None
                assert not await _can_connect(here, eve)
                async with await here.client(ada) as again:
                    await _send(again, 100)

    asyncio.run(run())


async def _refused(here: World, credentials: str) -> bool:
    return not await _can_connect(here, credentials)


def test_without_a_limit_nobody_is_counted(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            assert here.runtime.publishers is None
            async with await here.client(await here.credentials("ada", publish=["notes"])) as sender:
                await _send(sender, 900_000)
                assert await _users(here) == {"ada": None}

    asyncio.run(run())


def test_a_message_counts_for_more_than_its_bytes() -> None:
    """So that a million of empty ones is not nothing."""
    found = counted({"cid": 7, "authorized_user": "UKEY", "in_bytes": 10, "in_msgs": 3})
    assert found == SentByKey(7, "UKEY", 10 + 3 * LEAST_BYTES)
