"""The job on a standalone cluster: executors with directories and a Python of their own, killed one by one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.test_program import Place, ended
from tests.live import sites, until

from headgate.client import SyncClient
from headgate.fabric.keys import seed_of, statement_of
from headgate.matching.build import SCAN_LIMIT
from headgate.model.schema import type_name
from headgate.pipeline.java import java_home
from headgate.pipeline.sources import GENERATOR_SCHEMAS, generate

pytestmark = [pytest.mark.nats, pytest.mark.live, pytest.mark.long, pytest.mark.timeout(1500)]

STEP = 400
ROWS = 3 * STEP
WATCHED = ("all", "s10", "s25")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def cluster(directory: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A master and two workers, each in a directory of its own; they have Python, and no library of ours."""
    import pyspark

    home, port = Path(pyspark.__file__).parent, free_port()
    # By name alone: where no such interpreter is on the path, the one that this environment was made from.
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.base_prefix) / "bin"), "/usr/bin", "/bin"]),
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "HOME": str(directory),
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> None:
        place = directory / name
        place.mkdir(parents=True)
        with (place / "said.txt").open("wb") as said:
            command = [str(home / "bin" / "spark-class"), *arguments]
            options: dict[str, Any] = {"cwd": place, "env": environment, "start_new_session": True}
            started.append(subprocess.Popen(command, stdout=said, stderr=said, **options))

    url = f"spark://127.0.0.1:{port}"
    at = ("--host", "127.0.0.1")
    start("master", "org.apache.spark.deploy.master.Master", *at, "--port", str(port), "--webui-port", str(free_port()))
    for name in ("one", "two"):
        ours = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / name / "work"))
        start(name, "org.apache.spark.deploy.worker.Worker", *at, *ours, "--webui-port", str(free_port()), url)
    try:
        yield url, started
    finally:
        for process in started:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)


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


def expected(low: float | None) -> Counter[tuple[Any, ...]]:
    rows = generate("fleet", 3, 0, ROWS).to_pylist()
    return Counter((row["vehicle"], row["fuel"]) for row in rows if low is None or low <= row["speed"] <= low + 3)


def page(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def test_rows_are_those_of_one_machine_whoever_is_killed_and_no_page_shows_a_secret(tmp_path: Path) -> None:
    ui = free_port()
    place = Place(tmp_path / "state", deployment(tmp_path))
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
    options = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "700m",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(ui),
    }
    given = [word for key, value in options.items() for word in ("--spark", f"{key}={value}")]
    with cluster(tmp_path / "cluster") as (url, processes), place:
        up = ("up", str(place.file), "--no-http", "--master", url, "--job-archive", str(archive))
        service = place.ready(place.start(*up, *given), "up;")
        with SyncClient(state_dir=place.state) as client:

            def rows_in() -> int:
                return int(client.control("status")["streams"]["fleet"]["rows_in"])

            def wait(least: int) -> None:
                async def enough() -> bool:
                    return rows_in() >= least

                try:
                    asyncio.run(until(enough, 400))
                except TimeoutError as error:
                    raise AssertionError((place.state / "job.log").read_text()[-4000:]) from error

            def publish(number: int) -> None:
                client.publish("fleet", generate("fleet", 3, number * STEP, (number + 1) * STEP))

            publish(0)
            wait(STEP)
            application = json.loads(page(ui, "/api/v1/applications"))[0]["id"]
            shown = [page(ui, path) for path in ("/environment/", "/executors/", "/SQL/", "/StreamingQuery/", "/jobs/")]
            shown.append(page(ui, f"/api/v1/applications/{application}/environment"))
            secrets = [
                text(file.read_text()) for file in place.state.rglob("*.creds") for text in (seed_of, statement_of)
            ]
            assert len(secrets) >= 4
            assert "spark.archives" in "".join(shown)
            assert [each for each in secrets if each in "".join(shown)] == []
            end(processes[1])  # a worker, with its executor
            publish(1)
            wait(2 * STEP)
            driver = int(client.control("status")["job"]["pid"])
            os.kill(driver, signal.SIGKILL)
            publish(2)
            wait(ROWS)
            for name in WATCHED:
                found: Counter[tuple[Any, ...]] = Counter()
                wanted = expected(None if name == "all" else float(name[1:]))
                for delivery in client.subscribe(name, timeout_s=20):
                    found.update((row["vehicle"], row["fuel"]) for row in delivery.to_pylist())
                    if found.total() >= wanted.total():
                        break
                assert found == wanted, name
        mapped = {
            path.parts[len(tmp_path.parts) + 1] for path in (tmp_path / "cluster").rglob("headgate-indexes/fleet/*")
        }
        assert mapped <= {"one", "two"}
        assert mapped
        assert "is compiled from the catalog" not in (place.state / "job.log").read_text()
        assert ended(service, signal.SIGTERM) == 0
