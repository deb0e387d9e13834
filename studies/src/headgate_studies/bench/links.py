"""How much of a long link relays use while rows wait, and what that costs: 20 Mbit/s at three round trips.

Two hosts of the laboratory (`headgate_studies.lab`): at one the service, its NATS server and the root's relay, at the
other the relay below it, each in a process of its own. Rows enough for the whole time are committed before, so that
rows wait all the time. What counts are the packets that the network has carried down the link, against its rate: rows
with the headers of messages, TLS and TCP, about 4 % in all, and acknowledgements of what the lower relay stores, as
inboxes are on the upper host's server too. `measured` is what the lower relay last said
that the link can carry. Both relays have an operator's credentials: with those of a site a relay asks for every batch
(docs/decisions/087-a-link-is-read-by-its-receiver.md).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from headgate.catalog import parse_deployment
from headgate.errors import HeadgateError
from headgate.fabric.accounts import OPERATOR_FILE
from headgate_studies.bench import links_load
from headgate_studies.lab import Laboratory, unavailable
from headgate_studies.lab.running import PORT, issue_certificates

MBIT: Final = 125_000.0
_WAIT_S: Final = 180.0
_WARM_S: Final = 4.0


def run(
    mbit_per_s: float = 20.0, round_trips_ms: tuple[float, ...] = (10, 50, 200), seconds: float = 10.0
) -> dict[str, Any]:
    """Fill a link of that rate at each round trip, and measure for so many seconds."""
    reason = unavailable()
    if reason is not None:
        raise HeadgateError(f"no laboratory can be made here: {reason}", hint="it needs Linux, root and iproute2")
    result: dict[str, Any] = {"mbit_per_s": mbit_per_s}
    for round_trip_ms in round_trips_ms:
        figures = _measure(mbit_per_s * MBIT, round_trip_ms / 1000, seconds)
        print(f"{round_trip_ms:g} ms: " + ", ".join(f"{key} {value}" for key, value in figures.items()), flush=True)
        for key, value in figures.items():
            result[f"{key}_{round_trip_ms:g}ms"] = value
    result["load"] = round(os.getloadavg()[0], 1)
    return result


def _measure(rate: float, round_trip_s: float, seconds: float) -> dict[str, float]:
    """The figures of one round trip."""
    text = links_load.deployment_text(rate, round_trip_s / 2)
    with Laboratory(parse_deployment(text, "links.yaml"), f"links{os.getpid()}") as lab:
        home = lab.hosts["root"]
        certificate, key, authority = issue_certificates(lab.directory, home.address)
        listening = [home.address, str(PORT), str(certificate), str(key)]
        figures = [str(rate), str(round_trip_s / 2), str(seconds + 3 * _WARM_S)]
        environment = {"HEADGATE_TLS_CA": str(authority)}
        load = [sys.executable, links_load.__file__, str(home.directory), *listening, *figures]
        service = lab.start("root", load, environment)
        _until((home.directory / "ready").exists, service, lab)
        reached = ["--nats", f"tls://{home.address}:{PORT}", "--creds", str(home.directory / "nats" / OPERATOR_FILE)]
        program = [sys.executable, "-m", "headgate.cli.app", "relay", "--site"]
        relays = [lab.start(site, [*program, site, *reached], environment) for site in ("root", "leaf")]
        _until(lambda: _passed(home.directory)["bytes"] > 0, service, lab)
        time.sleep(_WARM_S)
        before, cpu_s = _carried(lab), _cpu_s(relays)
        time.sleep(seconds)
        after, used_cpu_s, said = _carried(lab), _cpu_s(relays) - cpu_s, _passed(home.directory)
    carried, took_s = after[0] - before[0], after[1] - before[1]
    return {
        "used": round(carried / took_s / rate, 3),
        "measured": round(said["measured"] / rate, 3),
        "cpu_s_per_mb": round(used_cpu_s / (carried / 1e6), 4),
    }


def _carried(lab: Laboratory) -> tuple[int, float]:
    """The bytes of packets that went down the link, and when that was counted."""
    return lab.carried()["root", "leaf"], (lab.directory / "carried.json").stat().st_mtime


def _passed(directory: Path) -> dict[str, float]:
    """What the load says of the lower relay: bytes that it has taken in, when, and what the link can carry."""
    try:
        found: dict[str, float] = json.loads((directory / "passed.json").read_text())
    except FileNotFoundError:
        return {"bytes": 0.0, "time_s": 0.0, "measured": 0.0}
    return found


def _until(done: Any, service: subprocess.Popen[bytes], lab: Laboratory) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not done():
        if service.poll() is not None or time.monotonic() > deadline:
            said = {site: (host.directory / "output.txt") for site, host in lab.hosts.items()}
            texts = {site: file.read_text()[-1500:] for site, file in said.items() if file.exists()}
            raise HeadgateError(f"the link carried nothing: {texts}")
        time.sleep(0.1)


def _cpu_s(processes: list[subprocess.Popen[bytes]]) -> float:
    """Processor time that processes have used."""
    used = 0.0
    for process in processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        used += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used
