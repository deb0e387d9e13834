"""A standalone Spark cluster on loopback: a master and workers as processes, each in a directory of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import psutil

from headgate.pipeline.java import java_home

_HOST: Final = "127.0.0.1"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as found:
        found.bind((_HOST, 0))
        return int(found.getsockname()[1])


class SparkCluster:
    """A master and named workers; what runs when the block ends is killed.

    Workers have Python on their path by its name alone, and no library of ours. Each has an address of its own, since
    Spark runs a slow task a second time only on another host. The master keeps what it knows in its directory, so that
    one that is started again goes on with the workers and applications of the one before.
    """

    def __init__(self, directory: Path, properties: Path | None = None) -> None:
        """`properties` are given to all in `conf/spark-defaults.conf`."""
        import pyspark

        self.directory = directory
        self._properties = properties
        self.port, self.page_port = free_port(), free_port()
        self._home = Path(pyspark.__file__).parent
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._addresses = {"master": _HOST}

    @property
    def url(self) -> str:
        """What sessions and workers connect to."""
        return f"spark://{_HOST}:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._processes):
            self.kill(name)

    def start_master(self) -> None:
        """Start the master, or the one after it."""
        kept = self.directory / "master-state"
        kept.mkdir(parents=True, exist_ok=True)
        options = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={kept}"
        ports = ("--port", str(self.port), "--webui-port", str(self.page_port))
        self._start("master", "org.apache.spark.deploy.master.Master", *ports, java=options)

    def start_worker(self, name: str, cores: int = 1, memory: str = "1g") -> None:
        """Start a worker that gives so many cores to executors."""
        given = ("--cores", str(cores), "--memory", memory, "--work-dir", str(self.directory / name / "work"))
        self._start(name, "org.apache.spark.deploy.worker.Worker", *given, "--webui-port", str(free_port()), self.url)

    def kill(self, name: str) -> None:
        """Kill the master, or a worker with its executors."""
        process = self._processes.pop(name)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)

    def executors(self, name: str) -> list[psutil.Process]:
        """The executors of a worker, each with the processes below it."""
        return psutil.Process(self._processes[name].pid).children(recursive=True)

    def state(self) -> dict[str, Any]:
        """What the master's page says, as JSON: its status, workers and applications."""
        with urllib.request.urlopen(f"http://{_HOST}:{self.page_port}/json/", timeout=30) as answer:
            return dict(json.loads(answer.read()))

    def wait(self, workers: int, timeout_s: float = 120.0) -> None:
        """Wait until the master is in force and has so many workers."""
        deadline, found = time.monotonic() + timeout_s, {}
        while time.monotonic() < deadline:
            with suppress(OSError):  # it does not listen yet
                found = self.state()
                if found["status"] == "ALIVE" and found["aliveworkers"] >= workers:
                    return
            time.sleep(0.1)
        raise TimeoutError(f"the master has not got {workers} workers in {timeout_s:g} s: {found}")

    def _start(self, name: str, *arguments: str, java: str = "") -> None:
        place = self.directory / name
        place.mkdir(parents=True, exist_ok=True)
        host = self._addresses.setdefault(name, f"127.0.0.{len(self._addresses) + 1}")
        # By name alone: where no such interpreter is on the path, the one that this environment was made from.
        environment = {
            "PATH": os.pathsep.join([str(Path(sys.base_prefix) / "bin"), "/usr/bin", "/bin"]),
            "SPARK_HOME": str(self._home),
            "JAVA_HOME": str(java_home()),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_JAVA_OPTS": java,
            "HOME": str(self.directory),
        }
        if self._properties is not None:
            settings = self.directory / "conf" / "spark-defaults.conf"
            settings.parent.mkdir(parents=True, exist_ok=True)
            settings.write_text(self._properties.read_text(encoding="utf-8"), encoding="utf-8")
            environment["SPARK_CONF_DIR"] = str(settings.parent)
        command = [str(self._home / "bin" / "spark-class"), *arguments[:1], "--host", host, *arguments[1:]]
        with (place / "said.txt").open("ab") as said:
            options: dict[str, Any] = {"cwd": place, "env": environment, "start_new_session": True}
            self._processes[name] = subprocess.Popen(command, stdout=said, stderr=said, **options)
