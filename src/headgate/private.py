"""Files and directories that only their owner can read: 0600 and 0700, whatever the umask of the program is."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

PRIVATE_UMASK: Final = 0o077
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def make_private(directory: Path) -> None:
    """Make a directory that only its owner can enter.

    One that others could enter is closed, with all that lies in it: others may have opened files there before.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_mode & _OTHERS:
        directory.chmod(0o700)
        for place, names, files in os.walk(directory):
            for name in (*names, *files):
                with contextlib.suppress(FileNotFoundError):  # it was temporary
                    _close(Path(place) / name)


def _close(path: Path) -> None:
    mode = path.lstat().st_mode
    if not stat.S_ISLNK(mode) and mode & _OTHERS:
        path.chmod(stat.S_IMODE(mode) & ~_OTHERS)


def open_private(path: Path) -> BinaryIO:
    """Open a file for appending that only its owner can read, also where it was there already."""
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
    os.fchmod(file.fileno(), 0o600)
    return file


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """Whatever this process makes in the block, in any of its threads, only its owner can read."""
    before = os.umask(PRIVATE_UMASK)
    try:
        yield
    finally:
        os.umask(before)
