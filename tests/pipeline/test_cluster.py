"""The job on a standalone cluster: executors with directories of their own, killed, stopped, and without a master."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from tests.cli.test_program import Place, ended
from tests.live import sites, until

from headgate.client import SyncClient
from headgate.fabric.keys import seed_of, statement_of
from headgate.matching.build import SCAN_LIMIT
from headgate.model.schema import type_name
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate
from headgate_studies.spark_cluster import SparkCluster, free_port

pytestmark = [pytest.mark.nats, pytest.mark.live, pytest.mark.long, pytest.mark.timeout(1500)]

STEP = 400
WATCHED = ("all", "s10", "s25")
WORKERS = ("one", "two")


def deployment(directory: Path) -> Path:
    low = {"stream": "fleet", "site": "leaf", "where": "speed BETWEEN $low AND $low + 3"}
    schema = {column.name: type_name(column.type) for column in GENERATOR_SCHEMAS["fleet"].columns}
    source = {"format": "nats"}
    document = {
        "sites": sites("root", "leaf"),
        "streams": {"fleet": {"root": "root", "source": source, "schema": schema, "key": "vehicle"}},
        "plan": {"fleet": {"leaf": "root"}},
        "subscriptions": {
            "all": {"stream": "fleet", "site": "leaf"},
            **{f"s{k}": {**low, "context": {"low": float(k)}} for k in range(SCAN_LIMIT + 6)},
        },
    }
    file = directory / "deployment.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def expected(low: float | None, steps: int) -> Counter[tuple[Any, ...]]:
    rows = generate("fleet", 3, 0, steps * STEP).to_pylist()
    return Counter((row["vehicle"], row["fuel"]) for row in rows if low is None or low <= row["speed"] <= low + 3)


def page(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return str(answer.read().decode())


@dataclass
class Running:
    """A deployment whose job runs on a cluster of two workers."""

    place: Place
    cluster: SparkCluster
    client: SyncClient
    ui: int
    published: int = 0

    def publish(self) -> None:
        """The next rows, of which there are so many in every step."""
        first = self.published * STEP
        self.client.publish("fleet", generate("fleet", 3, first, first + STEP))
        self.published += 1

    def rows_in(self) -> int:
        return int(self.client.control("status")["streams"]["fleet"]["rows_in"])

    def until(self, check: Callable[[], bool]) -> None:
        async def asked() -> bool:
            return check()

        try:
            asyncio.run(until(asked, 400))
        except TimeoutError as error:
            raise AssertionError((self.place.state / "job.log").read_text()[-4000:]) from error

    def take(self) -> None:
        """Publish the next rows and wait until they are committed."""
        self.publish()
        self.until(lambda: self.rows_in() >= self.published * STEP)

    def driver(self) -> int:
        return int(self.client.control("status")["job"]["pid"])

    def application(self) -> str:
        return str(json.loads(page(self.ui, "/api/v1/applications"))[0]["id"])

    def check(self) -> None:
        """Every reader gets what its filter selects of the published rows, each row once."""
        for name in WATCHED:
            found: Counter[tuple[Any, ...]] = Counter()
            wanted = expected(None if name == "all" else float(name[1:]), self.published)
            for delivery in self.client.subscribe(name, timeout_s=20):
                found.update((row["vehicle"], row["fuel"]) for row in delivery.to_pylist())
                if found.total() >= wanted.total():
                    break
            assert found == wanted, name
        assert self.rows_in() == self.published * STEP


@contextmanager
def running(directory: Path, *more: str, **options: str) -> Iterator[Running]:
    """A deployment on a cluster, with further words for `up` and settings of Spark, whose dots are written as `_`."""
    ui, place = free_port(), Place(directory / "state", deployment(directory))
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "700m",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(ui),
        **{f"spark.{name.replace('_', '.')}": value for name, value in options.items()},
    }
    given = [word for key, value in settings.items() for word in ("--spark", f"{key}={value}")]
    with SparkCluster(directory / "cluster") as cluster, place:
        cluster.start_master()
        for name in WORKERS:
            cluster.start_worker(name)
        up = ("up", str(place.file), "--no-http", "--master", cluster.url)
        service = place.ready(place.start(*up, *more, *given), "up;")
        with SyncClient(state_dir=place.state) as client:
            yield Running(place, cluster, client, ui)
        assert ended(service, signal.SIGTERM) == 0


def test_rows_are_those_of_one_machine_whoever_is_killed_and_no_page_shows_a_secret(tmp_path: Path) -> None:
    archive = tmp_path / "job.tar.gz"
    assert (
        "for Python"
        in subprocess.run(
            [sys.executable, "-m", "headgate.cli", "job", "pack", str(archive)],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout
    )
    with running(tmp_path, "--job-archive", str(archive)) as job:
        job.take()
        shown = [page(job.ui, path) for path in ("/environment/", "/executors/", "/SQL/", "/StreamingQuery/", "/jobs/")]
        shown.append(page(job.ui, f"/api/v1/applications/{job.application()}/environment"))
        state = job.place.state
        secrets = [text(file.read_text()) for file in state.rglob("*.creds") for text in (seed_of, statement_of)]
        assert len(secrets) >= 4
        assert "spark.archives" in "".join(shown)
        assert [each for each in secrets if each in "".join(shown)] == []
        job.cluster.kill("one")  # with its executor
        job.take()
        os.kill(job.driver(), signal.SIGKILL)
        job.take()
        job.check()
        mapped = {
            path.parts[len(tmp_path.parts) + 1] for path in (tmp_path / "cluster").rglob("headgate-indexes/fleet/*")
        }
        assert mapped <= set(WORKERS)
        assert mapped
        assert "is compiled from the catalog" not in (state / "job.log").read_text()


def speculated(job: Running) -> list[dict[str, Any]]:
    """The tasks that Spark started a second time because the first took too long."""
    stages = f"/api/v1/applications/{job.application()}/stages"
    tasks = json.loads(page(job.ui, f"{stages}?details=true"))
    return [task for stage in tasks for task in stage.get("tasks", {}).values() if task["speculative"]]


def test_a_worker_that_stands_still_is_overtaken_and_adds_nothing_when_it_goes_on(tmp_path: Path) -> None:
    """Heartbeats are waited for longer than the test lasts: what gets the rows through is speculation alone."""
    patient = {"network_timeout": "1500s", "storage_blockManagerHeartbeatTimeoutMs": "1500s"}
    # A stage of one task has none to be compared with, so a time says when it is slow. Without waiting for the executor
    # that has the rows already, each of two tasks goes to another one.
    eager = {"speculation": "true", "speculation_multiplier": "2", "speculation_task_duration_threshold": "5s"}
    with running(tmp_path, "--partitions", "2", locality_wait="0s", **patient, **eager) as job:
        job.take()
        job.until(lambda: all(job.cluster.executors(name) for name in WORKERS))
        job.take()
        driver = job.driver()
        stopped = job.cluster.executors("two")
        for process in stopped:
            process.suspend()
        job.take()
        job.until(lambda: bool(speculated(job)))
        assert {process.name(): process.status() for process in stopped}["java"] == psutil.STATUS_STOPPED
        for process in stopped:
            process.resume()
        job.take()
        job.take()
        assert job.driver() == driver
        job.check()


def test_a_master_that_starts_again_gives_executors_to_the_job_that_ran_on_without_it(tmp_path: Path) -> None:
    with running(tmp_path) as job:
        job.take()
        application, driver = job.application(), job.driver()
        job.cluster.kill("master")
        job.take()
        job.cluster.start_master()
        job.cluster.wait(len(WORKERS))
        job.until(lambda: [each["id"] for each in job.cluster.state()["activeapps"]] == [application])
        for name in WORKERS:
            for process in job.cluster.executors(name):
                process.kill()
        job.take()
        assert (job.application(), job.driver()) == (application, driver)
        job.check()
