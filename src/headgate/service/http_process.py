"""The HTTP API beside a deployment: a socket that the service opens, and a child process that serves it.

The socket stays open while the child is started again, so that its address never changes and nobody is refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import math
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from headgate.errors import HeadgateError
from headgate.fabric.place import write_whole
from headgate.model import RequestLimits
from headgate.service.processes import ChildProcess

CONFIG: Final = "HEADGATE_HTTP_CONFIG"
"""The environment variable with the configuration of the process, which has the credentials for NATS, as JSON."""
DEFAULT_PORT: Final = 8787
_BACKLOG: Final = 256


@dataclass(frozen=True, slots=True)
class FaceConfig:
    """What the process of the API needs to know."""

    fd: int
    url: str
    namespace: str
    state_dir: str
    nats_options: Mapping[str, Any] = field(default_factory=dict)
    log_level: str = "warning"
    log_format: str = "text"
    tls: tuple[str, str] | None = None
    """The files of a certificate and its key, where it speaks TLS."""
    mqtt: bool = False
    tls_ca: str | None = None
    """The file of the authority that signs its clients' certificates, where they need one."""
    limits: RequestLimits = field(default_factory=RequestLimits)
    """What one user may take."""

    @classmethod
    def read(cls, text: str) -> Self:
        """The configuration of a text."""
        found = json.loads(text)
        tls, limits = found.get("tls"), RequestLimits(**found.get("limits", {}))
        return cls(**{**found, "tls": tuple(tls) if tls else None, "limits": limits})


def parse_address(text: str) -> tuple[str, int]:
    """A host and a port, as in `127.0.0.1:8080`, `localhost:0` or `[::1]:8080`; only addresses of this machine.

    >>> parse_address("localhost:8080"), parse_address("[::1]:0")
    (('127.0.0.1', 8080), ('::1', 0))
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise HeadgateError(f"{text!r} is no address to listen on", hint="write HOST:PORT, as in 127.0.0.1:8787")
    host = "127.0.0.1" if host == "localhost" else host
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if not local:
        raise HeadgateError(
            f"the HTTP API is served on this machine only, not on {host!r}",
            hint="listen on 127.0.0.1 and let others in by a tunnel, as in `ssh -L 8787:127.0.0.1:8787 HOST`",
        )
    return host, int(port)


def listen(address: str | None) -> socket.socket:
    """Listen on an address; by default on port 8787 of loopback, or on any that is free where that is taken."""
    host, port = ("127.0.0.1", DEFAULT_PORT) if address is None else parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            found.bind((host, port))
        except OSError as error:
            if address is not None:
                raise HeadgateError(
                    f"cannot listen on {address}: {(error.strerror or 'failed').lower()}",
                    hint="give another address with --http, or none at all with --no-http",
                ) from error
            found.bind((host, 0))
        found.listen(_BACKLOG)
    except BaseException:
        found.close()
        raise
    return found


def address_of(listening: socket.socket, *, encrypted: bool = False) -> str:
    """Where a browser finds what is served on a socket."""
    host, port = listening.getsockname()[:2]
    return f"http{'s' if encrypted else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def note_limits(state_dir: Path, limits: RequestLimits) -> None:
    """Keep for gateways what one user may take."""
    write_whole(state_dir / "http" / "limits", json.dumps(asdict(limits)))


def read_limits(state_dir: Path) -> RequestLimits:
    """What one user may take. Where nobody has said, bytes are taken to be limited: the service then counts them."""
    try:
        return RequestLimits(**json.loads((state_dir / "http" / "limits").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return RequestLimits(bytes_per_s=math.inf)


class FaceProcess(ChildProcess):
    """The process of the API. It is started again when it dies, until `stop`."""

    def __init__(self, listening: socket.socket, config: FaceConfig) -> None:
        super().__init__("the HTTP API")
        self._listening = listening
        self._config = config

    @property
    def address(self) -> str:
        """Where it is found."""
        return address_of(self._listening, encrypted=self._config.tls is not None)

    async def _start(self) -> asyncio.subprocess.Process:
        number = self._listening.fileno()
        with (Path(self._config.state_dir) / "http" / "http.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "headgate.fabric.guard",
                sys.executable,
                "-m",
                "headgate.api",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, CONFIG: json.dumps(asdict(self._config))},
                pass_fds=(number,),
                start_new_session=True,
            )

    async def stop(self) -> None:
        """Stop the process for good, and listen no more."""
        await super().stop()
        self._listening.close()
