"""Ask for a coarser grid when rows are lost for a while, and for the full one again when all is well.

Run beside `headgate demo` or `headgate up`: python coarser_on_loss.py
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from headgate.client import Client, LocalBuffer

FINE = "true"
COARSE = "x % 2 = 0 and y % 2 = 0"


@dataclass
class Switch:
    """Coarse after ten deliveries that lost more than a fifth between them, fine again after thirty without loss."""

    coarse: bool = False
    recent: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=10))
    calm: int = 0

    def decide(self, received: int, lost: int) -> bool:
        """Whether to ask for something else now."""
        self.recent.append((received, lost))
        self.calm = 0 if lost else self.calm + 1
        total = sum(got + gone for got, gone in self.recent)
        sustained = len(self.recent) == 10 and sum(gone for _, gone in self.recent) > 0.2 * total
        if (sustained and not self.coarse) or (self.coarse and self.calm >= 30):
            self.coarse = not self.coarse
            self.recent.clear()
            self.calm = 0
            return True
        return False


async def main() -> None:
    switch = Switch()
    async with await Client.connect() as client:
        inbox = await client.subscribe("my-map", site="ship", stream="weather", where=FINE)
        async for batch in LocalBuffer(inbox, {"levels": [{"every": 2}]}, max_rows=2000):
            lost = sum(batch.given_up.values()) + sum(batch.local.values())
            print(f"{len(batch)} rows, {lost} lost, level {batch.level}")
            if switch.decide(len(batch), lost):
                where = COARSE if switch.coarse else FINE
                print("asking for", where)
                await client.control(
                    "subscribe",
                    name="my-map",
                    subscription={"site": "ship", "stream": "weather", "where": where},
                    change=True,
                )


if __name__ == "__main__":
    asyncio.run(main())
