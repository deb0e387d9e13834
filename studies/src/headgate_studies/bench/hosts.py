"""Sites as hosts, each with its server: what the network has carried, against what Headgate counts and what is planned.

A laboratory (`headgate_studies.lab`) with the service at the root and one host for each other site, which joins by an
invitation. Rows are committed at the root and read at each site's own server. The network's own counters say what went
between each pair of hosts: over links of the plan rows and what reading them takes, between others and home control
alone, and between any two others nothing, but where a parent is so slow to answer that its child takes it for dead and
connects to a standby. Last line of the command: these figures as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any, Final

import yaml

from headgate.catalog import parse_deployment
from headgate.errors import HeadgateError
from headgate.fabric.accounts import OPERATOR_FILE
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate_studies.lab import Laboratory, unavailable
from headgate_studies.lab.running import RunningDeployment

_WAIT_S: Final = 400.0
_IDLE_S: Final = 5.0
_EVERY_S: Final = 0.5


def deployment_text(hosts: int) -> str:
    """A root and so many hosts below it in a tree, each with two children at most, one subscription at each."""
    names = [f"site{number}" for number in range(1, hosts + 1)]
    parents = {name: "root" if number < 1 else names[(number - 1) // 2] for number, name in enumerate(names)}
    document = {
        "sites": {name: {"upload": "40 Mbit/s", "download": "40 Mbit/s"} for name in ("root", *names)},
        "links": {"default_delay": "10 ms"},
        "streams": {
            "fleet": {
                "root": "root",
                "source": {"format": "generator", "kind": "fleet", "seed": 3, "limit": 1},
                "key": "vehicle",
                "event_time": "at",
            }
        },
        "plan": {"fleet": parents},
        "subscriptions": {f"at-{name}": {"stream": "fleet", "site": name} for name in names},
    }
    return yaml.safe_dump(document, sort_keys=False)


def run(hosts: int = 4, rows: int = 400, seconds: float = 10.0) -> dict[str, Any]:
    """Commit so many rows twice a second for some time, and compare the counters."""
    reason = unavailable()
    if reason is not None:
        raise HeadgateError(f"no laboratory can be made here: {reason}", hint="it needs Linux, root and iproute2")
    text, batches = deployment_text(hosts), int(seconds / _EVERY_S)
    deployment = parse_deployment(text, "hosts.yaml", GENERATOR_SCHEMAS)
    with Laboratory(deployment, f"hosts{os.getpid()}") as lab:
        file = lab.directory / "given.yaml"
        file.write_text(text, encoding="utf-8")
        running = RunningDeployment(lab, file, "root", ["--no-job", "--no-http"])
        _until(running, lambda: len(_reporting(running)) == hosts + 1, "the hosts did not join")
        credentials = str(running.state / "nats" / OPERATOR_FILE)
        program = [sys.executable, "-m", "headgate_studies.lab.traffic"]
        for site in running.hosts:
            read = [*program, "read", str(running.state_of(site)), credentials, f"at-{site}"]
            lab.start(site, read, running.environment)
        idle = _carried_in(lab, _IDLE_S)
        before = lab.carried()
        began = time.monotonic()
        feed = [*program, "feed", str(running.state), "fleet", str(rows), str(_EVERY_S), str(batches)]
        feeder = lab.start("root", feed, running.environment)
        _until(running, lambda: feeder.poll() is not None and _done(running, rows * batches), "rows did not arrive")
        time.sleep(1.0)  # the counters are written twice a second
        after, took_s, status = lab.carried(), time.monotonic() - began, _status(running)
    carried = {pair: after.get(pair, 0) - before.get(pair, 0) for pair in after}
    return _figures(
        status, carried, idle, took_s, dict(deployment.plan.trees["fleet"].parents) if deployment.plan else {}
    )


def _figures(
    status: dict[str, Any],
    carried: dict[tuple[str, str], int],
    idle: dict[tuple[str, str], float],
    took_s: float,
    parents: dict[str, str],
) -> dict[str, Any]:
    """The network's counts by pair, beside our own; what goes between a site and home is not all rows."""
    links: dict[str, dict[str, float]] = {}
    for child, parent in parents.items():
        ours = status["links"][f"{parent}->{child}"]["bytes"]
        network = carried.get((parent, child), 0)
        control = idle.get((parent, child), 0.0) * took_s if parent == "root" else 0.0
        rows = network - control
        links[f"{parent}->{child}"] = {
            "network": network,
            "control": round(control),
            "ours": ours,
            "ratio": round(rows / ours, 3),
        }
        print(
            f"{parent}->{child}: {network:,} B on the network, {ours:,} B counted, ratio {rows / ours:.3f}", flush=True
        )
    on_plan = {frozenset(edge) for edge in parents.items()}
    others = {pair: size for pair, size in carried.items() if frozenset(pair) not in on_plan}
    spare = {frozenset((child, above)) for child in parents for above in _standbys(child, parents)}
    between = {pair: size for pair, size in others.items() if "root" not in pair}
    to_home = sum(size for pair, size in others.items() if "root" in pair)
    lines = status["subscriptions"].values()
    return {
        "hosts": len(parents),
        "rows": sum(each["delivered"] for each in lines),
        "difference": sum(abs(each["difference"]) for each in lines),
        "off_plan_bytes": sum(size for pair, size in between.items() if frozenset(pair) not in spare),
        "standby_bytes": sum(size for pair, size in between.items() if frozenset(pair) in spare),
        "control_bytes_per_s": round(to_home / took_s / max(sum("root" in pair for pair in others) / 2, 1)),
        "ratio_least": min(each["ratio"] for each in links.values()),
        "ratio_most": max(each["ratio"] for each in links.values()),
        "root_bytes": sum(each["network"] for name, each in links.items() if name.startswith("root->")),
        "total_bytes": sum(each["network"] for each in links.values()),
        "load": round(os.getloadavg()[0], 1),
        "links": links,
    }


