"""Kills at named points: ``python -m headgate_studies.testing.chaos --rounds 20`` (``make chaos-spine``).

One round runs a deployment of three sites with relays in processes of their own and kills, with signal 9: the Spark
driver after a part, before and after a manifest (each restart with another partition count), a relay before and after
publishing, and the NATS server. Then every subscriber must hold every matched row exactly once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headgate import faults
from headgate.catalog import parse_deployment
from headgate.client import Client
from headgate.fabric import Crew, FabricError
from headgate.filters import parse_filter
from headgate.pipeline.job import JobConfig
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate.service.demo.run import Readers, drained
from headgate.service.runtime import Runtime, open_runtime
from headgate.service.settings import Settings

DRIVER_KILLS: Final = ("driver.after_part@1", "driver.before_manifest@2", "driver.after_manifest@1")
RELAY_KILLS: Final = ("relay.before_publish@4", "relay.after_publish@4")
PARTITIONS: Final = (2, 3, 1, 4)
_SEED: Final = 29
_LIMIT_S: Final = 900.0

DEPLOYMENT: Final = """
streams:
  fleet:
    root: root
    source: {format: generator, kind: fleet, seed: 29, rate: 150, limit: 1000000000}
    key: vehicle
    event_time: at
sites: {root: {}, mid: {}, leaf: {}}
plan: {fleet: {mid: root, leaf: mid}}
subscriptions:
  all-leaf: {stream: fleet, site: leaf}
  fast-leaf: {stream: fleet, site: leaf, where: "speed > 30", select: [vehicle, speed]}
  faults-mid: {stream: fleet, site: mid, where: "status = 'fault'", format: json}
  some-mid: {stream: fleet, site: mid, where: "vehicle rlike '[02468]$'"}
  all-root: {stream: fleet, site: root, select: [vehicle, lat, lon, speed, status]}
"""


@dataclass
class ChaosRound:
    """What one round did and found."""

    driver_kills: int = 0
    relay_kills: int = 0
    server_kills: int = 0
    rows: int = 0
    matched: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


def _job_config(runtime: Runtime, restarts: int) -> JobConfig:
    return replace(runtime.job_config(), partitions=PARTITIONS[min(restarts, len(PARTITIONS) - 1)])


def _job_environment(restarts: int) -> Mapping[str, str]:
    return {faults.VARIABLE: DRIVER_KILLS[restarts]} if restarts < len(DRIVER_KILLS) else {}


async def _keep_relay(site: str, url: str, kills: tuple[str, ...], outcome: ChaosRound, log: Path) -> None:
    """Run a site's relay as a process of its own, and start it again when it dies."""
    for starts in range(1000):
        more = {faults.VARIABLE: kills[starts]} if starts < len(kills) else {}
        with log.open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "headgate.cli.app", "relay", "--site", site, "--nats", url,
                env={**os.environ, **more}, stdout=file, stderr=file,
            )  # fmt: skip
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        outcome.relay_kills += code == -9
        await asyncio.sleep(0.2)


async def run_round(directory: Path, tell: Any = print) -> ChaosRound:
    """One round in an empty directory."""
    outcome = ChaosRound()
    began = time.monotonic()
    deployment = parse_deployment(DEPLOYMENT, "chaos.yaml", GENERATOR_SCHEMAS)
    settings = Settings(
        state_dir=directory, relays=False, master="local[2]", trigger_s=0.5, job_environment=_job_environment
    )
    async with asyncio.timeout(_LIMIT_S), open_runtime(settings, deployment, configure_job=_job_config) as runtime:
        assert runtime.server is not None
        assert runtime.job is not None
        async with Crew() as crew, await Client.connect(runtime.server.url) as client:
            for site, kills in (("root", ()), ("mid", RELAY_KILLS), ("leaf", ())):
                work = _keep_relay(site, runtime.server.url, kills, outcome, directory / f"relay-{site}.log")
                crew.spawn(work, f"relay {site}")
            readers = Readers(client, keep=True)
            readers.start(list(deployment.subscriptions))
            while runtime.job.restarts < len(DRIVER_KILLS) or outcome.relay_kills < len(RELAY_KILLS):
                outcome.driver_kills = runtime.job.restarts
                await asyncio.sleep(0.2)
            outcome.driver_kills = runtime.job.restarts
            tell(f"  driver killed {outcome.driver_kills} times, relay {outcome.relay_kills} times")
            await runtime.wait_ready()
            await _more_rows(runtime, 200)
            os.kill(runtime.server.pid or 0, 9)
            outcome.server_kills += 1
            await _more_rows(runtime, 300)
            await runtime.stop_job()
            status = await _drain(runtime, readers)
            await readers.stop()
    check(outcome, status, readers)
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


async def _status(runtime: Runtime) -> dict[str, Any]:
    while True:
        with contextlib.suppress(FabricError):
            return await runtime.status()
        await asyncio.sleep(0.2)


async def _more_rows(runtime: Runtime, count: int) -> None:
    """Wait until so many more rows are in."""
    first = (await _status(runtime))["streams"]["fleet"]["rows_in"]
    while (await _status(runtime))["streams"]["fleet"]["rows_in"] < first + count:  # noqa: ASYNC110 - a log is polled
        await asyncio.sleep(0.3)


async def _drain(runtime: Runtime, readers: Readers) -> dict[str, Any]:
    while True:
        status = await _status(runtime)
        readers.check()
        if drained(status):
            return status
        await asyncio.sleep(0.3)


def check(outcome: ChaosRound, status: dict[str, Any], readers: Readers) -> None:
    """Compare what every subscriber got, row by row, with what the generator's rows satisfy."""
    rows = status["streams"]["fleet"]["rows_in"]
    outcome.rows = rows
    deployment = parse_deployment(DEPLOYMENT, "chaos.yaml", GENERATOR_SCHEMAS)
    everything = generate("fleet", _SEED, 0, rows, rate=150.0)
    for name, subscription in deployment.subscriptions.items():
        hits = np.flatnonzero(parse_filter(subscription.where, deployment.streams["fleet"].schema).evaluate(everything))
        columns = [each for each in (subscription.select or everything.schema.names) if each != "at"]
        expected = everything.take(pa.array(hits)).select(columns)
        got = pa.Table.from_batches([each.rows for each in readers.deliveries[name]]).select(columns)
        outcome.matched += len(hits)
        if _plain(got) != _plain(expected):
            outcome.wrong.append(f"{name}: got {got.num_rows} rows, expected {len(hits)}, or other ones")
        seqs = [seq for each in readers.deliveries[name] for seq in each.seqs.tolist()]
        if seqs != sorted(set(seqs)):
            outcome.wrong.append(f"{name}: rows twice or out of order")
        if status["subscriptions"][name]["difference"]:
            outcome.wrong.append(f"{name}: ledger difference {status['subscriptions'][name]['difference']}")


def _plain(rows: Any) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def main() -> None:
    """Run rounds and print one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    rounds = parser.parse_args().rounds
    total = ChaosRound()
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", flush=True)
        with tempfile.TemporaryDirectory(prefix="headgate chaos ") as place:
            outcome = asyncio.run(run_round(Path(place)))
        print(f"  {outcome}", flush=True)
        for name in ("driver_kills", "relay_kills", "server_kills", "rows", "matched", "seconds", "wrong"):
            setattr(total, name, getattr(total, name) + getattr(outcome, name))
    print(json.dumps({"rounds": rounds, **total.__dict__}))
    sys.exit(1 if total.wrong else 0)


if __name__ == "__main__":
    main()
