"""The rows of `headgate bench declared` and what is seen of their link: programs on the upper host, run by `declared`.

`... feed STATE BYTES_PER_S SECONDS` commits rows of a kilobyte that do not compress, four times a second;
`... watch STATE FILE` writes a line of JSON four times a second: what the relays report of the link, and what the
subscription has had by its own count.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from headgate.fabric import Fabric
from headgate.fabric.server import running_url
from headgate.pipeline.worker import Address
from headgate.protocol.reports import ArrivalReport, RelayReport
from headgate.service.books import read_tallies
from headgate.service.reports import read_reports
from headgate.wire.logs import Logs
from headgate_studies.bench.links_load import ROW_BYTES, blob_rows
from headgate_studies.direct import DirectCommits

EVERY_S: Final = 0.25


def feed(state: Path, rate: float, seconds: float) -> None:
    """Commit rows at a rate."""
    url = running_url(state)
    assert url is not None
    random, rows = np.random.default_rng(1), max(int(rate * EVERY_S / ROW_BYTES), 1)
    with DirectCommits(Address(url, Logs()), "bench") as direct:
        began = time.monotonic()
        for batch in range(int(seconds / EVERY_S)):
            time.sleep(max(began + batch * EVERY_S - time.monotonic(), 0.0))
            direct.commit("blobs", blob_rows(random, rows), batch)


async def watch(state: Path, file: Path) -> None:
    """Write down what is known, until this program is ended."""
    url = running_url(state)
    assert url is not None
    async with await Fabric.connect(url, Logs()) as fabric:
        with file.open("w", encoding="utf-8") as out:
            while True:
                print(json.dumps(await _look(fabric)), file=out, flush=True)
                await asyncio.sleep(EVERY_S)


async def _look(fabric: Fabric) -> dict[str, Any]:
    relays = await read_reports(fabric, RelayReport)
    leaf, root = relays.get("leaf"), relays.get("root")
    seen = leaf.taken.get("root", ArrivalReport()) if leaf else ArrivalReport()
    found: dict[str, Any] = {
        "time_s": time.monotonic(),
        "ready": leaf is not None and root is not None,
        "sent": sum(root.link_bytes.values()) if root else 0,
        "bytes": seen.bytes,
        "measured": seen.rate_bytes_per_s,
        "busy": seen.busy,
        "waits_s": seen.queue_s,
        "bound": root.bounds.get("leaf") if root else None,
        "queued": sum(each.rows for each in root.outputs.values()) if root else 0,
        "delivered": 0,
        "reduced": 0,
        "delay_ms": 0.0,
        "count": 0,
    }
    for tally in (await read_tallies(fabric)).values():
        found["delivered"] += tally.delivered
        found["reduced"] += sum(tally.reduced.values())
        found["delay_ms"] += tally.commit_delay.total_ms
        found["count"] += tally.commit_delay.count
    return found


if __name__ == "__main__":
    verb, place, *rest = sys.argv[1:]
    if verb == "feed":
        feed(Path(place), float(rest[0]), float(rest[1]))
    else:
        asyncio.run(watch(Path(place), Path(rest[0])))
