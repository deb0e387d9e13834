"""What a process takes of its machine, reported by itself: processor time, memory, how late its event loop runs."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from pathlib import Path
from typing import Final

from headgate.diagnostics import FABRIC, noted
from headgate.fabric.client import Fabric
from headgate.protocol.port import FabricError
from headgate.protocol.reports import ProcessReport

REPORT_S: Final = 5.0
_TICK_S: Final = 0.5
_STATUS: Final = Path("/proc/self/statm")


def read_vitals(process: str, late_s: float = 0.0) -> ProcessReport:
    """This process now, under a name."""
    times = os.times()
    memory = 0
    with noted(FABRIC, "the memory of this process is not known", OSError, ValueError, IndexError):
        memory = int(_STATUS.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return ProcessReport(
        process=process,
        pid=os.getpid(),
        time_ms=int(time.time() * 1000),
        cpu_s=times.user + times.system,
        memory_bytes=memory,
        late_s=late_s,
    )


def freeze_startup() -> None:
    """Let the collector of garbage pass over all that there is once a process has started, for good.

    Modules, schemas and kernels are a million objects that nobody lets go. A full collection goes through all of them,
    which stops the whole process for 0.1 to 0.3 s, and a flood of requests brings about one after the other.
    """
    gc.collect()
    gc.freeze()


async def keep_vitals(fabric: Fabric, process: str) -> None:
    """Report until cancelled, with the longest that the event loop was late since the last time."""
    late_s, reported_s = 0.0, 0.0
    while True:
        began_s = time.monotonic()
        await asyncio.sleep(_TICK_S)
        now_s = time.monotonic()
        late_s = max(late_s, now_s - began_s - _TICK_S)
        if now_s - reported_s >= REPORT_S:
            with noted(FABRIC, "what this process takes is reported later", FabricError):
                await fabric.publish(fabric.logs.stats("process", process), read_vitals(process, late_s).encode())
                late_s, reported_s = 0.0, now_s
