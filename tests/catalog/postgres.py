"""A PostgreSQL server of this machine's own programs, on loopback, for as long as a test session."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

WAIT_S = 60.0


def programs() -> Path | None:
    """The directory of `initdb` and `postgres`, or None where PostgreSQL is not installed."""
    places = [
        *os.environ.get("PATH", "").split(os.pathsep),
        *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin"))),
    ]
    found = [Path(place) for place in places if all(shutil.which(name, path=place) for name in ("initdb", "postgres"))]
    return found[-1] if found else None


@contextmanager
def server(programs: Path) -> Iterator[str]:
    """A fresh server with an empty database; gives its URL. PostgreSQL refuses to run as root, so nobody owns it."""
    user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # A short path of its own: other users can enter it, and its socket's name fits.
    with tempfile.TemporaryDirectory(prefix="headgate-pg-") as place:
        if user is not None:
            os.chown(place, user, -1)
        common = {"user": user, "cwd": place, "stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        made = [programs / "initdb", "--auth=trust", "--username=headgate", "--no-sync", f"--pgdata={place}/data"]
        subprocess.run(made, check=True, timeout=WAIT_S, **common)
        settings = ("-c", "listen_addresses=127.0.0.1", "-c", "fsync=off")
        process = subprocess.Popen(
            [programs / "postgres", "-D", f"{place}/data", "-p", str(port), "-k", place, *settings], **common
        )
        try:
            url = f"postgresql://headgate@127.0.0.1:{port}/postgres"
            _wait(url, process)
            yield url
        finally:
            process.terminate()
            process.wait(WAIT_S)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    until = time.monotonic() + WAIT_S
    while True:
        try:
            engine.connect().close()
        except sa.exc.OperationalError:
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < until, "the server did not answer"
            time.sleep(0.05)
        else:
            engine.dispose()
            return
