"""A fence around a yard: only vehicles inside cross the link, and the fence can be moved while it runs.

headgate up headgate.yaml                 # in one terminal
python fleet_geofences.py                 # in another one, in the same directory
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from headgate.client import Client

QUIET = timedelta(seconds=10)  # who was not seen inside for so long, by its own clock, has left


class Fence:
    """Who is inside, by the rows that come: the filter lets only rows from inside through."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.inside: dict[str, datetime] = {}
        self._tell = tell

    def saw(self, vehicle: str, at: datetime) -> None:
        if vehicle not in self.inside:
            self._tell(f"{at:%H:%M:%S} {vehicle} enters")
        self.inside[vehicle] = at
        for gone in [name for name, last in self.inside.items() if at - last > QUIET]:
            self._tell(f"{at:%H:%M:%S} {gone} leaves")
            del self.inside[gone]


async def follow(client: Client, fence: Fence, rows: int | None = None) -> None:
    """Follow the yard, for so many rows or for ever."""
    seen = 0
    inbox = await client.subscribe("yard")
    async for delivery in inbox:
        for row in delivery.to_pylist():
            fence.saw(row["vehicle"], row["at"])
        seen += len(delivery)
        inbox.done()
        if rows is not None and seen >= rows:
            break


async def move(client: Client, lat: float, lon: float, radius_km: float) -> None:
    """Put the fence elsewhere; later rows are matched with it, and no other subscription is touched."""
    await client.set_context("yard", centre=[lat, lon], radius_km=radius_km)


async def main() -> None:
    async with await Client.connect() as client:
        await follow(client, Fence(print))


if __name__ == "__main__":
    asyncio.run(main())
