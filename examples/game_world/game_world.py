"""A game world: each player gets what happens around it, and the area moves with the player.

headgate up headgate.yaml                 # in one terminal
python game_world.py ada europe           # in others, in the same directory: one per player
python game_world.py bob asia
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from headgate.client import Client

REACH = 30.0
AROUND_ME = "abs(x - $x) <= $reach and abs(y - $y) <= $reach and player <> $me"


async def enter(client: Client, player: str, site: str, x: float, y: float) -> Any:
    """Subscribe to what is around a player, newest position first when the link is too thin; the inbox."""
    return await client.subscribe(
        f"around-{player}",
        stream="world",
        site=site,
        where=AROUND_ME,
        context={"x": x, "y": y, "reach": REACH, "me": player},
        policy={"levels": [{"conflate": "player"}]},
    )


async def step(client: Client, player: str, x: float, y: float) -> None:
    """Say where a player is: to the others as a row, and to its own filter as its context."""
    await client.publish("world", [{"player": player, "x": x, "y": y, "health": 100, "at": datetime.now(UTC)}])
    await client.set_context(f"around-{player}", x=x, y=y)


async def watch(inbox: Any, rows: int | None = None, tell: Callable[[str], None] = print) -> list[dict[str, Any]]:
    """Tell who is near, up to so many rows."""
    seen: list[dict[str, Any]] = []
    async for delivery in inbox:
        for row in delivery.to_pylist():
            tell(f"{row['player']} is at {row['x']:.0f}, {row['y']:.0f}")
            seen.append(row)
        inbox.done()
        if rows is not None and len(seen) >= rows:
            break
    return seen


async def wander(client: Client, player: str) -> None:
    """Walk about."""
    x, y = random.uniform(0, 200), random.uniform(0, 200)
    while True:
        x, y = x + random.uniform(-5, 5), y + random.uniform(-5, 5)
        await step(client, player, x, y)
        await asyncio.sleep(1)


async def main() -> None:
    player, site = sys.argv[1], sys.argv[2]
    async with await Client.connect() as client:
        inbox = await enter(client, player, site, 100.0, 100.0)
        await asyncio.gather(watch(inbox), wander(client, player))


if __name__ == "__main__":
    asyncio.run(main())
