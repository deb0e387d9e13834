"""The small files by which the embedded server knows its logs, and copies of them.

nats-server describes each log in two files, `meta.inf` and `meta.sum`. Where one of them is damaged it leaves the log
out, with all of its messages, and a log of the same name that is made later begins with what lies there. So a copy of
both is kept beside the store and put back when a log was left out. A log without a sound copy stays out until the user
accepts its loss; then its files are moved away, so that nothing of it comes back into the log that takes its place.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Final

from headgate.private import make_private, open_private

_FILES: Final = ("meta.inf", "meta.sum")


class Descriptions:
    """The descriptions of the logs in one server's directory."""

    def __init__(self, directory: Path) -> None:
        self._store = directory / "data" / "jetstream"
        self._copies = directory / "descriptions"
        self._damaged = directory / "damaged"

    def left_out(self, restored: set[str]) -> list[Path]:
        """The directories of logs that the server did not read when it started."""
        return [log for log in self._logs() if log.name not in restored]

    def keep(self, left_out: list[Path]) -> None:
        """Copy the descriptions of all logs but those that were left out."""
        for log in self._logs():
            if log not in left_out and all((log / name).exists() for name in _FILES):
                self._put(log, self._copy_of(log))

    def put_back(self, log: Path) -> bool:
        """Put the copy of a description back; whether there is one that differs."""
        copy = self._copy_of(log)
        if not all((copy / name).exists() for name in _FILES):
            return False
        return self._put(copy, log)

    def move_away(self, log: Path) -> Path:
        """Move the files of a log out of the store; returns where they are."""
        target = self._damaged / f"{log.name}-{time.time_ns()}"
        make_private(target.parent)
        return Path(shutil.move(log, target))

    def _logs(self) -> list[Path]:
        return sorted(path for path in self._store.glob("*/streams/*") if path.is_dir())

    def _copy_of(self, log: Path) -> Path:
        return self._copies / log.relative_to(self._store)

    @staticmethod
    def _put(source: Path, target: Path) -> bool:
        make_private(target)
        changed = False
        for name in _FILES:
            wanted, place = (source / name).read_bytes(), target / name
            if not place.exists() or place.read_bytes() != wanted:
                part = place.with_name(f"{name}.part")
                with open_private(part) as file:
                    file.truncate(0)
                    file.write(wanted)
                part.replace(place)
                changed = True
        return changed
