"""A whole deployment in a laboratory: the service at home, a relay on every host, restarted when they end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from headgate.fabric.accounts import OPERATOR_FILE
from headgate.fabric.membership import MEMBER_FILE
from headgate.model import Deployment
from headgate_studies.lab.hosts import LabError
from headgate_studies.lab.laboratory import Laboratory

PORT: Final = 4222
_LOOK_S: Final = 0.25
_AGAIN_S: Final = 1.0


def issue_certificates(directory: Path, address: str) -> tuple[Path, Path, Path]:
    """A certificate for an address of the laboratory, its key, and the authority that signed it."""
    import trustme

    authority = trustme.CA()
    issued = authority.issue_cert(address)
    places = directory / "server.pem", directory / "server.key", directory / "authority.pem"
    issued.cert_chain_pems[0].write_to_path(places[0])
    issued.private_key_pem.write_to_path(places[1])
    authority.cert_pem.write_to_path(places[2])
    return places


def home_of(deployment: Deployment) -> str:
    """Where the service and the Spark job run: at the root of the first stream."""
    for stream in deployment.streams.values():
        return stream.root
    return next(iter(deployment.sites))


@dataclass
class _Role:
    """A program that should run on a host: an `invited` one joins first."""

    site: str
    command: list[str]
    after: Path | None = None
    invited: bool = False
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    next_s: float = 0.0


def as_hosts(file: Path, lab: Laboratory, home: str) -> tuple[Path, tuple[str, ...]]:
    """A copy of a deployment file in which sites are hosts at their addresses in a laboratory, and which those are.

    Home, and whatever a stream starts at, has its logs at home.
    """
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    roots = {stream.root for stream in lab.deployment.streams.values()}
    hosts = tuple(site for site in lab.hosts if site != home and site not in roots)
    for site in hosts:
        address = f"tls://{lab.hosts[site].address}:{PORT}"
        document["sites"][site] = {"nats": address, **(document["sites"][site] or {})}
    written = lab.directory / "deployment.yaml"
    written.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return written, hosts


@dataclass
class RunningDeployment:
    """The programs of a deployment in a laboratory. `watch` keeps them running."""

    lab: Laboratory
    file: Path
    home: str
    up_options: Sequence[str] = ()
    roles: list[_Role] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    """What a program needs to reach the service from any host."""
    hosts: tuple[str, ...] = ()
    """The sites that have a server of their own: they join by an invitation."""

    def __post_init__(self) -> None:
        lab, home = self.lab, self.lab.hosts[self.home]
        program = [sys.executable, "-m", "headgate.cli.app"]
        file, self.hosts = as_hosts(self.file, lab, self.home)
        certificate, key, authority = issue_certificates(home.directory, home.address)
        credentials = self.state / "nats" / OPERATOR_FILE
        listen = ["--listen", f"{home.address}:{PORT}", "--tls-cert", str(certificate), "--tls-key", str(key)]
        listen += ["--state-dir", str(self.state), "--no-relays"]
        self.environment = {"HEADGATE_TLS_CA": str(authority)}
        self.roles.append(_Role(self.home, [*program, "up", str(file), *listen, *self.up_options]))
        reached = ["--nats", f"tls://{home.address}:{PORT}", "--creds", str(credentials)]
        for site in lab.hosts:
            if site in self.hosts:
                self.roles.append(self._joining(site, [*program, "join"], credentials))
            else:
                self.roles.append(_Role(site, [*program, "relay", "--site", site, *reached], credentials))

    @property
    def state(self) -> Path:
        """The state directory of the service."""
        return self.lab.hosts[self.home].directory / "state"

    def state_of(self, site: str) -> Path:
        """The state directory of a site that is a host."""
        return self.lab.hosts[site].directory / "state"

    def _joining(self, site: str, join: list[str], credentials: Path) -> _Role:
        """The role of a host, which begins with an invitation."""
        host = self.lab.hosts[site]
        certificate, key, _ = issue_certificates(host.directory, host.address)
        options = ["--state-dir", str(self.state_of(site)), "--tls-cert", str(certificate), "--tls-key", str(key)]
        return _Role(site, [*join, *options], credentials, invited=True)

    def _invitation(self, site: str) -> str | None:
        """A token for a site; None while the service does not answer."""
        command = [sys.executable, "-m", "headgate.cli.app", "invite", site, "--state-dir", str(self.state)]
        inside = ["ip", "netns", "exec", self.lab.hosts[self.home].namespace, *command]
        done = subprocess.run(inside, capture_output=True, text=True, check=False, env={**os.environ})
        return done.stdout.strip() if done.returncode == 0 else None

    def watch(self, ended: Callable[[], bool]) -> None:
        """Start everything, and start again what ends, until `ended`."""
        while not ended():
            self.look()
            time.sleep(_LOOK_S)

    def look(self) -> None:
        """Start what does not run and may."""
        for role in self.roles:
            self._keep(role)

    def _keep(self, role: _Role) -> None:
        now = time.monotonic()
        if role.process is not None and role.process.poll() is not None:
            if role is self.roles[0]:
                output = self.lab.hosts[role.site].directory / "output.txt"
                said = output.read_text(errors="replace")[-2000:] if output.exists() else "the laboratory was removed"
                raise LabError(f"`headgate up` has ended at {role.site}: {said.strip()}")
            role.process, role.next_s = None, now + _AGAIN_S
        if role.process is None and now >= role.next_s and (role.after is None or role.after.exists()):
            command = role.command
            if role.invited and not (self.state_of(role.site) / MEMBER_FILE).exists():
                token = self._invitation(role.site)
                if token is None:
                    role.next_s = now + _AGAIN_S
                    return
                command = [*command, token]
            role.process = self.lab.start(role.site, command, self.environment)
            role.starts += 1
