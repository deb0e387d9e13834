"""A copy of a deployment that runs, as exact as that of one whose power was cut at one moment.

Everything that a deployment does waits for its NATS server: no batch is committed, no block passed on and nothing
acknowledged without its answer. So the server is held still for the moment of the copy, by a signal of the system.
What it has stored by then is of one instant in all logs, and what lies beside it is not ahead of that: Spark's
checkpoint waits for the commit of a batch, a reader's acknowledgement is in the logs. The catalog is copied as SQLite
does it, and the audit after it, as a change is recorded there before it is made. A start from such a copy is a start
after a crash.

Most of the copying is done before, while everything runs; what has changed since then is copied again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric.place import ServerPlace, is_running
from headgate.fabric.server import port_file
from headgate.private import make_private
from headgate.service.audit import AUDIT_FILE
from headgate.service.backup import BackupError, stored_files

CATALOG_FILE: Final = "catalog.db"
STILL_S: Final = 4.0
"""For so long the server is held still at most: whoever waits for it gives up after ten seconds."""
_TRIES: Final = 3
_CATALOG: Final = (CATALOG_FILE, f"{CATALOG_FILE}-wal", f"{CATALOG_FILE}-shm")
Marks = dict[str, tuple[int, int, int]]


class TooLongError(HeadgateError):
    """The copy took longer than the server may be held still."""


@contextlib.contextmanager
def held_still(pid: int) -> Iterator[None]:
    """Hold a process still; it goes on at the end of the block, also where this program is killed in it."""
    waker = subprocess.Popen(["/bin/sh", "-c", f"read _; kill -CONT -{pid}"], stdin=subprocess.PIPE)
    assert waker.stdin is not None
    try:
        os.killpg(pid, signal.SIGSTOP)
        yield
    finally:
        os.killpg(pid, signal.SIGCONT)
        waker.stdin.close()
        waker.wait()


def copy_running(state_dir: Path, target: Path, still_s: float = STILL_S) -> float:
    """Copy the stored state of a deployment that runs; returns for how many seconds its server was held still.

    Raises:
        BackupError: It uses a NATS server of its own, or there was too much to copy in the time.
    """
    place = ServerPlace.read(port_file(state_dir))
    if place is None or not is_running(place):
        raise BackupError(
            f"the deployment in {state_dir} runs with a NATS server of your own",
            hint="stop it, and back that server up at the same time",
        )
    make_private(target)
    marks = _copy(state_dir, target, {}, None)
    for _ in range(_TRIES):
        began = time.monotonic()
        try:
            with held_still(place.pid):
                began = time.monotonic()
                marks = _copy(state_dir, target, marks, began + still_s)
                _copy_catalog(state_dir, target)
                _copy_file(state_dir / AUDIT_FILE, target / AUDIT_FILE)
            return time.monotonic() - began
        except TooLongError:
            marks = _copy(state_dir, target, marks, None)  # what took so long need not be done again
    raise BackupError(
        f"more is written to {state_dir} than can be copied in {still_s:g} s, for which NATS may be held still",
        hint="stop the deployment, or take the backup when less comes in",
    )


def _copy(state_dir: Path, target: Path, known: Marks, until: float | None) -> Marks:
    """Copy what has changed since it was marked, and take away what is gone; returns the marks of what is there."""
    found: Marks = {}
    for path, name in stored_files(state_dir):
        if name in _CATALOG or name == AUDIT_FILE:
            continue
        if until is not None and time.monotonic() > until:
            raise TooLongError("the server was held still for too long")
        with noted(SERVICE, "a file went while it was copied", FileNotFoundError):
            stat = path.stat()
            mark = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if known.get(name) != mark:
                _copy_file(path, target / name)
            found[name] = mark
    for name in known.keys() - found.keys():
        (target / name).unlink(missing_ok=True)
    return found


def _copy_file(source: Path, target: Path) -> None:
    if source.exists():
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _copy_catalog(state_dir: Path, target: Path) -> None:
    source = state_dir / CATALOG_FILE
    if source.exists():
        (target / CATALOG_FILE).unlink(missing_ok=True)
        with (
            contextlib.closing(sqlite3.connect(source)) as live,
            contextlib.closing(sqlite3.connect(target / CATALOG_FILE)) as copy,
        ):
            live.backup(copy)
