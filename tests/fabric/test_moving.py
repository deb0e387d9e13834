"""An embedded server whose port was taken while it was down: it moves, says so, and whoever was connected follows."""

import asyncio
import contextlib
import logging
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.fabric import EmbeddedServer, Fabric, FabricError, find_server
from headgate.fabric.place import ServerPlace, choose_port, ephemeral_range, is_free
from headgate.pipeline.sources.nats_options import NatsSettings
from headgate.pipeline.worker import Address
from headgate.wire.logs import Log, Logs

LOG = Log("L", ("l.>",), 1 << 20)


@contextlib.contextmanager
def silent(port: int) -> Iterator[None]:
    """A program that listens on a port and says nothing."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen(8)
        yield


@contextlib.contextmanager
def another_server(port: int, place: Path) -> Iterator[None]:
    """Another nats-server on a port, with a log of the same name: what is published there would be lost to us."""
    command = [str(find_server()), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(place)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 20
            while is_free(port) and time.monotonic() < deadline:
                assert process.poll() is None
            yield
        finally:
            process.kill()


async def _stored(fabric: Fabric, data: bytes) -> int:
    """Publish until it is stored."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(FabricError):
                return await fabric.publish("l.a", data, timeout_s=1)


@pytest.mark.nats
@pytest.mark.parametrize("taken_by", ["a silent program", "another server"])
def test_clients_follow_a_server_to_another_port(
    tmp_path: Path, taken_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(server: EmbeddedServer) -> None:
        async with await Fabric.connect(server.url) as fabric:
            await fabric.ensure(LOG)
            assert await _stored(fabric, b"one") == 1
            before = server.port
            server.kill()
            other = another_server(before, tmp_path / "other")
            with silent(before) if taken_by == "a silent program" else other:
                if taken_by == "another server":
                    async with await Fabric.connect(f"nats://127.0.0.1:{before}") as foreign:
                        await foreign.ensure(LOG)
                        server.start()
                        assert await _stored(fabric, b"two") == 2
                        assert await foreign.last(LOG, "l.a") is None
                else:
                    server.start()
                    assert await _stored(fabric, b"two") == 2
                assert server.port != before
                # Who connects anew by the directory comes to the same place.
                async with await Fabric.connect(server.url) as late:
                    assert [each.data for each in await late.read(LOG, "l.>", 0)] == [b"one", b"two"]
            assert f"port {before} of the embedded NATS server is taken by another program" in caplog.text
            assert f"at port {server.port} " in caplog.text

    with caplog.at_level(logging.WARNING), EmbeddedServer(tmp_path / "state", sync_always=False) as server:
        asyncio.run(run(server))


@pytest.mark.nats
def test_the_spark_side_finds_a_server_that_has_moved(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, sync_always=False) as server:
        address = Address(server.url, Logs())
        server.stop()
        with silent(server.port):
            server.start()
            with address.connect() as fabric:
                fabric.ensure(Logs().input("notes"))
            settings = NatsSettings.of({"url": address.url, "stream": "notes"})
        with settings.connect() as fabric:
            assert fabric.last(Logs().input("notes"), "hg.in.notes") is None


def test_ports_are_outside_of_those_that_the_system_gives_to_connections() -> None:
    low, high = ephemeral_range()
    if (low, high) == (1024, 65535):
        pytest.skip("this system gives all ports to connections")
    for _ in range(50):
        port = choose_port()
        assert not low <= port <= high
        assert is_free(port)


def test_a_file_that_cannot_be_read_is_no_place(tmp_path: Path) -> None:
    path = tmp_path / "port.json"
    assert ServerPlace.read(path) is None
    for text in ("", "[]", "{}", '{"port": 4222, "pid": 1, "name": "n"}', "\xff"):
        path.write_text(text, encoding="latin-1")
        assert ServerPlace.read(path) is None
    ServerPlace(4222, 1, "n").write(path)
    assert ServerPlace.read(path) == ServerPlace(4222, 1, "n")
