"""Where the time from an event to its reader goes, stage by stage, at the demo's load; beside another version if asked.

The demo's deployment runs with its Spark job and a reader for every subscription (`latency_load`). Stages of the job
are medians over micro-batches, the others over sampled rows. With `before`, the folder of another version's sources,
the same load runs on both in turn. A version that does not report stages has the whole way to the commit as one.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate_studies.bench import latency_load

_TIMEOUT_S: Final = 1200.0


def run(seconds: float = 40.0, rounds: int = 1, before: str = "", settle_s: float = 15.0) -> dict[str, Any]:
    """Run the load `rounds` times, on this version and on the one whose sources lie in `before` in turn.

    What is measured begins `settle_s` after every stream has committed; with 0 it counts what waited for the start.
    """
    if before and not (Path(before) / "headgate").is_dir():
        raise HeadgateError(
            f"there is no version of headgate in {before!r}",
            hint="name the folder that holds it, for example `git worktree add ../old REVISION` and ../old/src",
        )
    places = {**({"before": before} if before else {}), "now": ""}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in places}
    for _ in range(rounds):
        for name, place in places.items():
            found[name].append(_measure(place, seconds, settle_s))
    result: dict[str, Any] = {"rounds": rounds, "load": round(os.getloadavg()[0], 1)}
    for name, measured in found.items():
        stages = dict.fromkeys(stage for each in measured for stage in each["stages_ms"])
        middle = {
            stage: statistics.median(each["stages_ms"][stage] for each in measured if stage in each["stages_ms"])
            for stage in stages
        }
        prefix = "" if name == "now" else "before_"
        print(f"{name}: milliseconds of the median row or micro-batch")
        for stage, value in middle.items():
            print(f"  {stage:<14} {value:>8,.1f} {'#' * min(round(value / 20), 80)}")
        result[f"{prefix}stages_ms"] = middle
        for key in ("p50_ms", "p99_ms", "rows", "batches"):
            result[f"{prefix}{key}"] = statistics.median(each[key] for each in measured)
        p50, p99 = result[f"{prefix}p50_ms"], result[f"{prefix}p99_ms"]
        print(f"  from the event to the reader: p50 {p50:,.0f}, p99 {p99:,.0f}")
    if before:
        for key in ("p50_ms", "p99_ms"):
            result[f"ratio_{key}"] = round(result[key] / result[f"before_{key}"], 3)
    return result


def _measure(place: str, seconds: float, settle_s: float) -> dict[str, Any]:
    """The figures of one run; a version of its own is put before the installed one."""
    paths = [path for path in (place, os.environ.get("PYTHONPATH", "")) if path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, latency_load.__file__, str(seconds), str(settle_s)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    if done.returncode:
        raise HeadgateError(f"the load failed on {place or 'this version'}: {done.stderr.strip()[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures
