"""Many readers of server-sent events, one of which stops reading: what that costs the process that serves them.

``python -m headgate_studies.testing.http_frozen --readers 100 --seconds 600`` starts a deployment without a job, with
its API in a process of its own as `headgate up` has it, and commits rows all the while. Every reader but the first
reads what comes. It prints the memory of that process before the first reader froze and at the end, and fails when a
row is missing, or when that process has grown by more than 64 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from headgate.catalog import parse_deployment
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.worker import Address
from headgate.service.access import read_token
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.logs import Logs
from headgate_studies.direct import DirectCommits

_EVERY_S: Final = 1.0
_SETTLE_S: Final = 60.0
MOST_MB: Final = 64.0
"""So much more memory a frozen reader may cost."""


@dataclass
class FrozenReader:
    """One connection."""

    name: str
    rows: int = 0
    last: int = 0


async def read(reader: FrozenReader, host: str, port: int, token: str, freeze: asyncio.Event | None) -> None:
    """Read events until cancelled; with `freeze` set, hold the connection open and read no more."""
    stream, writer = await asyncio.open_connection(host, port, limit=1 << 24)
    path = f"/api/subscriptions/{reader.name}/events"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    try:
        while freeze is None or not freeze.is_set():
            line = await stream.readline()
            if not line:
                raise RuntimeError(f"the connection of {reader.name} has ended")
            if line.startswith(b"data: {"):
                rows = json.loads(line[6:])["rows"]
                if rows[0]["_seq"] != reader.last + 1:
                    raise RuntimeError(f"{reader.name} lacks rows after {reader.last}")
                reader.rows, reader.last = reader.rows + len(rows), rows[-1]["_seq"]
        await asyncio.Event().wait()
    finally:
        writer.close()


def memory_mb(pid: int) -> float:
    """The resident memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


async def measure(count: int, seconds: float, rate: int, directory: Path) -> dict[str, float]:
    """Run it; memory in MB."""
    document = {
        "sites": {"root": {}, "edge": {}},
        "streams": {"fleet": {"root": "root", "source": {"format": "generator", "kind": "fleet", "limit": 1}}},
        "subscriptions": {f"r{number:03}": {"stream": "fleet", "site": "edge"} for number in range(count)},
    }
    deployment = parse_deployment(yaml.safe_dump(document), "frozen.yaml", GENERATOR_SCHEMAS)
    settings = Settings(state_dir=directory, job=False, http=True, http_address="127.0.0.1:0")
    async with open_runtime(settings, deployment) as runtime:
        return await _watch(runtime, count, seconds, rate)


async def _watch(runtime: Runtime, count: int, seconds: float, rate: int) -> dict[str, float]:
    assert runtime.face is not None
    host, _, port = runtime.face.address.removeprefix("http://").rpartition(":")
    token, freeze = read_token(runtime.settings.state_dir), asyncio.Event()
    readers = [FrozenReader(f"r{number:03}") for number in range(count)]
    tasks = [
        asyncio.create_task(read(each, host, int(port), token, freeze if number == 0 else None))
        for number, each in enumerate(readers)
    ]
    frozen, others = readers[0], readers[1:]
    sent, batch, half = 0, 0, seconds / 2
    began_s, before = time.monotonic(), 0.0
    try:
        with DirectCommits(Address(runtime.url, Logs())) as direct:
            while time.monotonic() - began_s < seconds:
                await asyncio.to_thread(direct.commit, "fleet", generate("fleet", 3, sent, sent + rate), batch)
                sent, batch = sent + rate, batch + 1
                warm = frozen.last > 0 and time.monotonic() - began_s > min(half, 30.0)
                if not freeze.is_set() and warm and runtime.face.pid:
                    before = memory_mb(runtime.face.pid)
                    freeze.set()
                await asyncio.sleep(_EVERY_S)
        deadline_s = time.monotonic() + _SETTLE_S
        while min(each.last for each in others) < sent and time.monotonic() < deadline_s:  # noqa: ASYNC110 - it polls
            await asyncio.sleep(_EVERY_S)
        for task in tasks:
            if task.done():
                await task
        assert runtime.face.pid is not None
        return {
            "rows": sent,
            "frozen_read": frozen.last,
            "slowest_other_read": min(each.last for each in others),
            "before_mb": round(before, 1),
            "after_mb": round(memory_mb(runtime.face.pid), 1),
        }
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def more_mb(found: Mapping[str, float]) -> float:
    """By how much the process has grown since a reader froze."""
    return round(found["after_mb"] - found["before_mb"], 1)


def trouble(found: Mapping[str, float]) -> str:
    """What is wrong with a measurement, nothing where all is well.

    >>> well = {"rows": 9, "slowest_other_read": 9, "before_mb": 100.0, "after_mb": 164.0}
    >>> trouble(well)
    ''
    >>> trouble({**well, "after_mb": 164.1})
    'the process has 64.1 MB more, at most 64 MB are allowed'
    """
    if found["slowest_other_read"] < found["rows"]:
        return f"a reader has rows up to {found['slowest_other_read']:g} of {found['rows']:g}"
    if not found["before_mb"]:
        return "no reader froze: give it more --seconds"
    if more_mb(found) > MOST_MB:
        return f"the process has {more_mb(found):g} MB more, at most {MOST_MB:g} MB are allowed"
    return ""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=int, default=200, help="rows a second")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(measure(given.readers, given.seconds, given.rate, Path(directory)))
    print(json.dumps({**found, "more_mb": more_mb(found)}))
    if problem := trouble(found):
        raise SystemExit(problem)


if __name__ == "__main__":
    main()
