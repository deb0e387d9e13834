"""What the kernel says of connections, of this process and of others on this machine."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from headgate.fabric.tcp_figures import address_of, connections_at, figures_of, parse_tcp_info

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sock_diag is Linux's")
_SERVE = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    connection.sendall(bytes(100_000))
    connection.recv(1)
"""


def test_a_connection_of_another_process_is_found_by_the_address_of_this_end():
    with subprocess.Popen([sys.executable, "-c", _SERVE], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as mine:
            left = 100_000
            while left:
                left -= len(mine.recv(left))
            found = connections_at(port)[address_of(mine)]
            own = figures_of(mine)
            mine.send(b"x")
    assert found.sent_bytes == 100_000
    assert 0 <= found.resent_bytes < 100_000
    assert 0 < found.least_round_trip_s <= found.round_trip_s < 5
    assert own is not None
    assert own.sent_bytes == 0


def test_what_is_not_known_is_none():
    assert parse_tcp_info(bytes(104)) is None
    assert figures_of(None) is None
    assert address_of(None) == ""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert connections_at(server.getsockname()[1]) == {}
