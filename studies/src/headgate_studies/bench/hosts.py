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
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from headgate.catalog import parse_deployment
from headgate.errors import HeadgateError
from headgate.fabric.accounts import OPERATOR_FILE
from headgate.pipeline.sources import GENERATOR_SCHEMAS
from headgate_studies.lab import Laboratory, unavailable
from headgate_studies.lab.running import RunningDeployment
from headgate_studies.studies.charts import COLOURS, panels, save

_WAIT_S: Final = 400.0
_IDLE_S: Final = 5.0
_EVERY_S: Final = 0.5
FAST: Final = "speed > 30"
SHED_AFTER_S: Final = 2.0


def deployment_text(hosts: int, narrow: str = "") -> str:
    """A root and so many hosts below it in a tree, each with two children at most, two subscriptions at each.

    `narrow` is the upload of `site2`, so that there is something to predict for the sites below it.
    """
    names = [f"site{number}" for number in range(1, hosts + 1)]
    parents = {name: "root" if number < 1 else names[(number - 1) // 2] for number, name in enumerate(names)}
    uploads = dict.fromkeys(("root", *names), "40 Mbit/s") | ({"site2": narrow} if narrow else {})
    document = {
        "sites": {name: {"upload": upload, "download": "40 Mbit/s"} for name, upload in uploads.items()},
        "links": {"default_delay": "10 ms"},
        "options": {"shed_after": f"{SHED_AFTER_S:g} s"},
        "streams": {
            "fleet": {
                "root": "root",
                "source": {"format": "generator", "kind": "fleet", "seed": 3, "limit": 1},
                "key": "vehicle",
                "event_time": "at",
            }
        },
        "plan": {"fleet": parents},
        "subscriptions": {
            name: wanted
            for site in names
            for name, wanted in (
                (f"at-{site}", {"stream": "fleet", "site": site}),
                (f"fast-{site}", {"stream": "fleet", "site": site, "where": FAST}),
            )
        },
    }
    return yaml.safe_dump(document, sort_keys=False)


def run(hosts: int = 4, rows: int = 400, seconds: float = 10.0, narrow: str = "", chart: str = "") -> dict[str, Any]:
    """Commit so many rows twice a second for some time, and compare the counters.

    From about 90 seconds on the planner has measured enough to say what it predicts: drops and delays are printed
    beside what was measured, and drawn into a directory `chart` where one is given. `narrow` is the upload of `site2`.
    """
    reason = unavailable()
    if reason is not None:
        raise HeadgateError(f"no laboratory can be made here: {reason}", hint="it needs Linux, root and iproute2")
    text, batches = deployment_text(hosts, narrow), int(seconds / _EVERY_S)
    deployment = parse_deployment(text, "hosts.yaml", GENERATOR_SCHEMAS)
    with Laboratory(deployment, f"hosts{os.getpid()}") as lab:
        file = lab.directory / "given.yaml"
        file.write_text(text, encoding="utf-8")
        running = RunningDeployment(lab, file, "root", ["--no-job", "--no-http"])
        _until(running, lambda: len(_reporting(running)) == hosts + 1, "the hosts did not join")
        credentials = str(running.state / "nats" / OPERATOR_FILE)
        program = [sys.executable, "-m", "headgate_studies.lab.traffic"]
        for site in running.hosts:
            read = [*program, "read", str(running.state_of(site)), credentials, f"at-{site}", f"fast-{site}"]
            lab.start(site, read, running.environment)
        idle = _carried_in(lab, _IDLE_S)
        before = lab.carried()
        began = time.monotonic()
        feed = [*program, "feed", str(running.state), "fleet", str(rows), str(_EVERY_S), str(batches)]
        feeder = lab.start("root", feed, running.environment)
        seen: dict[str, Any] = {}
        while feeder.poll() is None:
            running.look()
            planner = _status(running).get("planner") or {}
            seen = planner if any(each["rows"] for each in planner.get("subscriptions", {}).values()) else seen
            time.sleep(0.5)
        _until(running, lambda: _done(running, rows * batches), "rows did not arrive")
        time.sleep(1.0)  # the counters are written twice a second
        after, took_s, status = lab.carried(), time.monotonic() - began, _status(running)
    carried = {pair: after.get(pair, 0) - before.get(pair, 0) for pair in after}
    parents = dict(deployment.plan.trees["fleet"].parents) if deployment.plan else {}
    predicted = _predicted(seen)
    if chart and predicted:
        _draw(predicted, Path(chart))
    return {
        **_figures(status, carried, idle, took_s, parents),
        **_agreement(predicted),
        "narrow": narrow,
        "seconds": seconds,
        "rows_per_s": round(rows / _EVERY_S),
    }


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
    root_bytes = sum(each["network"] for name, each in links.items() if name.startswith("root->"))
    sent = next(each for name, each in links.items() if name.startswith("root->"))["ours"]
    matched = sum(each["matched"] for each in lines)
    copies = round(matched * sent / max(each["matched"] for each in lines))  # each row as large as on the root's link
    print(
        f"one copy for each subscriber: {copies:,} B, all of them from the root, which sent {root_bytes:,} B",
        flush=True,
    )
    return {
        "hosts": len(parents),
        "rows": sum(each["delivered"] for each in lines),
        "difference": sum(abs(each["difference"]) for each in lines),
        "off_plan_bytes": sum(size for pair, size in between.items() if frozenset(pair) not in spare),
        "standby_bytes": sum(size for pair, size in between.items() if frozenset(pair) in spare),
        "control_bytes_per_s": round(to_home / took_s / max(sum("root" in pair for pair in others) / 2, 1)),
        "ratio_least": min(each["ratio"] for each in links.values()),
        "ratio_most": max(each["ratio"] for each in links.values()),
        "root_bytes": root_bytes,
        "copies_bytes": copies,
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
    try:
        done = subprocess.run(inside, capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        return {}
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found


def _reporting(running: RunningDeployment) -> list[str]:
    return [name for name, site in _status(running).get("sites", {}).items() if site["time_ms"] is not None]


def _done(running: RunningDeployment, rows: int) -> bool:
    lines = _status(running).get("subscriptions", {})
    whole = all(each["matched"] == rows for name, each in lines.items() if name.startswith("at-"))
    return bool(lines) and whole and all(each["in_flight"] == 0 for each in lines.values())


@dataclass(frozen=True, slots=True)
class _Prediction:
    """One subscription as the planner predicted it from what was measured, and as it was measured."""

    subscription: str
    drop_predicted: float
    drop: float
    delay_predicted_s: float
    delay_s: float
    rows: int

    @property
    def agrees(self) -> bool:
        """Whether the drop is within 0.02 of the prediction, or within a tenth of it."""
        return abs(self.drop - self.drop_predicted) <= max(0.02, 0.1 * self.drop_predicted)


def _predicted(planner: dict[str, Any]) -> list[_Prediction]:
    found = [
        _Prediction(
            name,
            each["drop_predicted"],
            each["drop"],
            each["delay_predicted_s"]
            + (SHED_AFTER_S if each["drop_predicted"] > 0 else 0.0),  # so long rows wait there
            each["delay_s"],
            each["rows"],
        )
        for name, each in sorted(planner.get("subscriptions", {}).items())
        if each["rows"] and each["drop"] is not None and each["delay_s"] is not None
    ]
    if found:
        print(f"{'subscription':<16}{'rows':>9}{'drop':>8}{'predicted':>11}{'delay':>9}{'predicted':>11}", flush=True)
    for each in found:
        print(
            f"{each.subscription:<16}{each.rows:>9,}{each.drop:>8.3f}{each.drop_predicted:>11.3f}"
            f"{each.delay_s:>8.3f}s{each.delay_predicted_s:>10.3f}s",
            flush=True,
        )
    return found


def _agreement(found: list[_Prediction]) -> dict[str, Any]:
    if not found:
        return {"predicted": 0}
    over = [each.delay_s - each.delay_predicted_s for each in found]
    return {
        "predicted": len(found),
        "drops_as_predicted": sum(each.agrees for each in found),
        "drop_off_most": round(max(abs(each.drop - each.drop_predicted) for each in found), 3),
        "delay_over_median_s": round(statistics.median(over), 3),
        "delay_over_most_s": round(max(over), 3),
    }


def _draw(found: list[_Prediction], directory: Path) -> None:
    """Drops and delays, predicted against measured: on the diagonal both are the same."""
    figure, (drops, delays) = panels(2, width=4.2, height=3.8)
    for axes, what, points in (
        (drops, "drop", [(each.drop_predicted, each.drop) for each in found]),
        (delays, "delay in s", [(each.delay_predicted_s, each.delay_s) for each in found]),
    ):
        most = max(max(point) for point in points) * 1.08 or 1.0
        axes.plot([0, most], [0, most], color="#888888", linewidth=1.0)
        axes.plot(*zip(*points, strict=True), "o", color=COLOURS[0], alpha=0.6)
        axes.set(xlabel=f"predicted {what}", ylabel=f"measured {what}", xlim=(0, most), ylim=(0, most))
    figure.suptitle(f"{len(found)} subscriptions, predicted and measured")
    save(figure, directory, "hosts")


def _until(running: RunningDeployment, done: Any, failure: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not done():
        running.look()
        if time.monotonic() > deadline:
            outputs = {site: host.directory / "output.txt" for site, host in running.lab.hosts.items()}
            said = {site: file.read_text()[-800:] for site, file in outputs.items() if file.exists()}
            raise HeadgateError(f"{failure}: {said}")
        time.sleep(0.5)