def _standbys(child: str, parents: dict[str, str]) -> list[str]:
    """The sites above the parent of a site: these it asks for a sign of life when its parent seems dead."""
    above, site = [], parents[child]
    while site in parents:
        site = parents[site]
        above.append(site)
    return above


def _carried_in(lab: Laboratory, seconds: float) -> dict[tuple[str, str], float]:
    """Bytes a second between each pair while no rows are committed."""
    time.sleep(2.0)
    before = lab.carried()
    time.sleep(seconds)
    return {pair: (size - before.get(pair, 0)) / seconds for pair, size in lab.carried().items()}


def _status(running: RunningDeployment) -> dict[str, Any]:
    """What `headgate status --json` says at home; nothing while it does not answer."""
    home = running.lab.hosts[running.home]
    command = [sys.executable, "-m", "headgate.cli.app", "status", "--json", "--state-dir", str(running.state)]
    inside = ["ip", "netns", "exec", home.namespace, *command]
    done = subprocess.run(inside, capture_output=True, text=True, check=False, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found


def _reporting(running: RunningDeployment) -> list[str]:
    return [name for name, site in _status(running).get("sites", {}).items() if site["time_ms"] is not None]


def _done(running: RunningDeployment, rows: int) -> bool:
    lines = _status(running).get("subscriptions", {}).values()
    return bool(lines) and all(each["delivered"] == rows and each["in_flight"] == 0 for each in lines)


def _until(running: RunningDeployment, done: Any, failure: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not done():
        running.look()
        if time.monotonic() > deadline:
            outputs = {site: host.directory / "output.txt" for site, host in running.lab.hosts.items()}
            said = {site: file.read_text()[-800:] for site, file in outputs.items() if file.exists()}
            raise HeadgateError(f"{failure}: {said}")
        time.sleep(0.5)
