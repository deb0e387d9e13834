"""A whole deployment in a laboratory: the service at home, a relay on every host, restarted when they end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headgate.fabric.accounts import OPERATOR_FILE
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
    """A program that should run on a host."""

    site: str
    command: list[str]
    after: Path | None = None
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    next_s: float = 0.0


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

    def __post_init__(self) -> None:
        lab, home = self.lab, self.lab.hosts[self.home]
        program = [sys.executable, "-m", "headgate.cli.app"]
        state = home.directory / "state"
        certificate, key, authority = issue_certificates(lab.directory, home.address)
        credentials = state / "nats" / OPERATOR_FILE
        listen = ["--listen", f"{home.address}:{PORT}", "--tls-cert", str(certificate), "--tls-key", str(key)]
        listen += ["--state-dir", str(state), "--no-relays"]
        self.environment = {"HEADGATE_TLS_CA": str(authority)}
        self.roles.append(_Role(self.home, [*program, "up", str(self.file.resolve()), *listen, *self.up_options]))
        reached = ["--nats", f"tls://{home.address}:{PORT}", "--creds", str(credentials)]
        for site in lab.hosts:
            self.roles.append(_Role(site, [*program, "relay", "--site", site, *reached], credentials))

    def watch(self, ended: Callable[[], bool]) -> None:
        """Start everything, and start again what ends, until `ended`."""
        while not ended():
            for role in self.roles:
                self._keep(role)
            time.sleep(_LOOK_S)

    def _keep(self, role: _Role) -> None:
        now = time.monotonic()
        if role.process is not None and role.process.poll() is not None:
            if role is self.roles[0]:
                output = self.lab.hosts[role.site].directory / "output.txt"
                said = output.read_text(errors="replace")[-2000:] if output.exists() else "the laboratory was removed"
                raise LabError(f"`headgate up` has ended at {role.site}: {said.strip()}")
            role.process, role.next_s = None, now + _AGAIN_S
        if role.process is None and now >= role.next_s and (role.after is None or role.after.exists()):
            role.process = self.lab.start(role.site, role.command, self.environment)
            role.starts += 1
