"""The embedded server: it keeps its data and port, and never outlives whoever started it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.live import until

from headgate.fabric import EmbeddedServer, Fabric, FabricError, find_server
from headgate.fabric.place import ServerPlace
from headgate.fabric.server import running_url
from headgate.wire.logs import Log

pytestmark = pytest.mark.nats

LOG = Log("KEPT", ("kept.>",), 1 << 20)


async def _write(url: str, data: bytes) -> int:
    async with await Fabric.connect(url) as fabric:
        await fabric.ensure(LOG)
        return await fabric.publish("kept.here", data)


async def _read(url: str) -> list[bytes]:
    async with await Fabric.connect(url) as fabric:
        return [stored.data for stored in await fabric.read(LOG, "kept.>", 0)]


def test_a_second_start_finds_data_and_port_after_a_stop_and_after_a_crash(tmp_path: Path) -> None:
    state = tmp_path / "a state directory"
    assert running_url(state) is None
    server = EmbeddedServer(state, sync_always=True)
    with server:
        port = server.port
        assert running_url(state) == server.url
        assert asyncio.run(_write(server.url, b"one")) == 1
    assert server.pid is None
    assert running_url(state) is None
    with EmbeddedServer(state) as server:
        assert server.port == port
        assert asyncio.run(_write(server.url, b"two")) == 2
        server.kill()
        assert server.pid is None
        server.start()
        assert server.port == port
        assert asyncio.run(_read(server.url)) == [b"one", b"two"]


@pytest.mark.parametrize("name", ["meta.inf", "meta.sum"])
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-3])])
def test_a_damaged_description_of_a_log_is_put_back(
    tmp_path: Path, name: str, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedServer(tmp_path) as server:
        asyncio.run(_write(server.url, b"one"))
    (path,) = (tmp_path / "nats" / "data").rglob(f"KEPT/{name}")
    damage(path)
    with EmbeddedServer(tmp_path) as server:
        assert asyncio.run(_read(server.url)) == [b"one"]
        assert not server.left_out
    assert "the descriptions of the logs KEPT were damaged" in caplog.text


def test_files_of_a_log_that_cannot_be_read_do_not_come_back_in_its_successor(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        asyncio.run(_write(server.url, b"one"))
    (path,) = (tmp_path / "nats" / "data").rglob("KEPT/meta.inf")
    path.unlink()
    shutil.rmtree(tmp_path / "nats" / "descriptions")
    with EmbeddedServer(tmp_path) as server:
        assert [log.name for log in server.left_out] == ["KEPT"]
        (told,) = server.move_left_out()
        assert str(tmp_path / "nats" / "damaged") in told
        assert asyncio.run(_write(server.url, b"two")) == 1
    with EmbeddedServer(tmp_path) as server:
        assert asyncio.run(_read(server.url)) == [b"two"]


def test_a_port_that_is_taken_is_replaced(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "one", sync_always=False) as first:
        other = tmp_path / "two"
        (other / "nats").mkdir(parents=True)
        ServerPlace(first.port, 1, "another").write(other / "nats" / "port.json")
        with EmbeddedServer(other, sync_always=False) as second:
            assert second.port != first.port
            assert running_url(other) == second.url


def test_the_server_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, os, signal; from pathlib import Path; from headgate.fabric import EmbeddedServer\n"
        "print(EmbeddedServer(Path(sys.argv[1]), sync_always=False).start().pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "its state")], capture_output=True, text=True, env=environment
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    asyncio.run(until(partial(_gone, int(done.stdout))))
    # The socket of a process that is ending may take a connection for a moment longer.
    asyncio.run(until(partial(_unreachable, tmp_path / "its state")))


async def _unreachable(state: Path) -> bool:
    return running_url(state) is None


async def _gone(pid: int) -> bool:
    return not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # A dead process that its new parent has not waited for yet is still listed.
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nats").mkdir()
    (tmp_path / "nats" / "data").write_text("a file where a directory should be")
    with pytest.raises(FabricError, match=r"server\.log: nats-server did not come up: .*"):
        EmbeddedServer(tmp_path).start()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(FabricError, match=r"there is no nats-server \(install it"):
        find_server()


def test_no_server_is_said_with_its_address() -> None:
    with pytest.raises(FabricError, match=r"cannot connect to NATS at nats://127\.0\.0\.1:1: .*is the server running"):
        asyncio.run(Fabric.connect("nats://127.0.0.1:1", connect_timeout=0.5))
