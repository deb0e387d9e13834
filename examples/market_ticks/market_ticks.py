"""A screen of prices that is slower than the market: it always shows the newest price of each symbol.

headgate up headgate.yaml                 # in one terminal
python market_ticks.py                    # in another one, in the same directory
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headgate.client import Client, LocalBuffer

# When more waits than the screen can draw, the newest tick of each symbol stays and the others are counted.
CONFLATE = {"levels": [{"conflate": "symbol"}], "digest": [{"max": "price"}, {"min": "price"}]}


async def screen(
    client: Client,
    *,
    draw_s: float = 0.01,
    waiting: int = 200,
    upto: int | None = None,
    tell: Callable[[str], None] = print,
) -> dict[str, float]:
    """Draw ticks, `draw_s` each, up to a row of the stream; the last price of each symbol."""
    prices: dict[str, float] = {}
    skipped = 0
    inbox = await client.subscribe("tape")
    async for batch in LocalBuffer(inbox, CONFLATE, max_rows=waiting, batch_rows=50):
        rows = batch.rows.to_pylist()
        await asyncio.sleep(draw_s * len(rows))
        prices.update((row["symbol"], row["price"]) for row in rows)
        skipped += sum(batch.local.values())
        tell(f"{len(prices)} symbols up to tick {batch.upto}, {skipped} ticks skipped by newer ones")
        if upto is not None and batch.upto >= upto:
            break
    return prices


async def main() -> None:
    async with await Client.connect() as client:
        await screen(client)


if __name__ == "__main__":
    asyncio.run(main())
