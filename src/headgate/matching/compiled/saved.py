"""Live indexes in files: written by the one who compiles, mapped by every worker, brought forward by deltas."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headgate.matching.compiled.container import map_arrays
from headgate.matching.compiled.files import Delta, IndexStore, More
from headgate.matching.definitions import RowReading
from headgate.matching.index import MatchingError
from headgate.matching.live import Beside, IndexDelta, LiveIndex


class SavedIndexes:
    """The saved versions of one stream's index. `document` is the owner's and is given back by `document`."""

    def __init__(self, directory: Path) -> None:
        self.store = IndexStore(directory)

    def save(self, version: int, index: LiveIndex, document: Mapping[str, Any]) -> Path:
        """Write all of an index."""
        return self.store.publish(version, index.boxes, _more(index.beside, document))

    def append(self, version: int, delta: IndexDelta, after: int, document: Mapping[str, Any]) -> Path:
        """Write what leads from a saved version to the next one."""
        boxes = Delta(removed=delta.removed, added=delta.boxes, labels=delta.labels)
        return self.store.append(version, boxes, after, _more(delta.beside, document))

    def steps(self, version: int) -> list[int]:
        """The versions that lead to one: a whole one, then each delta's; a missing file is refused."""
        return self.store.chain(version)

    def document(self, version: int) -> Mapping[str, Any]:
        """The owner's document of a version."""
        whole = self.store.snapshot(version).exists()
        path = self.store.snapshot(version) if whole else self.store.delta(version)
        found: Mapping[str, Any] = map_arrays(path, verify=False)[0]["more"]["document"]
        return found

    def open(self, version: int, reading: RowReading) -> LiveIndex:
        """The index of a version, its arrays mapped privately; damage is refused."""
        base, *following = self.steps(version)
        boxes, more = self.store.load_snapshot(base)
        index = LiveIndex(reading, boxes, _beside(more))
        for each in following:
            index.apply(self.delta(each))
        return index

    def delta(self, version: int) -> IndexDelta:
        """The delta that makes a version; damage is refused."""
        boxes, more = self.store.load_delta(version)
        return IndexDelta(boxes.removed, boxes.added, boxes.labels, _beside(more))


def _more(beside: Beside, document: Mapping[str, Any]) -> More:
    meta = {
        "texts": list(beside.texts),
        "scanned": [[identity, dict(context)] for identity, context in beside.scanned.items()],
        "checked": [[identity, dict(context)] for identity, context in beside.checked.items()],
        "document": dict(document),
    }
    return More(meta, {"ids": beside.ids, "named": beside.named, "numbers": beside.numbers})


def _beside(more: More) -> Beside:
    meta, arrays = more.meta, more.arrays
    if "texts" not in meta:
        raise MatchingError("this file has boxes and no classes", hint="publish the version again")
    ids, named, numbers = (np.array(arrays[name], np.uint32) for name in ("ids", "named", "numbers"))
    return Beside(ids, named, numbers, tuple(meta["texts"]), dict(meta["scanned"]), dict(meta["checked"]))
