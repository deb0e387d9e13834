"""What an install by role costs: megabytes on disk, distributions, and processor time of the role's imports.

Sizes are those of the files that the installed distributions record, over the closure of what an extra needs on this
machine, without compiled bytecode. Imports are timed in processes of their own, after one that leaves bytecode behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import headgate
import headgate_studies

# A role, what it installs, and what a process of that role imports first.
ROLES: Mapping[str, tuple[str, str]] = {
    "subscriber": ("headgate", "headgate.client"),
    "relay": ("headgate", "headgate.relay.node"),
    "host": ("headgate[host]", "headgate.relay.hosted"),
    "edge": ("headgate[edge]", "headgate.matching.compiled.class_index, numba"),
    "feeds": ("headgate[feeds]", "headgate.feeds, feedparser"),
    "grid": ("headgate[grid]", "headgate.grid, xarray, zarr"),
    "spark": ("headgate[spark]", "headgate.pipeline.job, pyspark.sql"),
    "control": ("headgate[control]", "headgate.catalog, headgate.planning, headgate.tuning.deployment"),
    "service": ("headgate[service]", "headgate.service.runtime"),
    "mqtt": ("headgate[service,mqtt]", "headgate.service.collecting.mqtt_session, paho.mqtt.client"),
    "all": ("headgate[all]", "headgate.cli.app, headgate.cli.up, headgate.cli.status, headgate.cli.tail"),
    "laboratory": ("headgate-studies", "headgate_studies.studies.charts, matplotlib.figure"),
}
_SOURCES = {"headgate": headgate, "headgate-studies": headgate_studies}
_PROGRAM = """
import json, sys, time
began = time.process_time()
import {modules}
print(json.dumps([time.process_time() - began, len(sys.modules)]))
"""


def run(repeats: int = 5) -> dict[str, Any]:
    """Megabytes, distributions, CPU seconds and modules of each role."""
    print(f"{'role':<12} {'installs':<20} {'distributions':>13} {'MB':>8} {'import CPU s':>13} {'modules':>8}")
    figures: dict[str, Any] = {}
    for role, (requirement, modules) in ROLES.items():
        needed = closure(requirement)
        megabytes = sum(map(size_bytes, needed)) / 1e6
        cpu_s, count = import_cost(modules, repeats)
        print(f"{role:<12} {requirement:<20} {len(needed):>13} {megabytes:>8.1f} {cpu_s:>13.2f} {count:>8}")
        figures |= {
            f"{role}: distributions": len(needed),
            f"{role}: MB": round(megabytes, 1),
            f"{role}: import CPU s": round(cpu_s, 3),
            f"{role}: modules": count,
        }
    return figures


def closure(requirement: str) -> set[str]:
    """The names of all distributions that a requirement installs here, itself among them.

    >>> "pyarrow" in closure("headgate"), "pyspark" in closure("headgate"), "pyspark" in closure("headgate[spark]")
    (True, False, True)
    """
    found: set[str] = set()
    done: set[tuple[str, str]] = set()
    waiting = [Requirement(requirement)]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        for extra in ("", *wanted.extras):
            if (name, extra) in done:
                continue
            done.add((name, extra))
            installed = _distribution(name)
            if installed is None:
                continue
            found.add(name)
            for text in installed.requires or ():
                inner = Requirement(text)
                if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                    waiting.append(inner)
    return found


@cache
def _distribution(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


@cache
def size_bytes(name: str) -> int:
    """Bytes of the files of a distribution, without bytecode; an editable install counts its sources."""
    if name in _SOURCES:
        directory = Path(str(_SOURCES[name].__file__)).parent
        paths = [path for path in directory.rglob("*") if path.is_file()]
    else:
        installed = _distribution(name)
        assert installed is not None
        paths = [Path(str(file.locate())) for file in installed.files or ()]
    return sum(path.stat().st_size for path in paths if "__pycache__" not in path.parts and path.is_file())


def import_cost(modules: str, repeats: int) -> tuple[float, int]:
    """The least CPU seconds of an import in a new process, and the number of modules that are loaded then."""
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-c", _PROGRAM.format(modules=modules)]
        times = []
        for _ in range(repeats + 1):
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            times.append(json.loads(done.stdout))
    return min(cpu_s for cpu_s, _ in times[1:]), times[-1][1]
