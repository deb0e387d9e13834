"""New items of feeds as they come, instead of asking every feed again and again.

headgate feeds feeds.txt spool            # in one terminal: asks the feeds
headgate up headgate.yaml                 # in another one
python feeds_reader.py storms             # in a third one, in the same directory
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from headgate.client import Client


async def read(client: Client, name: str, items: int | None = None, tell: Callable[[str], None] = print) -> None:
    """Tell the title and the link of every new item, up to so many."""
    seen = 0
    inbox = await client.subscribe(name)
    async for delivery in inbox:
        for row in delivery.to_pylist():
            tell(f"{row['title']} <{row['link']}>")
        seen += len(delivery)
        inbox.done()
        if items is not None and seen >= items:
            break


async def main() -> None:
    async with await Client.connect() as client:
        await read(client, sys.argv[1] if len(sys.argv) > 1 else "headlines")


if __name__ == "__main__":
    asyncio.run(main())
