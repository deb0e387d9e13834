"""The embedded NATS server: a child process on loopback; port, configuration, keys and data lie in the state directory.

Only its owner can read that directory, and the server lets in only those who have credentials that are signed with the
keys in it. It listens beyond loopback only where that is asked for, and then only with TLS.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from headgate.diagnostics import FABRIC, noted
from headgate.fabric.accounts import (
    BRIDGE_FILE,
    BRIDGE_PASSWORD,
    DEVICES,
    HOME,
    OPERATOR_FILE,
    SYSTEM,
    SYSTEM_FILE,
    Keys,
)
from headgate.fabric.address import address_of
from headgate.fabric.descriptions import Descriptions
from headgate.fabric.devices import Device, Devices
from headgate.fabric.fingerprint import Fingerprint
from headgate.fabric.keys import KeyPair
from headgate.fabric.listening import Listening
from headgate.fabric.place import PORT_FILE, ServerPlace, choose_port, is_free, is_running, write_whole
from headgate.fabric.program import OLDEST_MQTT, OLDEST_SERVER, find_server
from headgate.fabric.registry import Registry
from headgate.fabric.rolebook import RoleBook
from headgate.private import PRIVATE_UMASK, make_private, open_private
from headgate.protocol.port import FabricError

_READY_S: Final = 20.0
_STOP_S: Final = 10.0
# What nats-server logs when a log's file cannot be written; that log then stays as it is until a restart.
_WRITE_ERRORS: Final = (b"ritical write error", b"no space left on device")

_log = logging.getLogger(__name__)
_RESTORES: Final = re.compile(r"(Starting restore|Restored).* for stream '.* > (.+?)'")


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

    def __init__(self, state_dir: Path, *, sync_always: bool = True, listening: Listening | None = None) -> None:
        self.directory = (state_dir / "nats").absolute()
        self._sync_always = sync_always
        self._listening = listening or Listening()
        self._process: subprocess.Popen[bytes] | None = None
        self._log_end = 0
        self._descriptions = Descriptions(self.directory)
        self.left_out: list[Path] = []
        """The files of logs that the server could not read, as their descriptions are damaged and have no copy."""
        self.mended: list[str] = []
        """The logs whose descriptions were put back from their copies at the last start."""
        self._marks: tuple[tuple[int, int, int] | None, ...] = ()
        self.port = 0
        self.name = ""

    @property
    def url(self) -> str:
        """The address by which clients on this machine connect: its directory, which has the credentials too."""
        return address_of(self.directory)

    @property
    def listens_at(self) -> str:
        """The address on the network."""
        return self._place(0).url

    def _place(self, pid: int) -> ServerPlace:
        certificate = self._listening.certificate
        named = "" if certificate is None else str(certificate.absolute())
        key = self._listening.key if self._listening.authority is not None else None
        return ServerPlace(
            self.port, pid, self.name, self._listening.host, named, "" if key is None else str(key.absolute())
        )

    @property
    def fingerprint(self) -> Fingerprint | None:
        """That of the certificate, None where there is no TLS."""
        certificate = self._listening.certificate
        return None if certificate is None else Fingerprint.of_file(certificate)

    def renew(self) -> bool:
        """Let the server read its certificates again where their files were replaced; whether they were.

        Connections that are open stay as they are. Files that do not fit each other are left, and tried again when
        they change: the server goes on with what it had.
        """
        marks = tuple(_mark(file) for file in self._listening.files)
        if self._process is None or self.pid is None or None in marks or marks == self._marks:
            return False
        known, self._marks = self._marks, marks
        if known:
            self._process.send_signal(signal.SIGHUP)
        return bool(known)

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
            make_private(self.directory)
            self._keys = Keys.open(self.directory)
            for file, account in ((OPERATOR_FILE, HOME), (SYSTEM_FILE, SYSTEM), (BRIDGE_FILE, DEVICES)):
                self._keep_credentials(self.directory / file, account)
            if not (self.directory / BRIDGE_PASSWORD).exists():
                bridge = Device("bridge", KeyPair.new("user").public, int(time.time()), ("*",))
                write_whole(self.directory / BRIDGE_PASSWORD, self._keys.password(bridge))
            if self._listening.mqtt is not None and not is_free(self._listening.mqtt[1], self._listening.mqtt[0]):
                host, port = self._listening.mqtt
                raise FabricError(
                    f"MQTT is to listen on port {port} of {host}, which is taken", hint="name another one"
                )
            known = ServerPlace.read(self.port_file)
            self.name = known.name if known else f"headgate-{secrets.token_hex(8)}"
            self.port = self._choose_port(known)
            for again in (True, True, False):
                try:
                    self._launch()
                    pid = self._mend()
                    break
                except FabricError:
                    if not again or self._listening.port or is_free(self.port, self._listening.host):
                        raise
                    self.port = choose_port()  # somebody took it in between
            self._place(pid).write(self.port_file)
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

    def _keep_credentials(self, file: Path, account: str) -> None:
        """Make credentials of our own where there are none, or none that hold."""
        with noted(FABRIC, "credentials cannot be read", OSError):
            if not file.exists() or not self._keys.has_stated(account, file.read_text("utf-8", errors="replace")):
                if file.exists():
                    _log.warning("the credentials in %s were damaged: they were made again", file)
                write_whole(file, self._keys.all_rights(account, "operator"))

    def _choose_port(self, known: ServerPlace | None) -> int:
        """The port that was asked for, else the last one while it is free, else any other."""
        host, asked = self._listening.host, self._listening.port
        if asked is not None:
            if not is_free(asked, host):
                raise FabricError(
                    f"NATS is to listen on port {asked} of {host}, which is taken", hint="name another one"
                )
            return asked
        return known.port if known and is_free(known.port, host) else choose_port()

    def _launch(self) -> int:
        config, log_file = self.directory / "server.conf", self.directory / "server.log"
        program = find_server(OLDEST_SERVER if self._listening.mqtt is None else OLDEST_MQTT)
        write_whole(config, self._configuration())
        with open_private(log_file) as log:
            self._log_end = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headgate.fabric.guard", str(program), "-c", str(config)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                umask=PRIVATE_UMASK,
            )
        self._wait_ready()
        self._marks = tuple(_mark(file) for file in self._listening.files)
        return self._process.pid

    def _mend(self) -> int:
        """Put damaged descriptions of logs back from their copies and start the server again for them; its process."""
        assert self._process is not None
        self.left_out = self._descriptions.left_out(self._restored())
        self.mended = [log.name for log in self.left_out if self._descriptions.put_back(log)]
        if self.mended:
            names = ", ".join(self.mended)
            _log.warning("the descriptions of the logs %s were damaged: they were put back from their copies", names)
            self.stop()
            self._launch()
            self.left_out = self._descriptions.left_out(self._restored())
        self._descriptions.keep(self.left_out)
        return self._process.pid

    def _restored(self) -> set[str]:
        """The logs that the server began to read from its files in this start."""
        with (self.directory / "server.log").open(encoding="utf-8", errors="replace") as log:
            log.seek(self._log_end)
            return {name for verb, name in _RESTORES.findall(log.read()) if verb == "Starting restore"}

    def move_left_out(self) -> list[str]:
        """Move the files of logs that could not be read out of the store; says what and where to, in sentences."""
        moved = [(log.name, self._descriptions.move_away(log)) for log in self.left_out]
        self.left_out = []
        return [f"the files of the log {name} could not be read and are now in {place}" for name, place in moved]

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
        revoked = {**Registry.read(self.directory).revoked, **Devices.read(self.directory).revoked}
        answering = RoleBook.read(self.directory).answering(self._keys)
        return (
            f"server_name: {self.name}\nhost: {json.dumps(self._listening.host)}\nport: {self.port}\n"
            "max_payload: 8388608\nmax_pending: 268435456\n"
            f"jetstream {{ store_dir: {store}, max_file_store: 16TB, sync_interval: {sync} }}\n"
            f"{self._listening.configuration}{self._keys.configuration(self.directory, revoked, answering)}"
        )

    def _wait_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            with (
                noted(FABRIC, "the server does not answer yet", OSError),
                socket.create_connection((self._place(0).reached_at, self.port), 1.0) as probe,
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
        with noted(FABRIC, "the descriptions of logs cannot be copied", OSError):
            self._descriptions.keep(self.left_out)
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


def _mark(file: Path) -> tuple[int, int, int] | None:
    """What tells a file that was replaced from the one before; None while it is being replaced."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def running_url(state_dir: Path) -> str | None:
    """The address of the embedded server of a state directory, None when it is not running."""
    place = ServerPlace.read(port_file(state_dir))
    return address_of(state_dir / "nats") if place is not None and is_running(place) else None


def port_file(state_dir: Path) -> Path:
    """The file that says where the embedded server of a state directory is."""
    return state_dir / "nats" / PORT_FILE
