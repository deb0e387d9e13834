"""Ask for a coarser grid when rows are lost for a while, and for the full one again when all is well.

Run it beside `headgate demo`, or beside `headgate up` with a gridded stream:
python coarser_on_loss.py --work-ms 10
"""

from __future__ import annotations

import argparse
import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate.client import Client, LocalBuffer

POLICY = {"levels": [{"every": 2}, {"conflate": ["x", "y"]}], "digest": [{"max": "wind"}]}
FULL: dict[str, Any] = {"space": 1}
COARSE: dict[str, Any] = {"space": "1/16"}


@dataclass
class Switch:
    """Coarse after `window` batches that lost more than a fifth between them, full again after `calm` without loss."""

    window: int = 10
    calm: int = 30
    coarse: bool = False
    _recent: deque[tuple[int, int]] = field(default_factory=deque)
    _quiet: int = 0

    def decide(self, received: int, lost: int) -> bool:
        """Whether to ask for something else now."""
        self._recent.append((received, lost))
        if len(self._recent) > self.window:
            self._recent.popleft()
        self._quiet = 0 if lost else self._quiet + 1
        gone = sum(each[1] for each in self._recent)
        sustained = len(self._recent) == self.window and gone > 0.2 * sum(map(sum, self._recent))
        if self._quiet >= self.calm if self.coarse else sustained:
            self.coarse = not self.coarse
            self._recent.clear()
            self._quiet = 0
            return True
        return False


async def follow(
    client: Client,
    switch: Switch,
    *,
    name: str = "my-map",
    stream: str = "weather",
    site: str = "ship",
    max_rows: int = 2000,
    batch_rows: int = 500,
    work_s: float = 0.0,
    tell: Callable[[str], None] = print,
) -> None:
    """Read a gridded stream, `work_s` seconds for each row, and change the subscription as the switch decides."""

    def gap(after: int, upto: int) -> None:
        tell(f"gap: rows {after + 1} to {upto} did not come and are fetched again")

    def lost_on_the_way(given_up: Mapping[str, int], after: int, upto: int) -> None:
        tell(f"digest: the relays gave up {dict(given_up)} of rows {after + 1} to {upto}")

    def lost_here(counts: Mapping[str, int], digest: Mapping[str, Any]) -> None:
        tell(f"digest: given up here {dict(counts)}, strongest wind among them {digest.get('max(wind)')}")

    def level(before: int, after: int) -> None:
        tell(f"level: {before} -> {after}")

    wish = {"stream": stream, "site": site, "resolution": FULL}
    inbox = await client.subscribe(name, on_gap=gap, on_digest=lost_on_the_way, **wish)
    buffer = LocalBuffer(inbox, POLICY, max_rows=max_rows, batch_rows=batch_rows, on_digest=lost_here, on_level=level)
    async for batch in buffer:
        await asyncio.sleep(work_s * len(batch))
        lost = sum(batch.given_up.values()) + sum(batch.local.values())
        tell(f"{len(batch)} rows up to {batch.upto}, {lost} lost")
        if switch.decide(len(batch), lost):
            wish["resolution"] = COARSE if switch.coarse else FULL
            tell(f"asking for {'a sixteenth of the cells' if switch.coarse else 'every cell'}")
            await client.control("subscribe", name=name, subscription=wish, change=True)


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nats", help="the address of NATS; default: what runs in the state directory")
    options.add_argument("--state-dir", type=Path, default=Path(".headgate"))
    options.add_argument("--namespace", default="hg")
    options.add_argument("--site", default="ship")
    options.add_argument("--work-ms", type=float, default=2.0, help="how long the work on one row takes")
    options.add_argument("--buffer", type=int, default=2000, help="how many rows may wait")
    options.add_argument("--for", type=float, dest="seconds", help="stop after so many seconds")
    given = options.parse_args()
    async with await Client.connect(given.nats, state_dir=given.state_dir, namespace=given.namespace) as client:
        following = follow(
            client, Switch(), site=given.site, max_rows=given.buffer, batch_rows=100, work_s=given.work_ms / 1000
        )
        try:
            await asyncio.wait_for(following, given.seconds)
        except TimeoutError:
            print("done")


if __name__ == "__main__":
    asyncio.run(main())
