"""Alarms first: every alarm over a thin link, and trends as far as they fit, with a digest of the rest.

headgate up headgate.yaml                 # in one terminal
python hospital_alarms.py                 # in another one, in the same directory
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from headgate.client import Client


async def alarms(client: Client, rows: int | None = None, tell: Callable[[str], None] = print) -> int:
    """Tell every alarm; how many there were."""
    seen = 0
    inbox = await client.subscribe("alarms")
    async for delivery in inbox:
        for row in delivery.to_pylist():
            where = f"{row['patient']} in {row['ward']}"
            tell(f"{row['at']:%H:%M:%S} {where}: pulse {row['heart_rate']}, oxygen {row['spo2']}")
        seen += len(delivery)
        inbox.done()
        if rows is not None and seen >= rows:
            break
    return seen


async def trends(client: Client, upto: int | None = None, tell: Callable[[str], None] = print) -> Counter[str]:
    """Follow the trends up to a row of the stream; how many readings came and how many were given up, by reason."""
    counts: Counter[str] = Counter()
    inbox = await client.subscribe("trends")
    async for delivery in inbox:
        counts["came"] += len(delivery)
        counts.update(delivery.given_up)
        if delivery.given_up:
            digest: dict[str, Any] = dict(delivery.digest)
            low, high = digest.get("min(heart_rate)"), digest.get("max(heart_rate)")
            tell(f"{sum(delivery.given_up.values())} readings were given up: pulse from {low} to {high}")
        inbox.done()
        if upto is not None and delivery.upto >= upto:
            break
    return counts


async def main() -> None:
    async with await Client.connect() as client:
        await asyncio.gather(alarms(client), trends(client))


if __name__ == "__main__":
    asyncio.run(main())
