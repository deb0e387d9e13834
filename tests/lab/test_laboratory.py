"""Hosts on this machine: what travels between them takes the time and the bandwidth that the file says."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headgate.model import Deployment
from headgate.model.site import Link, Links, Site
from headgate_studies.lab import Laboratory, hosts, unavailable
from headgate_studies.lab.laboratory import clear

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"no laboratory here: {unavailable()}")

DELAY_S, RATE = 0.04, 1e6
SERVE = """
import socket
server = socket.create_server(("0.0.0.0", 9))
while True:
    connection, _ = server.accept()
    with connection:
        while data := connection.recv(65536):
            connection.sendall(data[:1])
"""
# Prints the time of a connection, and of sending so many bytes until the last is answered.
SEND = """
import socket, sys, time
began = time.monotonic()
with socket.create_connection((sys.argv[1], 9), timeout=20) as connection:
    connected = time.monotonic()
    left = int(sys.argv[2])
    connection.sendall(bytes(left))
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(65536):
        pass
    print(connected - began, time.monotonic() - connected)
"""


def deployment() -> Deployment:
    pair = frozenset(("a", "b"))
    sites = {"a": Site("a"), "b": Site("b"), "c": Site("c", upload_bytes_per_s=RATE / 2)}
    return Deployment({}, sites, links=Links(0.0, {pair: Link(pair, DELAY_S, RATE)}))


def send(lab: Laboratory, sender: str, receiver: str, size: int) -> tuple[float, float]:
    """How long a connection takes, and the bytes after it."""
    command = ["ip", "netns", "exec", lab.hosts[sender].namespace, sys.executable, "-c", SEND]
    done = subprocess.run(
        [*command, lab.hosts[receiver].address, str(size)], capture_output=True, text=True, check=True, timeout=40
    )
    connected, sent = map(float, done.stdout.split())
    return connected, sent


def serve(lab: Laboratory, site: str) -> None:
    """Answer on a host, and wait until it does."""
    lab.start(site, [sys.executable, "-c", SERVE])
    deadline = time.monotonic() + 20
    while True:
        with contextlib.suppress(subprocess.CalledProcessError):
            send(lab, site, site, 1)
            return
        assert time.monotonic() < deadline


@pytest.mark.long
def test_delay_rate_counters_cuts_and_uploads(tmp_path: Path) -> None:
    with Laboratory(deployment(), f"t{os.getpid()}", root=tmp_path) as lab:
        serve(lab, "b")
        connected, _ = send(lab, "a", "b", 1)
        assert connected > 2 * DELAY_S
        before = hosts.interface_bytes(lab.hosts["b"].namespace)[0]
        size = 1_000_000
        _, sent = send(lab, "a", "b", size)
        assert sent > 0.8 * size / RATE  # it may take longer on a busy machine, never less
        _, sent = send(lab, "c", "b", size)
        assert sent > 0.8 * size / (RATE / 2)
        deadline = time.monotonic() + 5
        while (carried := lab.carried()).get(("c", "b"), 0) < size:
            assert time.monotonic() < deadline
        received = hosts.interface_bytes(lab.hosts["b"].namespace)[0] - before
        assert received == pytest.approx(carried["a", "b"] + carried["c", "b"], rel=0.05)
        assert carried["a", "b"] == pytest.approx(size, rel=0.1)
        lab.change("a", "b", cut=True)
        soon = ["timeout", "2", "ip", "netns", "exec", lab.hosts["a"].namespace, sys.executable, "-c", SEND]
        assert subprocess.run([*soon, lab.hosts["b"].address, "1"], capture_output=True, check=False).returncode
        lab.change("a", "b", cut=False)
        send(lab, "a", "b", 1)
    assert hosts.namespaces(lab.name) == []


def test_one_that_was_killed_leaves_no_process_and_is_cleared(tmp_path: Path) -> None:
    name = f"k{os.getpid()}"
    program = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from headgate.model import Deployment
from headgate.model.site import Site
from headgate_studies.lab import Laboratory
lab = Laboratory(Deployment({{}}, {{"a": Site("a"), "b": Site("b")}}), {name!r}, root=Path({str(tmp_path)!r}))
lab.__enter__()
print(lab.start("a", [sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        inside = int(killed.stdout.readline())
        carrier = int((tmp_path / name / "carrier.pid").read_text())
        killed.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}/cmdline").exists() and _alive(pid) for pid in (inside, carrier)):
        assert time.monotonic() < deadline
    assert len(hosts.namespaces(name)) == 2
    assert clear(name, tmp_path) == 2
    assert hosts.namespaces(name) == []
    assert clear(name, tmp_path) == 0


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.long
def test_the_command_makes_hosts_and_removes_them(tmp_path: Path) -> None:
    name = f"c{os.getpid()}"
    file = tmp_path / "two.yaml"
    file.write_text(
        "streams: {s: {root: one, source: {format: generator, kind: fleet}, key: vehicle, event_time: at}}\n"
        "sites: {one: {}, other: {upload: 8 Mbit/s}}\nlinks: {default_delay: 10 ms}\n"
    )
    command = [sys.executable, "-c", "from headgate_studies.cli.lab import lab; lab()"]
    options = ["--name", name]
    with subprocess.Popen(
        [*command, "up", str(file), "--bare", *options], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        lines = [running.stdout.readline() for _ in range(2)]
        assert [line.split()[:2] for line in lines] == [["one", "10.77.0.1"], ["other", "10.77.0.2"]]
        shown = subprocess.run(
            [*command, "exec", *options, "other", "ip", "-j", "addr"], capture_output=True, text=True, check=True
        )
        assert "10.77.0.2" in shown.stdout
        changed = subprocess.run(
            [*command, "link", *options, "one", "other", "--rate", "1 Mbit/s", "--cut"], capture_output=True, check=True
        )
        assert json.loads(changed.stdout)["cut"] is True
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 0
    assert hosts.namespaces(name) == []
