"""Where the embedded server of a state directory can be reached: one small file, read again at every reconnection.

A server that comes back may have to take another port. Whoever connects by this file (`port_file`) follows it there,
and takes no other server for it: the file also has the server's name, which every server says before anything else.
"""

from __future__ import annotations

import logging
import os
import random
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from nats.aio.client import Client, Server
from nats.errors import Error as NatsError

from headgate.diagnostics import FABRIC, noted
from headgate.wire.frame import WireError
from headgate.wire.record import read_record, write_record

HOST: Final = "127.0.0.1"
PORT_FILE: Final = "port.json"
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
    """The port, the process and the name of an embedded server."""

    port: int
    pid: int
    name: str

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://{HOST}:{self.port}"

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """What a file says, None when it is missing or unreadable."""
        with noted(FABRIC, "where the server is cannot be read", OSError, WireError):
            return read_record(_KIND, cls, path.read_bytes())
        return None

    def write(self, path: Path) -> None:
        """Write the file in one step: a reader sees the old one or the new one, also when the disk is full."""
        write_whole(path, write_record(_KIND, self))


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file in one step, synced to disk; nothing is done where it already has that content."""
    with noted(FABRIC, "a file is not there yet", OSError):
        if path.read_bytes() == data:
            return
    other = path.with_name(path.name + ".new")
    with other.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    other.replace(path)


def is_free(port: int) -> bool:
    """Whether nobody listens on a port of this host."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
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


class FollowingClient(Client):  # type: ignore[misc]  # nats-py has no types
    """A connection to the server that a port file names, wherever it comes back."""

    def __init__(self, path: Path) -> None:
        super().__init__()
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


async def connect(url: str, file: Path | None, **options: Any) -> Client:
    """A connection by nats-py: to an address, or to the server of a port file, wherever that comes back."""
    if file is None:
        client = Client()
    else:
        client = FollowingClient(file)
        options |= {"reconnect_to_server_handler": client.next_server, "connect_timeout": _CONNECT_S}
    await client.connect(url, **options)
    return client


def is_running(place: ServerPlace) -> bool:
    """Whether the process of a server is there and its port takes connections."""
    with noted(FABRIC, "the server does not answer", OSError):
        os.kill(place.pid, 0)
        with socket.create_connection((HOST, place.port), 1.0):
            return True
    return False
