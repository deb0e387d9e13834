"""Eight relays under a steady load, in a process of their own: what they cost, and how long rows take through them.

Run as a file, so that the sources of another version can be put in front of it (`PYTHONPATH`): it uses nothing but what
both versions have. The last line is one JSON object.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.fabric import Fabric
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.pipeline.worker import Address
from headgate.relay.node import RelayNode
from headgate.service.replanning import Rules
from headgate.service.runtime import open_runtime

_EVERY_S: Final = 0.1
_START_S: Final = 4.0
_IDLE_S: Final = 10.0
_WAIT_S: Final = 120.0
PARENTS: Final = {"a": "root", "b": "root", "c": "a", "d": "a", "e": "b", "f": "b", "g": "c"}
WANTS: Final = {"all": "speed >= 0", "fast": "speed > 60", "even": "vehicle rlike '[02468]$'"}


def _first(names: list[str], what: str) -> Any:
    """What another version may have elsewhere."""
    for name in names:
        try:
            return getattr(importlib.import_module(name), what)
        except ImportError:
            continue
    raise ImportError(f"{what} is in none of {names}")


Settings = _first(["headgate.service.settings", "headgate.service.runtime"], "Settings")
Logs = _first(["headgate.wire.logs", "headgate.fabric"], "Logs")
DirectCommits = _first(["headgate_studies.direct", "headgate.pipeline.direct"], "DirectCommits")


def _deployment() -> str:
    sites = ["root", *PARENTS]
    wants = "".join(
        f"  {name}-{site}: {{stream: fleet, site: {site}, where: {json.dumps(where)}}}\n"
        for site in sites
        for name, where in WANTS.items()
    )
    return f"""
streams:
  fleet:
    root: root
    source: {{format: generator, kind: fleet, seed: 7, rate: 1000, limit: 1}}
    key: vehicle
    event_time: at
sites: {{{", ".join(f"{site}: {{}}" for site in sites)}}}
plan: {{fleet: {json.dumps(PARENTS)}}}
subscriptions:
{wants}
"""


async def _relays(url: str) -> None:
    """The relays, until they are told to stop."""
    async with await Fabric.connect(url, Logs()) as fabric:
        work = [asyncio.create_task(RelayNode(fabric, site).run()) for site in ["root", *PARENTS]]
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)


def _cpu_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _messages(url: str) -> int:
    """Messages that relays have put into site logs and inboxes."""
    async with await Fabric.connect(url, Logs()) as fabric:
        infos = await fabric._js.streams_info()  # noqa: SLF001 # both versions have it
    return sum(info.state.last_seq for info in infos if "_SITE_" in info.config.name or "_INBOX_" in info.config.name)


class _Readers:
    """Readers of every subscription: when they had which rows."""

    def __init__(self) -> None:
        self.got: list[tuple[int, int, float]] = []
        self.rows = 0

    async def read(self, client: Client, name: str) -> None:
        async for delivery in await client.subscribe(name):
            if len(delivery.seqs):
                self.got.append((int(delivery.seqs[-1]), len(delivery.seqs), time.time()))
                self.rows += len(delivery.seqs)


def _feed(url: str, rate: int, seconds: float, commits: list[tuple[int, float]]) -> None:
    """Commit rows at a steady rate, and note when each commit was in."""
    rows = int(rate * _EVERY_S)
    with DirectCommits(Address(url, Logs()), "bench") as direct:
        began = time.monotonic()
        for batch in range(int(seconds / _EVERY_S)):
            made = direct.commit("fleet", generate("fleet", 7, batch * rows, (batch + 1) * rows, rate=rate), batch)
            commits.append((made.upto, time.time()))
            time.sleep(max(0.0, began + (batch + 1) * _EVERY_S - time.monotonic()))


async def _run(rate: int, seconds: float) -> dict[str, Any]:
    deployment = parse_deployment(_deployment(), "relay.yaml", GENERATOR_SCHEMAS)
    readers, commits = _Readers(), list[tuple[int, float]]()
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(Path(directory), job=False, relays=False, replan=Rules(every_s=math.inf))
        async with open_runtime(settings, deployment) as runtime:
            assert runtime.server is not None
            url = runtime.server.url
            relays = subprocess.Popen([sys.executable, __file__, "relays", url])  # noqa: ASYNC220 - it returns at once
            try:
                async with await Client.connect(url) as client, asyncio.TaskGroup() as group:
                    names = list(deployment.subscriptions)
                    tasks = [group.create_task(readers.read(client, name)) for name in names]
                    await asyncio.sleep(_START_S)
                    idle = _cpu_s(relays.pid)
                    await asyncio.sleep(_IDLE_S)
                    start = _cpu_s(relays.pid)
                    feeding = threading.Thread(target=_feed, args=(url, rate, seconds, commits))
                    began = time.monotonic()
                    feeding.start()
                    await _drained(runtime, feeding)
                    used, took = _cpu_s(relays.pid) - start, time.monotonic() - began
                    messages = await _messages(url)
                    for task in tasks:
                        task.cancel()
            finally:
                relays.send_signal(signal.SIGTERM)
                relays.wait(30)
    return _figures(readers, commits, used, took, messages, (start - idle) / _IDLE_S)


async def _drained(runtime: Any, feeding: threading.Thread) -> None:
    async with asyncio.timeout(_WAIT_S):
        await asyncio.to_thread(feeding.join)
        while True:
            status = await runtime.status()
            lines = status["subscriptions"].values()
            if all(line["matched"] and line["in_flight"] == 0 and line["difference"] == 0 for line in lines):
                return
            await asyncio.sleep(0.2)


def _figures(
    readers: _Readers, commits: list[tuple[int, float]], used_s: float, took_s: float, messages: int, idle: float
) -> dict[str, Any]:
    ends, times = (np.array(column) for column in zip(*commits, strict=True))
    last, rows, when = (np.array(column) for column in zip(*readers.got, strict=True))
    delays = np.repeat(when - times[np.searchsorted(ends, last)], rows)
    return {
        "rows": readers.rows,
        "rows_per_cpu_s": round(readers.rows / used_s),
        "cpu_s": round(used_s, 2),
        "messages_per_cpu_s": round(messages / used_s),
        "messages_per_s": round(messages / took_s),
        "p50_ms": round(float(np.percentile(delays, 50)) * 1e3, 1),
        "p99_ms": round(float(np.percentile(delays, 99)) * 1e3, 1),
        "idle_cpu": round(idle, 4),
    }


if __name__ == "__main__":
    if sys.argv[1] == "relays":
        asyncio.run(_relays(sys.argv[2]))
    else:
        print(json.dumps(asyncio.run(_run(int(sys.argv[1]), float(sys.argv[2])))))
