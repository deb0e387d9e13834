"""Processor time and memory of a whole run: this process and all that it started, in all and by what they are."""

from __future__ import annotations

import contextlib
from typing import Final

import psutil

_KINDS: Final = (("java", "java"), ("nats-server", "server"), ("python", "workers"))


def run_cpu_s() -> float:
    """The processor time that this process and those that it started have taken so far."""
    return sum(cpu_by_process().values())


def cpu_by_process() -> dict[str, float]:
    """The same for the `driver`, which is this process, for `java`, for Python `workers`, for the `server`, and others.

    What a process that has ended took is its parent's.
    """
    me = psutil.Process()
    found = dict.fromkeys(("driver", "java", "workers", "server", "other"), 0.0)
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            kind = "driver" if process.pid == me.pid else kind_of(process.name())
            found[kind] += times.user + times.system + times.children_user + times.children_system
    return found


def memory_by_process() -> dict[str, float]:
    """The resident memory of the largest process of each kind now, in megabytes."""
    me = psutil.Process()
    found = dict.fromkeys(("driver", "java", "workers", "server", "other"), 0.0)
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            kind = "driver" if process.pid == me.pid else kind_of(process.name())
            found[kind] = max(found[kind], process.memory_info().rss / 1e6)
    return found


def kind_of(name: str) -> str:
    """What a process of that name is in a run.

    >>> kind_of("python3.11"), kind_of("java"), kind_of("sh")
    ('workers', 'java', 'other')
    """
    return next((kind for start, kind in _KINDS if name.startswith(start)), "other")
