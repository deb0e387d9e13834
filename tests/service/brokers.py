"""Brokers of somebody else, for tests: a mosquitto and a nats-server without logs, as processes."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate.fabric.server import find_server

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(port: int, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server that listens at a port of this machine."""
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert running.poll() is None, command
                assert time.monotonic() < deadline, command
                time.sleep(0.05)
        yield running
    finally:
        running.kill()
        running.wait(timeout=30)


@contextmanager
def mosquitto(directory: Path, port: int, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A broker that keeps sessions in a directory; `more` are lines of its configuration."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = [
        f"listener {port} 127.0.0.1", "persistence true", f"persistence_location {directory}/", "user root",
        *(more or ["allow_anonymous true"]),
    ]  # fmt: skip
    config = directory / "mosquitto.conf"
    config.write_text("\n".join(lines) + "\n")
    assert MOSQUITTO is not None
    with process(port, MOSQUITTO, "-c", str(config)) as running:
        yield running


@contextmanager
def nats_server(port: int, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A NATS server that has no logs."""
    with process(port, str(find_server()), "-a", "127.0.0.1", "-p", str(port), *more) as running:
        yield running


def send(port: int, topic: str, lines: list[str], *more: str) -> None:
    """Publish each line as a message of MQTT."""
    command = ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(port), "-t", topic, "-l", *more]
    subprocess.run(command, input="".join(f"{line}\n" for line in lines), text=True, check=True, timeout=60)
