"""The version of a state directory's format: what is in it was written by this version, or is brought up to it.

A directory of an older format is upgraded in steps, each from one version to the next, before anything else reads it.
One of a newer format is refused. Directories of before there were versions are of version 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from headgate import __version__
from headgate.errors import HeadgateError
from headgate.fabric.place import write_whole

FORMAT_FILE: Final = "format"
FORMAT: Final = 1
"""The format that this version reads and writes. Who changes it adds a step, and a sample to tests/data/states."""
UPGRADES: Mapping[int, Callable[[Path], None]] = {}
"""By the version that it begins with, what brings a state directory to the next one."""


class StateFormatError(HeadgateError):
    """A state directory of a format that this version does not read."""


def check_format(state_dir: Path) -> None:
    """Refuse a state directory that is not of this format, or bring it up to it; a new one is marked."""
    path = state_dir / FORMAT_FILE
    found = read_format(path) if path.exists() else FORMAT if _is_new(state_dir) else 1
    if found > FORMAT:
        raise StateFormatError(
            f"the state directory {state_dir} has the format {found}, and headgate {__version__} reads {FORMAT}",
            hint="run the version of Headgate that wrote it or a later one, or give another --state-dir",
        )
    while found < FORMAT:
        step = UPGRADES.get(found)
        if step is None:
            raise StateFormatError(
                f"the state directory {state_dir} has the format {found}, which cannot be brought to {FORMAT}",
                hint="upgrade by the versions of Headgate in between, see docs/operations/upgrading.md",
            )
        step(state_dir)
        found += 1
        write_whole(path, f"{found}\n")
    write_whole(path, f"{FORMAT}\n")


def _is_new(state_dir: Path) -> bool:
    return not any((state_dir / name).exists() for name in ("catalog.db", "nats", "checkpoints"))


def read_format(path: Path) -> int:
    """The format that a file states."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise StateFormatError(
            f"the format of the state directory cannot be read: {error}",
            where=str(path),
            hint="restore a backup of the state directory",
        ) from error
