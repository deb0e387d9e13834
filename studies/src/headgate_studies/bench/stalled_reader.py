"""A subscriber in a process of its own, which `bench stalled` stops and lets go on: counts what it gets and is told.

Run as ``python -m headgate_studies.bench.stalled_reader URL NAMESPACE SUBSCRIPTION``. It reads through a local buffer,
ends on SIGTERM once everything that it has is dealt with, and prints what it counted as one JSON object.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import asdict, dataclass
from typing import Final

from headgate.client import Client, Delivery, LocalBuffer

POLICY: Final = {"levels": [{"every": 2}, {"random": "needed"}], "digest": [{"max": "speed"}, {"min": "speed"}]}
_WORK_S: Final = 0.02
_LOOK_S: Final = 0.1


@dataclass
class ReaderCounts:
    """Rows that came, rows that were given up on the way and as digests say, and the same for the local buffer."""

    came: int = 0
    given_up: int = 0
    digested: int = 0
    without_digest: int = 0
    used: int = 0
    local: int = 0
    local_digested: int = 0


async def _counted(inbox: AsyncIterable[Delivery], counts: ReaderCounts) -> AsyncIterator[Delivery]:
    async for delivery in inbox:
        lost = sum(delivery.given_up.values())
        counts.came += len(delivery)
        counts.given_up += lost
        counts.digested += delivery.digest.get("count", 0)
        counts.without_digest += bool(lost) and delivery.digest.get("count", 0) != lost
        yield delivery


async def _use(buffer: LocalBuffer, counts: ReaderCounts) -> None:
    async for batch in buffer:
        await asyncio.sleep(_WORK_S)
        counts.used += len(batch)
        counts.local += sum(batch.local.values())
        counts.local_digested += batch.digest.get("count", 0)


async def _read(url: str, namespace: str, name: str) -> ReaderCounts:
    counts = ReaderCounts()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with await Client.connect(url, namespace=namespace) as client:
        buffer = LocalBuffer(_counted(await client.subscribe(name), counts), POLICY, max_rows=2000, batch_rows=100)
        using = asyncio.create_task(_use(buffer, counts))
        print("ready", flush=True)
        ending = asyncio.create_task(ended.wait())
        await asyncio.wait([using, ending], return_when=asyncio.FIRST_COMPLETED)
        while not using.done() and counts.used + counts.local < counts.came:  # noqa: ASYNC110 - the buffer is polled
            await asyncio.sleep(_LOOK_S)
        for task in (using, ending):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    return counts


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(_read(*sys.argv[1:4])))), flush=True)
