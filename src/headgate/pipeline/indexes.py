"""The driver's side of index files: every pinned version is saved once, as a whole or as a delta, for workers to map.

Files are `indexes/index-V.hga` and `delta-V.hga` in the stream's checkpoint directory. A driver that starts goes on
from the newest version that it finds: class ids name one filter each, so two versions differ in their ids.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headgate.errors import HeadgateError
from headgate.fabric import SyncFabric
from headgate.matching import MatchingError
from headgate.matching.build import SCAN_LIMIT
from headgate.matching.definitions import grouped
from headgate.matching.live import LiveIndex
from headgate.pipeline.classes import definition_of, definitions_of, reading_of, subscribers_of
from headgate.pipeline.states import IndexRef, read_snapshot
from headgate.wire.codec import decode_stream, encode_stream
from headgate.wire.snapshot import Snapshot

if TYPE_CHECKING:
    from headgate.matching.compiled.saved import SavedIndexes

# A whole index is written after so many deltas, or so many places of the root log after the last one, whose
# context updates a worker that starts has to apply.
MAX_DELTAS: Final = 32
MAX_UPDATES: Final = 20_000
_KEEP: Final = 2
Share = Callable[[list[Path]], tuple[Any, ...]]


class IndexKeeper:
    """Saves the index of each version that a stream's micro-batches are pinned to; owns the directory."""

    def __init__(self, directory: Path, stream: str, share: Share | None = None) -> None:
        """`share` makes files reach workers that do not see the directory."""
        self._share = share
        self._directory = directory
        self._stream = stream
        self._known: dict[int, int | None] = {}
        self._index: LiveIndex | None = None
        self._version = 0
        self._document: dict[str, Any] = {}
        self._base = self._deltas = 0
        self._told: set[str] = set()

    def _saved(self) -> SavedIndexes:
        from headgate.matching.compiled.saved import SavedIndexes

        return SavedIndexes(self._directory)

    @property
    def base(self) -> int:
        """The place in the context log that the oldest index in use was compiled at; what lies after it is needed."""
        return self._base

    def ensure(self, fabric: SyncFabric, version: int) -> IndexRef | None:
        """The saved index of a version, saved now if need be; None when the classes are so few that nobody maps them.

        A file that cannot be written or read is told and does without: workers then compile from the snapshot.
        """
        if version not in self._known:
            try:
                self._known[version] = self._ensure(fabric, version)
            except (MatchingError, OSError) as error:
                self._tell(f"index version {version} of stream {self._stream!r} is not saved: {error}")
                self._forget()
                self._known[version] = None
            for old in sorted(self._known)[:-_KEEP]:
                del self._known[old]
            self._clean()
        found = self._known[version]
        if found is None:
            return None
        files = () if self._share is None else self._share(self._saved().store.files(found))
        return IndexRef(str(self._directory), found, self._base, files)

    def _ensure(self, fabric: SyncFabric, version: int) -> int | None:
        if self._index is None and self._resume(version) == version:
            return version
        snapshot = read_snapshot(fabric, version)
        wanted = subscribers_of(snapshot, self._stream)
        if len(wanted) <= SCAN_LIMIT:
            self._forget()
            self._base = snapshot.contexts.get(self._stream, 0)
            return None
        document = _document(snapshot, self._stream)
        if self._index is None or not _alike(document, self._document) or self._stale(document):
            return self._build(snapshot, version, document)
        have = self._index.classes
        ids = np.sort(np.fromiter(wanted, np.uint32, len(wanted)))
        removed, added = np.setdiff1d(have, ids), np.setdiff1d(ids, have)
        if not len(removed) and not len(added) and document["stream"] == self._document["stream"]:
            return self._version
        delta = self._index.plan(removed, grouped(definition_of(each, wanted[each]) for each in added.tolist()))
        if delta is None:
            return self._build(snapshot, version, document)
        self._index.apply(delta)
        self._saved().append(version, delta, self._version, document)
        self._version, self._document = version, document
        self._deltas += 1
        return version

    def _stale(self, document: dict[str, Any]) -> bool:
        return self._deltas >= MAX_DELTAS or document["context"] > self._base + MAX_UPDATES

    def _resume(self, version: int) -> int | None:
        """Go on from what an earlier driver saved, that version or else the newest; None when nothing is usable."""
        if not self._directory.is_dir() or not (versions := self._saved().store.versions()):
            return None
        saved, chosen = self._saved(), version if version in versions else versions[-1]
        try:
            document = dict(saved.document(chosen))
            stream = decode_stream(self._stream, document["stream"])
            steps = saved.steps(chosen)
            self._index = saved.open(chosen, reading_of(stream))
            self._base = int(saved.document(steps[0])["context"])
        except (HeadgateError, OSError, KeyError) as error:
            self._tell(f"saved indexes of stream {self._stream!r} are built again: {error}")
            self._forget()
            return None
        self._version, self._document, self._deltas = chosen, document, len(steps) - 1
        return chosen

    def _build(self, snapshot: Snapshot, version: int, document: dict[str, Any]) -> int:
        stream = snapshot.deployment.streams[self._stream]
        wanted = definitions_of(snapshot, self._stream)
        self._index = LiveIndex.build(reading_of(stream), grouped(wanted.values()))
        self._saved().save(version, self._index, document)
        self._version, self._document, self._base, self._deltas = version, document, document["context"], 0
        return version

    def _forget(self) -> None:
        self._index, self._version, self._deltas = None, 0, 0
        self._known.clear()
        for path in self._directory.glob("*.hga*"):
            path.unlink(missing_ok=True)

    def _clean(self) -> None:
        """Delete what neither this version nor the one before it needs."""
        needed = [version for version in self._known.values() if version is not None]
        if self._index is not None and needed:
            try:
                self._saved().store.clean(needed)
            except (MatchingError, OSError) as error:
                self._tell(f"old indexes of stream {self._stream!r} stay: {error}")

    def complained(self, version: int, reasons: set[str]) -> None:
        """Workers could not map the index of a version: build it again if the files are bad, and say why in any case.

        Files that are sound here are not visible where the worker runs; it compiles from the snapshot.
        """
        found = self._known.get(version)
        for reason in reasons - self._told:
            self._tell(f"stream {self._stream!r}: {reason}")
        if found is None:
            return
        try:
            saved = self._saved()
            stream = decode_stream(self._stream, saved.document(found)["stream"])
            saved.open(found, reading_of(stream))
        except (HeadgateError, OSError, KeyError):
            self._forget()

    def _tell(self, reason: str) -> None:
        self._told.add(reason)
        print(f"headgate: {reason}", file=sys.stderr, flush=True)


def _document(snapshot: Snapshot, stream: str) -> dict[str, Any]:
    """What a file says of itself: the stream, and the place in the context log that its contexts are of."""
    return {
        "stream": json.loads(json.dumps(encode_stream(snapshot.deployment.streams[stream]))),
        "context": snapshot.contexts.get(stream, 0),
    }


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether filters over both streams mean the same: the columns and the grid are."""
    first, second = one["stream"], other["stream"]
    return bool(
        first["schema"] == second["schema"]
        and first.get("options", {}).get("grid") == second.get("options", {}).get("grid")
    )
