"""A declared bandwidth that is wrong: after how many seconds that is seen, and what subscribers get before and after.

Two hosts of the laboratory (`headgate_studies.lab`), each with its own server and relay, and a link between them that
carries `mbit_per_s` at a round trip. The deployment file declares it `off` times too high (`high`), as many times too
low (`low`), and the same with `bandwidth: measured` (`follow`). More rows come than a link carries that is declared too
high, and three quarters of what one carries that is declared too low.

Seconds count from the first row that is sent, as far as relays report it: once a second. `noticed_…_s`: the measured
rate is within 30 % of what the link carries. `followed_…_s`: so is what the upper relay may send. `bounded_high_s`: it
may send no more than the link carries, as rows wait on the link. `…_before` is of the first five seconds, `…_after` of
the last eight: the mean delay from the commit in seconds, and the part of the rows that was given up. With `before=SRC`
the hosts run the version in another directory. Last line of the command: these figures as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import yaml

from headgate.catalog import parse_deployment
from headgate.errors import HeadgateError
from headgate.fabric.accounts import OPERATOR_FILE
from headgate_studies.bench import declared_load
from headgate_studies.bench.links import MBIT
from headgate_studies.lab import Laboratory, unavailable
from headgate_studies.lab.running import RunningDeployment

_WAIT_S: Final = 400.0
_NEAR: Final = 0.3
_BEFORE_S: Final = 5.0
_AFTER_S: Final = 8.0
Line = dict[str, Any]


def deployment_text(rate: float, delay_s: float, bandwidth: str = "declared") -> str:
    """Two sites, the link between them, and a subscription to every row at the lower one."""
    pair = {"between": ["root", "leaf"], "delay": f"{delay_s * 1000:g} ms", "capacity": f"{rate * 8:.0f} bit/s"}
    document = {
        "sites": {"root": {}, "leaf": {}},
        "links": {"pairs": [{**pair, "bandwidth": bandwidth}], "max_age": "2 s"},
        "streams": {
            "blobs": {
                "root": "root",
                "schema": {"name": "string", "blob": "binary", "at": "timestamp"},
                "source": {"format": "nats"},
                "key": "name",
                "event_time": "at",
            }
        },
        "plan": {"blobs": {"leaf": "root"}},
        "subscriptions": {"all": {"stream": "blobs", "site": "leaf", "where": "true"}},
    }
    return yaml.safe_dump(document, sort_keys=False)


def run(
    mbit_per_s: float = 8.0,
    off: float = 4.0,
    round_trip_ms: float = 40.0,
    seconds: float = 40.0,
    cases: tuple[str, ...] = ("high", "low", "follow"),
    before: str = "",
) -> dict[str, Any]:
    """Run each case for so many seconds."""
    reason = unavailable()
    if reason is not None:
        raise HeadgateError(f"no laboratory can be made here: {reason}", hint="it needs Linux, root and iproute2")
    real, result = mbit_per_s * MBIT, {"mbit_per_s": mbit_per_s, "off": off, "round_trip_ms": round_trip_ms}
    for case in cases:
        declared = real * off if case == "high" else real / off
        offered = 1.5 * real if case == "high" else 0.75 * real
        given = deployment_text(declared, round_trip_ms / 2000, "measured" if case == "follow" else "declared")
        lines = _watched(deployment_text(real, round_trip_ms / 2000), given, offered, seconds, before)
        for key, value in figures(lines, real, declared).items():
            result[key.format(case)] = value
        print(f"{case}: " + json.dumps({key: value for key, value in result.items() if case in key}), flush=True)
    result["load"] = round(os.getloadavg()[0], 1)
    return result


def _watched(real: str, given: str, offered: float, seconds: float, before: str) -> list[Line]:
    """Run a deployment over a link that is another one than its file says; what was seen from the first row on."""
    with Laboratory(parse_deployment(real, "real.yaml"), f"declared{os.getpid()}") as lab:
        file, seen = lab.directory / "given.yaml", lab.directory / "seen.jsonl"
        file.write_text(given, encoding="utf-8")
        running = RunningDeployment(lab, file, "root", ["--no-job", "--no-http"])
        if before:
            running.environment["PYTHONPATH"] = before
        program = [sys.executable, declared_load.__file__]
        deadline = time.monotonic() + _WAIT_S
        started = False
        while not (lines := _lines(seen)) or not lines[-1]["ready"]:
            running.look()
            if time.monotonic() > deadline:
                files = [host.directory / "output.txt" for host in lab.hosts.values()]
                said = [file.read_text(errors="replace")[-1500:] for file in files if file.exists()]
                raise HeadgateError(f"the relays did not report: {said}")
            if not started and (running.state / "nats" / OPERATOR_FILE).exists():
                time.sleep(3.0)
                lab.start("root", [*program, "watch", str(running.state), str(seen)])
                started = True
            time.sleep(0.25)
        credentials = str(running.state / "nats" / OPERATOR_FILE)
        read = [sys.executable, "-m", "headgate_studies.lab.traffic", "read", str(running.state_of("leaf"))]
        lab.start("leaf", [*read, credentials, "all"], running.environment)
        lab.start("root", [*program, "feed", str(running.state), str(offered), str(seconds + 5.0)])
        while not (lines := _flowing(_lines(seen))) or lines[-1]["time_s"] - lines[0]["time_s"] < seconds:
            running.look()
            if time.monotonic() > deadline + seconds:
                raise HeadgateError("no rows arrived")
            time.sleep(0.5)
    return lines


def _lines(file: Path) -> list[Line]:
    whole = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in whole if line.endswith("\n")]


def _flowing(lines: list[Line]) -> list[Line]:
    """What was seen from the first row on that was sent."""
    return next((lines[at:] for at, line in enumerate(lines) if line["sent"] > 0), [])


def figures(lines: list[Line], real: float, declared: float) -> dict[str, Any]:
    """The figures of one case; names have a place for it."""
    began = lines[0]["time_s"]

    def first(found: Any) -> float | None:
        return next((round(each["time_s"] - began, 1) for each in lines if found(each)), None)

    def near(value: float | None) -> bool:
        return value is not None and abs(value / real - 1) <= _NEAR

    early = [each for each in lines if each["time_s"] - began <= _BEFORE_S]
    late = [each for each in lines if lines[-1]["time_s"] - each["time_s"] <= _AFTER_S]
    before, after = _got(early), _got(late)
    return {
        "noticed_{}_s": first(lambda each: near(each["measured"])),
        "followed_{}_s": first(lambda each: near(min(each["bound"] or declared, 1e12))),
        "bounded_{}_s": first(lambda each: each["bound"] is not None and each["bound"] < (1 + _NEAR) * real),
        "measured_{}": round(lines[-1]["measured"] / real, 2),
        "delay_{}_before_s": before[0],
        "delay_{}_after_s": after[0],
        "drop_{}_before": before[1],
        "drop_{}_after": after[1],
        "rate_{}_after": round(
            (late[-1]["bytes"] - late[0]["bytes"]) / (late[-1]["time_s"] - late[0]["time_s"]) / real, 2
        ),
    }


def _got(lines: list[Line]) -> tuple[float | None, float | None]:
    """The mean delay and the part given up of what was settled between the first and the last of some lines."""
    first, last = lines[0], lines[-1]
    change = {key: last[key] - first[key] for key in ("delivered", "reduced", "delay_ms", "count")}
    settled = change["delivered"] + change["reduced"]
    delay_s = round(change["delay_ms"] / change["count"] / 1000, 2) if change["count"] else None
    return delay_s, round(change["reduced"] / settled, 3) if settled else None
