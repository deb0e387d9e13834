"""The service and the rows of `headgate bench links`, in a process on the upper host; run as a file by `links`.

Rows of about a kilobyte that do not compress are committed faster than the link carries them, as long as less than some
seconds of the link wait. Four times a second it writes how far the lower relay has come to `passed.json`.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.fabric.server import Listening
from headgate.pipeline.worker import Address
from headgate.protocol.reports import RelayReport
from headgate.service.replanning import Rules
from headgate.service.reports import read_reports
from headgate.service.runtime import open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

_ROW_BYTES: Final = 1024
_AHEAD_S: Final = 6.0
_EVERY_S: Final = 0.25


def deployment_text(rate: float, delay_s: float) -> str:
    """Two sites and the link between them; the lower one has a subscription to every row."""
    return f"""
streams:
  blobs:
    root: root
    schema: {{name: string, blob: binary, at: timestamp}}
    source: {{format: nats}}
    key: name
    event_time: at
sites: {{root: {{}}, leaf: {{}}}}
links: {{pairs: [{{between: [root, leaf], delay: {delay_s * 1000:g} ms, capacity: {rate * 8:.0f} bit/s}}]}}
plan: {{blobs: {{leaf: root}}}}
subscriptions:
  all: {{stream: blobs, site: leaf, where: "true"}}
"""


class _Feed:
    """Commits rows while fewer than some seconds' worth wait; `passed` is how far the lower relay has come."""

    def __init__(self, url: str, rate: float) -> None:
        self.url = url
        self.rate = rate
        self.upto = 0
        self.passed = 0
        self.ended = False

    def run(self) -> None:
        """Commit until told to end."""
        random, rows = np.random.default_rng(1), max(int(self.rate * _EVERY_S / _ROW_BYTES), 1)
        with DirectCommits(Address(self.url, Logs()), "bench") as direct:
            batch = 0
            while not self.ended:
                if (self.upto - self.passed) * _ROW_BYTES > self.rate * _AHEAD_S:
                    time.sleep(0.02)
                    continue
                made = direct.commit("blobs", _rows(random, rows), batch)
                assert made is not None
                batch, self.upto = batch + 1, made.upto


def _rows(random: np.random.Generator, count: int) -> pa.RecordBatch:
    now = int(time.time() * 1e6)
    blobs = random.bytes(count * _ROW_BYTES)
    columns = {
        "name": pa.array([f"b{number}" for number in range(count)]),
        "blob": pa.array([blobs[at : at + _ROW_BYTES] for at in range(0, len(blobs), _ROW_BYTES)], pa.binary()),
        "at": pa.array([now] * count, pa.timestamp("us", "UTC")),
    }
    return pa.RecordBatch.from_pydict(columns)


async def _run(directory: Path, listening: Listening, rate: float, delay_s: float) -> None:
    deployment = parse_deployment(deployment_text(rate, delay_s), "links.yaml")
    settings = Settings(directory, job=False, relays=False, listening=listening, replan=Rules(every_s=math.inf))
    async with open_runtime(settings, deployment) as runtime:
        assert runtime.server is not None
        feed = _Feed(runtime.server.url, rate)
        (directory / "ready").touch()
        feeding = threading.Thread(target=feed.run)
        feeding.start()
        async with await Client.connect(runtime.server.url) as client:
            reading = asyncio.create_task(_read(client, feed))
            try:
                while feeding.is_alive():
                    await asyncio.sleep(_EVERY_S)
                    await _note(directory, runtime, feed)
            finally:
                reading.cancel()
                feed.ended = True
                await asyncio.to_thread(feeding.join)


async def _read(client: Client, feed: _Feed) -> None:
    """Read what the lower relay delivers."""
    async for delivery in await client.subscribe("all"):
        if len(delivery.seqs):
            feed.passed = int(delivery.seqs[-1])


async def _note(directory: Path, runtime: Any, feed: _Feed) -> None:
    """Write down how far the subscription of the lower site has come."""
    report = (await read_reports(runtime.fabric, RelayReport)).get("root")
    if report is None or not report.link_rows:
        return
    row_bytes = sum(report.link_bytes.values()) / max(sum(report.link_rows.values()), 1)
    noted = {
        "sent": float(sum(report.link_bytes.values())),
        "bytes": feed.passed * row_bytes,
        "waiting": (feed.upto - feed.passed) * row_bytes,
        "time_s": time.monotonic(),
    }
    part = directory / "passed.part"
    part.write_text(json.dumps(noted))
    part.replace(directory / "passed.json")


if __name__ == "__main__":
    place, host, port, certificate, key, given_rate, given_delay = sys.argv[1:]
    where = Listening(host, int(port), Path(certificate), Path(key))
    asyncio.run(_run(Path(place), where, float(given_rate), float(given_delay)))
