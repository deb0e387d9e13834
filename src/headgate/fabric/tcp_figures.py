"""What the kernel knows of connections: round trips, bytes sent and sent again. Linux only; elsewhere nothing is known.

Whoever sends to a site is its parent's NATS server, another process. Any process may ask the kernel for the figures of
all connections of its machine (`sock_diag`, as `ss -ti` does), so that a relay knows what its server's connections lose
without a byte on the link. TCP counts as sent again what it took for lost, which is at least what was lost.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from headgate.diagnostics import FABRIC, noted

_SOCK_DIAG: Final = 4
_BY_FAMILY: Final = 20
_DONE: Final = 3
_FAILED: Final = 2
_DUMP: Final = 0x301
_ESTABLISHED: Final = 1 << 1
_INFO: Final = 2
_RTT_AT: Final = 68
_LEAST_RTT_AT: Final = 148
_SENT_AT: Final = 200
_SIZE: Final = 216
_PAYLOAD: Final = 72


@dataclass(frozen=True, slots=True)
class ConnectionFigures:
    """One connection as the kernel sees it: its round trip and the least of it, bytes sent and those sent again."""

    round_trip_s: float
    least_round_trip_s: float
    sent_bytes: int
    resent_bytes: int


def parse_tcp_info(info: bytes) -> ConnectionFigures | None:
    """Read `struct tcp_info`; None from kernels that do not count what was sent again (before 4.19)."""
    if len(info) < _SIZE:
        return None
    (rtt_us,), (least_us,) = struct.unpack_from("=I", info, _RTT_AT), struct.unpack_from("=I", info, _LEAST_RTT_AT)
    sent, resent = struct.unpack_from("=QQ", info, _SENT_AT)
    least_us = min(rtt_us, least_us)  # all ones while nothing was measured
    return ConnectionFigures(rtt_us / 1e6, least_us / 1e6, sent, resent)


def figures_of(connection: Any) -> ConnectionFigures | None:
    """The figures of a socket of this process."""
    if connection is None or not sys.platform.startswith("linux"):
        return None
    with noted(FABRIC, "the kernel says nothing of a connection", OSError):
        return parse_tcp_info(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 280))
    return None


def address_of(connection: Any) -> str:
    """Where a socket of this process is, as its other end sees it unless addresses are translated in between."""
    if connection is None:
        return ""
    with noted(FABRIC, "a connection has no address any more", OSError):
        host, port = connection.getsockname()[:2]
        return f"{_plain(host)}:{port}"
    return ""


def connections_at(port: int) -> dict[str, ConnectionFigures]:
    """By the address of their other end, all connections of this machine to one of its ports; none where unknown."""
    if not sys.platform.startswith("linux"):
        return {}
    found: dict[str, ConnectionFigures] = {}
    with (
        noted(FABRIC, "the kernel says nothing of connections", OSError),
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel,
    ):
        kernel.settimeout(1.0)
        for family in (socket.AF_INET, socket.AF_INET6):
            asked = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _ESTABLISHED)
            asked += struct.pack("!HH", port, 0) + bytes(32) + struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
            kernel.send(struct.pack("=IHHII", 16 + len(asked), _BY_FAMILY, _DUMP, 1, 0) + asked)
            found |= dict(_answers(kernel))
    return found


def _answers(kernel: socket.socket) -> Iterator[tuple[str, ConnectionFigures]]:
    while True:
        data, place = kernel.recv(1 << 16), 0
        while place + 16 <= len(data):
            size, kind = struct.unpack_from("=IH", data, place)
            if kind in (_DONE, _FAILED):
                return
            one = _connection(data[place + 16 : place + size])
            if one is not None:
                yield one
            place += (size + 3) & ~3


def _connection(body: bytes) -> tuple[str, ConnectionFigures] | None:
    """One connection of an answer: the address of its other end, and its figures."""
    (family,), (port,) = struct.unpack_from("=B", body), struct.unpack_from("!H", body, 6)
    raw = body[24:28] if family == socket.AF_INET else body[24:40]
    place = _PAYLOAD
    while place + 4 <= len(body):
        size, kind = struct.unpack_from("=HH", body, place)
        if kind == _INFO:
            figures = parse_tcp_info(body[place + 4 : place + size])
            return None if figures is None else (f"{_plain(socket.inet_ntop(family, raw))}:{port}", figures)
        place += max(4, (size + 3) & ~3)
    return None


def _plain(host: str) -> str:
    """An address without the prefix of one that is IPv4 inside of IPv6.

    >>> _plain("::ffff:10.0.0.1"), _plain("::1")
    ('10.0.0.1', '::1')
    """
    return host.removeprefix("::ffff:") if "." in host else host
