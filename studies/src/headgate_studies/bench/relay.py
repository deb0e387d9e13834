"""What relays cost, and how long rows take through them, beside the version before in the same run.

Eight relays in a tree of four levels run in a process of their own (`relay_load`): first without any rows, then under a
steady load with three subscriptions at each site. With `before`, the folder of another version's sources, the same load
runs on both in turn, so that whatever else the machine does meets both.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate_studies.bench import relay_load
from headgate_studies.bench.versions import check_version

_FIGURES: Final = ("rows_per_cpu_s", "messages_per_cpu_s", "messages_per_s", "p50_ms", "p99_ms", "idle_cpu")
_TIMEOUT_S: Final = 900.0


def run(rate: int = 1000, seconds: float = 20.0, rounds: int = 3, before: str = "") -> dict[str, Any]:
    """Run the load `rounds` times, on this version and on the one whose sources lie in `before` in turn."""
    if before:
        check_version(before)
    places = {"now": "", **({"before": before} if before else {})}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in places}
    for number in range(rounds):
        for name, place in places.items():
            figures = _measure(place, rate, seconds)
            found[name].append(figures)
            print(f"{name} {number + 1}: " + ", ".join(f"{key} {figures[key]:,}" for key in _FIGURES))
    middle = {
        name: {key: statistics.median(each[key] for each in measured) for key in _FIGURES}
        for name, measured in found.items()
    }
    result: dict[str, Any] = {"rounds": rounds, "rows": found["now"][0]["rows"], **middle["now"]}
    for key, value in middle.get("before", {}).items():
        result[f"before_{key}"] = value
        result[f"ratio_{key}"] = round(middle["now"][key] / value, 3) if value else None
    result["load"] = round(os.getloadavg()[0], 1)
    return result


def _measure(place: str, rate: int, seconds: float) -> dict[str, Any]:
    """The figures of one run; a version of its own is put before the installed one."""
    environment = {**os.environ, **({"PYTHONPATH": place} if place else {})}
    command = [sys.executable, relay_load.__file__, str(rate), str(seconds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    if done.returncode:
        raise HeadgateError(f"the load failed on {place or 'this version'}: {done.stderr.strip()[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures
