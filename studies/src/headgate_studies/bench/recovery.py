"""How long a stream stands still when its Spark driver is killed, and where that time goes.

A deployment of one stream runs until rows flow; then the driver is killed with signal 9. Measured is the time from the
kill to the first manifest of the new driver, and within it the stages that the new driver reports: its imports, Java
and the Spark session, the Python workers, the planned queries, the first commit. Figures depend on what else runs on
the machine, so the load is given beside them, and the CPU seconds that all processes of the new driver took until then.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from headgate.catalog import parse_deployment
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate.protocol.reports import JobReport
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings
from headgate.wire.manifest import decode_manifest

_DEPLOYMENT: Final = """
streams:
  fleet:
    root: root
    source: {format: generator, kind: fleet, rate: 200}
    key: vehicle
    event_time: at
sites: {root: {}}
subscriptions:
  all: {stream: fleet, site: root}
"""


def run(kills: int = 3) -> dict[str, Any]:
    """Seconds from each kill to the next commit, and the stages of each start."""
    with tempfile.TemporaryDirectory() as place:
        return asyncio.run(_measure(Path(place), kills))


async def _measure(directory: Path, kills: int) -> dict[str, Any]:
    deployment = parse_deployment(_DEPLOYMENT, "recovery.yaml", GENERATOR_SCHEMAS)
    recoveries: list[dict[str, Any]] = []
    async with open_runtime(Settings(state_dir=directory), deployment) as runtime:
        await runtime.wait_ready()
        for _ in range(kills):
            recoveries.append(await _kill(runtime))
            print(json.dumps(recoveries[-1]), flush=True)
    seconds = [each["seconds"] for each in recoveries]
    return {
        "recovery_s": statistics.median(seconds),
        "recovery_cpu_s": statistics.median(each["cpu_s"] for each in recoveries),
        "all_s": seconds,
        "recoveries": recoveries,
    }


async def _kill(runtime: Runtime) -> dict[str, Any]:
    assert runtime.job is not None
    victim = runtime.job.pid
    assert victim is not None
    load = os.getloadavg()[0]
    before = await _last_batch(runtime)
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    while await _last_batch(runtime) <= before:  # noqa: ASYNC110 - a log is polled
        await asyncio.sleep(0.05)
    seconds = time.monotonic() - began
    cpu_s = session_cpu_s(runtime.job.pid or 0)
    await runtime.wait_ready()
    stored = await runtime.fabric.last(runtime.fabric.logs.state, runtime.fabric.logs.stats("job", "_"))
    stages = (JobReport.decode(stored.data).stages or {}) if stored else {}
    return {
        "seconds": round(seconds, 2),
        "cpu_s": round(cpu_s, 1),
        "load_before": round(load, 1),
        "stages_s": stages,
    }


def session_cpu_s(leader: int) -> float:
    """The CPU seconds of all living processes of a session: the driver, its Java and its Python workers."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == leader:  # the session; times of children that have ended are fields 13 and 14
                ticks += sum(int(each) for each in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


async def _last_batch(runtime: Runtime) -> int:
    logs = runtime.fabric.logs
    stored = await runtime.fabric.last(logs.root("fleet"), logs.commit("fleet"))
    return decode_manifest(stored.data).batch if stored else -1
