"""A deployment file as a laboratory: a namespace for each site, the file's rates and delays between them.

What has to be found again after a kill is in one directory per laboratory: `hosts.json`, `network.json`, the number of
the process that carries packets, and the state directories of the hosts. A laboratory that was killed is removed by
`clear`, which also the next one of the same name does first.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from headgate.model import Deployment
from headgate.private import make_private
from headgate_studies.lab import hosts
from headgate_studies.lab.hosts import MOST_HOSTS, LabError
from headgate_studies.lab.network import LabNetwork
from headgate_studies.lab.network import Path as NetworkPath

ROOT: Final = Path("/run/headgate-lab")
_READY_S: Final = 20.0
_STOP_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class LabHost:
    """A site of a laboratory."""

    site: str
    number: int
    namespace: str
    directory: Path

    @property
    def address(self) -> str:
        """Its address in the laboratory's network."""
        return str(hosts.address(self.number))


def network_of(deployment: Deployment, sites: Sequence[str], jitter: float = 0.0, loss: float = 0.0) -> LabNetwork:
    """The network of a deployment: delay and capacity of each pair of sites; jitter is a part of the delay."""
    numbers = {site: number for number, site in enumerate(sites, 1)}
    network = LabNetwork()
    for one in sites:
        for other in sites:
            link = deployment.links.between(one, other)
            if one != other:
                path = NetworkPath(link.delay_s, link.delay_s * jitter, loss, link.capacity_bytes_per_s)
                network.paths[numbers[one], numbers[other]] = path
        download = deployment.sites[one].download_bytes_per_s
        if download is not None:
            network.downloads[numbers[one]] = download
    return LabNetwork.parse(network.document())


class Laboratory:
    """Hosts and the network between them. Use it as a context manager; whatever runs in it ends with it."""

    def __init__(
        self, deployment: Deployment, name: str = "lab", *, jitter: float = 0.0, loss: float = 0.0, root: Path = ROOT
    ) -> None:
        sites = list(deployment.sites)
        if len(sites) > MOST_HOSTS:
            raise LabError(f"{len(sites)} sites are more than the {MOST_HOSTS} that a laboratory has addresses for")
        self.name = name
        self.directory = root / name
        self.hosts = {
            site: LabHost(site, number, hosts.namespace(name, site), self.directory / site)
            for number, site in enumerate(sites, 1)
        }
        self.deployment = deployment
        self.network = network_of(deployment, sites, jitter, loss)
        self._carrier: subprocess.Popen[bytes] | None = None
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        reason = hosts.unavailable()
        if reason is not None:
            raise LabError(f"no laboratory can be made here: {reason}")
        clear(self.name, self.directory.parent)
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make(self) -> None:
        make_private(self.directory)
        listed = []
        for host in self.hosts.values():
            hosts.make(host.namespace)
            host.directory.mkdir()
            upload = self.deployment.sites[host.site].upload_bytes_per_s
            listed.append({"number": host.number, "namespace": host.namespace, "upload_bytes_per_s": upload})
        (self.directory / "hosts.json").write_text(json.dumps(listed))
        self._write_network()
        command = [sys.executable, "-m", "headgate_studies.lab.carrier", str(self.directory)]
        self._carrier = subprocess.Popen(_guarded(command))
        deadline = time.monotonic() + _READY_S
        while not (self.directory / "carried.json").exists():
            if self._carrier.poll() is not None or time.monotonic() > deadline:
                raise LabError("the process that carries packets did not start", hint="its message is above")
            time.sleep(0.02)

    def _write_network(self) -> None:
        (self.directory / "network.json").write_text(json.dumps(self.network.document()))

    def change(self, one: str, other: str, **figures: float | bool | None) -> None:
        """Give the path between two sites other figures, in both directions; see `network.Path`."""
        ends = self.hosts[one].number, self.hosts[other].number
        for pair in (ends, ends[::-1]):
            self.network.paths[pair] = replace(self.network.paths[pair], **figures)  # type: ignore[arg-type] # by name
        self._write_network()
        assert self._carrier is not None
        self._carrier.send_signal(signal.SIGHUP)

    def start(
        self, site: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Run a program on a host; it ends with the laboratory, however that ends."""
        # `ip` forgets what a guard around it has asked of the kernel, so the guard stands inside.
        inside = ["ip", "netns", "exec", self.hosts[site].namespace, *_guarded(command)]
        log = (self.hosts[site].directory / "output.txt").open("ab")
        with log:
            process = subprocess.Popen(
                inside,
                env={**os.environ, **(environment or {}), "HEADGATE_PARENT": str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._running.append(process)
        return process

    def carried(self) -> dict[tuple[str, str], int]:
        """Bytes that the network has carried from one site to another, as its packets say."""
        names = {str(host.number): host.site for host in self.hosts.values()}
        document = json.loads((self.directory / "carried.json").read_text())
        ends = {key: key.split(">") for key in document}
        return {(names[one], names[other]): document[key]["bytes"] for key, (one, other) in ends.items()}

    def close(self) -> None:
        """End everything that runs in it, and remove it."""
        for process in reversed(self._running):
            process.terminate()
        for process in self._running:
            _wait(process)
        self._running = []
        if self._carrier is not None:
            self._carrier.terminate()
            _wait(self._carrier)
            self._carrier = None
        clear(self.name, self.directory.parent)


def clear(name: str, root: Path = ROOT) -> int:
    """Remove what there is of a laboratory, also of one that was killed; returns how many hosts it had."""
    found = hosts.namespaces(name)
    for each in found:
        hosts.remove(each)
    directory = root / name
    with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
        pid = int((directory / "carrier.pid").read_text())
        if b"headgate_studies.lab.carrier" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(directory, ignore_errors=True)
    return len(found)


def _guarded(command: Sequence[str]) -> list[str]:
    """The command so that it is killed when this process ends, however it does."""
    program = shutil.which(command[0]) or command[0]
    return [sys.executable, "-m", "headgate.fabric.guard", program, *command[1:]]


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
