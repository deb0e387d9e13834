"""Where the embedded server of a state directory can be reached: one small file, read again at every reconnection.

A server that comes back may have to take another port. Whoever connects by its directory (`headgate.fabric.address`)
follows it there, and takes no other server for it: the file also has the server's name, which every server says before
anything else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from nats.aio.client import Client, Server
from nats.errors import Error as NatsError

from headgate.diagnostics import FABRIC, noted
from headgate.fabric.trust import Trust
from headgate.wire.frame import WireError
from headgate.wire.record import read_record, write_record

HOST: Final = "127.0.0.1"
PORT_FILE: Final = "port.json"
_ANY_HOST: Final = ("0.0.0.0", "::")  # noqa: S104 - names of what is listened on, compared and not bound
_KIND: Final = "server-place"
_RANGE_FILE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_RANGE: Final = (32_768, 60_999)
_LOWEST: Final = 10_240
_TRIES: Final = 200
_RECONNECT_S: Final = 0.2
_CONNECT_S: Final = 2  # a program that took the port and says nothing is left after this

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """The port, the process and the name of an embedded server; its certificate where it speaks TLS.

    `key` is the file of the certificate's key where the server wants a certificate of everybody: programs on this
    machine show its own.
    """

    port: int
    pid: int
    name: str
    host: str = HOST
    certificate: str = ""
    key: str = ""

    @property
    def reached_at(self) -> str:
        """The address by which this machine reaches it: one that listens on all of them listens on loopback too."""
        return HOST if self.host in _ANY_HOST else self.host

    @property
    def url(self) -> str:
        """Where clients connect."""
        host = f"[{self.reached_at}]" if ":" in self.reached_at else self.reached_at
        return f"{'tls' if self.certificate else 'nats'}://{host}:{self.port}"

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """What a file says, None when it is missing or unreadable."""
        with noted(FABRIC, "where the server is cannot be read", OSError, WireError):
            return read_record(_KIND, cls, path.read_bytes())
        return None

    def write(self, path: Path) -> None:
        """Write the file in one step: a reader sees the old one or the new one, also when the disk is full."""
        write_whole(path, write_record(_KIND, self))


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file that only its owner may read, in one step and synced to disk.

    Nothing is done where it already has that content.
    """
    data = content.encode() if isinstance(content, str) else content
    with noted(FABRIC, "the file that is to be replaced cannot be read", OSError):
        if path.read_bytes() == data:
            return
    other = path.with_name(path.name + ".new")
    with os.fdopen(os.open(other, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)  # it may have been there
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    other.replace(path)


def is_free(port: int, host: str = HOST) -> bool:
    """Whether nobody listens on a port of this host."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def ephemeral_range() -> tuple[int, int]:
    """The ports that the system gives to outgoing connections, first and last."""
    with noted(FABRIC, "what the system says of its ports cannot be read", OSError, ValueError):
        low, high = map(int, _RANGE_FILE.read_text(encoding="ascii").split())
        return low, high
    return _USUAL_RANGE


def choose_port() -> int:
    """A free port that no outgoing connection will get; any free one where the system leaves no others."""
    low, high = ephemeral_range()
    outside: list[int] = [*range(_LOWEST, min(low, 65_536)), *range(max(high + 1, _LOWEST), 65_536)]
    for port in random.SystemRandom().sample(outside, min(_TRIES, len(outside))):
        if is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class InsistingClient(Client):  # type: ignore[misc]  # nats-py has no types
    """A connection that says nothing to a server without TLS: nats-py would go on in plain text.

    Certificates are read from their files at every connection.
    """

    def __init__(self, trust: Trust | None) -> None:
        super().__init__()
        self._trust = trust
        self.listening: set[asyncio.Event] = set()
        """Set when the connection is back: whatever was announced meanwhile was not heard."""

    async def catch_up(self) -> None:
        """Wake whoever listens (nats-py's `reconnected_cb`)."""
        for event in self.listening:
            event.set()

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """What the next connection trusts (nats-py asks for it each time)."""
        return ssl.create_default_context() if self._trust is None else self._trust.context()

    def _connect_command(self) -> bytes:
        wanted = None if self._trust is None else self._trust.fingerprint
        if wanted is not None:
            spoken = self._transport._io_writer.get_extra_info("ssl_object")  # noqa: SLF001 - nats-py has no other way
            if spoken is None or not wanted.matches(spoken.getpeercert(binary_form=True)):
                self._transport.close()
                raise NatsError(f"the server's certificate is not the one with the fingerprint {wanted}")
        command: bytes = super()._connect_command()
        return command

    async def close(self) -> None:
        """Close the connection, also where the server has ended before: nats-py leaves its socket open then."""
        try:
            await super().close()
        finally:
            self.give_up()

    async def _connect_to_server(self, server: Server) -> None:
        self.give_up()
        await super()._connect_to_server(server)

    def give_up(self) -> None:
        """Close the connection of an attempt that failed, which nats-py leaves open."""
        if self._transport is not None:
            self._transport.close()
            plain = getattr(self._transport, "_bare_io_writer", None)  # the socket below TLS, which ends a little later
            if plain is not None:
                plain.close()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        insists = self._trust is not None and self._trust.insisting
        if initial_connection and insists and not info.get("tls_required"):
            self._transport.close()
            raise NatsError("the server does not speak TLS")
        await super()._process_info(info, initial_connection)


class FollowingClient(InsistingClient):
    """A connection to the server that a port file names, wherever it comes back."""

    def __init__(self, path: Path, trust: Trust | None = None) -> None:
        super().__init__(trust)
        self._path = path

    @property
    def place(self) -> ServerPlace | None:
        """Where the server is now, as far as is known."""
        return ServerPlace.read(self._path)

    def next_server(self, servers: list[Server], _: Mapping[str, Any]) -> tuple[Server | None, float]:
        """Choose where to reconnect (nats-py's `reconnect_to_server_handler`): where the file says, again and again."""
        place = self.place
        if place is not None and all(server.uri.port != place.port for server in servers):
            _log.info("the embedded NATS server is at port %d now: reconnecting there", place.port)
            self.set_server_pool([place.url])
            raise NatsError("the server has moved")  # nats-py asks again at once, with the new address to choose from
        return None, _RECONNECT_S

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        place = self.place
        if initial_connection and place is not None and info.get("server_name") != place.name:
            self._transport.close()  # nats-py opens the next one without closing this
            raise NatsError(f"the server at this port is {info.get('server_name')}, not {place.name}")
        await super()._process_info(info, initial_connection)


async def connect(url: str, file: Path | None, trust: Trust | None, **options: Any) -> Client:
    """A connection by nats-py: to an address, or to the server of a port file, wherever that comes back."""
    if file is None:
        client = InsistingClient(trust)
    else:
        client = FollowingClient(file, trust)
        options |= {"reconnect_to_server_handler": client.next_server, "connect_timeout": _CONNECT_S}
    try:
        await client.connect(url, **{"reconnected_cb": client.catch_up, **options})
    except BaseException:
        client.give_up()
        raise
    return client


def is_running(place: ServerPlace) -> bool:
    """Whether the process of a server is there and its port takes connections."""
    with noted(FABRIC, "the server does not answer", OSError):
        os.kill(place.pid, 0)
        with socket.create_connection((place.reached_at, place.port), 1.0):
            return True
    return False
