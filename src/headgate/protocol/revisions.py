"""Revisions of the catalog that a process has read lately: the next ones are changes of them."""

from __future__ import annotations

from typing import Final

from headgate.wire.snapshot import Snapshot

_KEPT: Final = 3


class Revisions:
    """The newest revision that was read, and the few that were read last. One for each connection."""

    def __init__(self) -> None:
        self._read: dict[int, Snapshot] = {}

    def get(self, revision: int, mark: str) -> Snapshot | None:
        """A revision, if it was read lately and is the one with this mark."""
        found = self._read.get(revision)
        return found if found is not None and found.identity.mark == mark else None

    def keep(self, snapshot: Snapshot) -> None:
        """Remember a revision that was read, or that this process has published."""
        self._read.pop(snapshot.revision, None)
        self._read[snapshot.revision] = snapshot
        newest = max(self._read)
        for old in [each for each in self._read if each != newest][: 1 - _KEPT]:
            del self._read[old]
