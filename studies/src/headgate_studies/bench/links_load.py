"""The service and the rows of `headgate bench links`, in a process on the upper host; run as a file by `links`.

Rows of about a kilobyte that do not compress are committed before the relays start, enough for the link to be busy for
the whole time. Then it only writes down four times a second what the lower relay has reported, to `passed.json`.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate.catalog import parse_deployment
from headgate.fabric.listening import Listening
from headgate.pipeline.worker import Address
from headgate.protocol.reports import RelayReport
from headgate.service.replanning import Rules
from headgate.service.reports import read_reports
from headgate.service.runtime import open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

ROW_BYTES: Final = 1024
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


def _commit(url: str, rate: float, seconds: float) -> None:
    """Commit as many rows as the link carries in some seconds."""
    random, rows = np.random.default_rng(1), max(int(rate * _EVERY_S / ROW_BYTES), 1)
    with DirectCommits(Address(url, Logs()), "bench") as direct:
        for batch in range(int(seconds / _EVERY_S)):
            direct.commit("blobs", blob_rows(random, rows), batch)


def blob_rows(random: np.random.Generator, count: int) -> pa.RecordBatch:
    """Rows of about a kilobyte that do not compress."""
    now = int(time.time() * 1e6)
    blobs = random.bytes(count * ROW_BYTES)
    columns = {
        "name": pa.array([f"b{number}" for number in range(count)]),
        "blob": pa.array([blobs[at : at + ROW_BYTES] for at in range(0, len(blobs), ROW_BYTES)], pa.binary()),
        "at": pa.array([now] * count, pa.timestamp("us", "UTC")),
    }
    return pa.RecordBatch.from_pydict(columns)


async def _run(directory: Path, listening: Listening, rate: float, delay_s: float, seconds: float) -> None:
    deployment = parse_deployment(deployment_text(rate, delay_s), "links.yaml")
    settings = Settings(directory, job=False, relays=False, listening=listening, replan=Rules(every_s=math.inf))
    async with open_runtime(settings, deployment) as runtime:
        assert runtime.server is not None
        await asyncio.to_thread(_commit, runtime.server.url, rate, seconds)
        (directory / "ready").touch()
        while True:
            await asyncio.sleep(_EVERY_S)
            await _note(directory, runtime)


async def _note(directory: Path, runtime: Any) -> None:
    """Write down how many bytes the lower relay has taken in, as it last reported."""
    report = (await read_reports(runtime.fabric, RelayReport)).get("leaf")
    if report is None or "root" not in report.taken:
        return
    seen = report.taken["root"]
    noted = {"bytes": seen.bytes, "time_s": report.time_ms / 1000, "measured": seen.rate_bytes_per_s}
    part = directory / "passed.part"
    part.write_text(json.dumps(noted))
    part.replace(directory / "passed.json")


if __name__ == "__main__":
    place, host, port, certificate, key, *given = sys.argv[1:]
    figures = (float(each) for each in given)
    where = Listening(host, int(port), Path(certificate), Path(key))
    asyncio.run(_run(Path(place), where, *figures))
