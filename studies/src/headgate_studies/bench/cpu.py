"""The processor time of a whole run: this process and all that it started."""

from __future__ import annotations

import contextlib

import psutil


def run_cpu_s() -> float:
    """The processor time that this process and those that it started have taken so far."""
    total = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
