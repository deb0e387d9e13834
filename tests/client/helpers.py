"""What the client's tests do with a deployment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.live import Live, running

from headgate.cli.status_sheets import differences
from headgate.client import Client, Delivery
from headgate.client.delivery import closing
from headgate.pipeline.sources import generate


def rows(start: int, stop: int) -> pa.RecordBatch:
    return generate("fleet", 3, start, stop)


def live_test(
    directory: Path, nats_url: str, document: dict[str, Any], work: Callable[[Live], Awaitable[None]]
) -> None:
    """Run a test against a deployment without a job."""

    async def run() -> None:
        async with running(document, directory, nats_url) as live:
            await work(live)

    asyncio.run(run())


async def connect(live: Live) -> Client:
    return await Client.connect(live.address.url, namespace=live.address.logs.namespace)


async def read(client: Client, name: str, count: int, **options: Any) -> list[Delivery]:
    """Deliveries until so many rows have come; all of them done with."""
    found: list[Delivery] = []
    inbox = await client.subscribe(name, **options)
    async with asyncio.timeout(30), closing(inbox) as deliveries:
        async for delivery in deliveries:
            found.append(delivery)
            if sum(map(len, found)) >= count:
                inbox.done()
                break
    return found


def seqs(deliveries: list[Delivery]) -> list[int]:
    return [seq for each in deliveries for seq in each.seqs.tolist()]


async def no_difference(live: Live) -> bool:
    status = await live.runtime.status()
    assert differences(status) == []
    return all(each["in_flight"] == 0 for each in status["subscriptions"].values())
