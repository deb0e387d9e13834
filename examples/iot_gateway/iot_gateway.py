"""A gateway on a line that comes and goes: readings wait under a policy, and what is given up is declared to everybody.

headgate up headgate.yaml                 # in one terminal
python iot_gateway.py                     # in another one, in the same directory

Sensors that speak MQTT reach it through whatever listens to them: `gateway` takes any iterator of readings. To publish
into a deployment on another machine use `Client.connect("nats://...")`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from headgate.client import Client

# A tenth of a day of readings may wait. Then changes of less than half a degree go first, then all but the newest.
POLICY = {"key": "sensor", "attribute": "temp", "levels": [{"delta": 0.5}, {"conflate": "sensor"}], "digest": ["max"]}


async def sensors(count: int = 5, pause_s: float = 1.0) -> AsyncIterator[list[dict[str, Any]]]:
    """Made readings, one of each sensor at a time."""
    while True:
        now = datetime.now(UTC)
        yield [
            {"sensor": f"s{number}", "temp": 40 + random.gauss(0, 8), "battery": 80.0, "at": now}
            for number in range(count)
        ]
        await asyncio.sleep(pause_s)


async def gateway(
    client: Client,
    readings: AsyncIterator[list[dict[str, Any]]],
    *,
    waiting: int = 10_000,
    tell: Callable[[str], None] = print,
) -> Any:
    """Publish readings as they come, whether or not the server can be reached just now; the report at the end."""

    def lost(counts: Mapping[str, int], digest: Mapping[str, Any]) -> None:
        tell(f"given up here: {dict(counts)}, hottest of them {digest.get('max(temp)')}")

    sender = await client.sender("readings", POLICY, max_rows=waiting, on_digest=lost)
    async with sender:
        async for rows in readings:
            sender.publish(rows)
    return sender.report()


async def main() -> None:
    async with await Client.connect() as client:
        print(await gateway(client, sensors()))


if __name__ == "__main__":
    asyncio.run(main())
