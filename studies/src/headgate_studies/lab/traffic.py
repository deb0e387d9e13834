"""Rows and readers in a laboratory: programs that run on its hosts.

`python -m headgate_studies.lab.traffic feed STATE STREAM ROWS EVERY_S BATCHES` commits rows at home, as the Spark job
would; `... read STATE CREDENTIALS NAME...` reads subscriptions at the site of a host, each row acknowledged.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from headgate.client import Client
from headgate.fabric.server import running_url
from headgate.pipeline.sources import generate
from headgate.pipeline.worker import Address
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits


def feed(state: Path, stream: str, rows: int, every_s: float, batches: int) -> None:
    """Commit batches of made rows, one after the other."""
    url = running_url(state)
    assert url is not None
    with DirectCommits(Address(url, Logs()), "lab") as direct:
        began = time.monotonic()
        for number in range(batches):
            time.sleep(max(began + number * every_s - time.monotonic(), 0.0))
            direct.commit(stream, generate("fleet", 3, number * rows, (number + 1) * rows), number)


async def read(state: Path, credentials: str, names: list[str]) -> None:
    """Read subscriptions until this program is ended."""
    async with (
        await Client.connect(state_dir=state, user_credentials=credentials) as client,
        asyncio.TaskGroup() as all_,
    ):
        for name in names:
            all_.create_task(_read(client, name))


async def _read(client: Client, name: str) -> None:
    inbox = await client.subscribe(name)
    async for _ in inbox:
        inbox.done()


if __name__ == "__main__":
    verb, place, *rest = sys.argv[1:]
    if verb == "feed":
        feed(Path(place), rest[0], int(rest[1]), float(rest[2]), int(rest[3]))
    else:
        asyncio.run(read(Path(place), rest[0], rest[1:]))
