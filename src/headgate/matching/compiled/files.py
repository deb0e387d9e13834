"""Versions of a box index in a directory: snapshots that are mapped, and deltas that lead from one version to the next.

A worker that holds version n applies the delta n -> n+1 to its private pages; one that starts maps the newest snapshot
and applies what follows. Replaying the same deltas on the same snapshot gives the same arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headgate.matching.compiled.boxes import Attribute, Boxes
from headgate.matching.compiled.container import map_arrays, write_arrays
from headgate.matching.compiled.index import BoxIndex
from headgate.matching.compiled.labels import Labels
from headgate.matching.compiled.tree import arrays_of, tree_of
from headgate.matching.index import MatchingError
from headgate.matching.lists import Ids
from headgate.model import parse_type, type_name

_NO_IDS = np.empty(0, np.uint32)
_NO_KEYS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Delta:
    """What changes between two versions: first removals, then additions, then changed ranges, in order."""

    removed: Ids = field(default_factory=lambda: _NO_IDS)
    added: Boxes | None = None
    changed: Ids = field(default_factory=lambda: _NO_IDS)
    attributes: np.ndarray = field(default_factory=lambda: _NO_KEYS)
    lows: np.ndarray = field(default_factory=lambda: _NO_KEYS)
    highs: np.ndarray = field(default_factory=lambda: _NO_KEYS)
    labels: Mapping[str, Labels] = field(default_factory=dict)

    def apply(self, index: BoxIndex) -> None:
        """Bring an index from the version before to the one after."""
        index.adopt_labels(self.labels)
        index.remove(self.removed)
        if self.added is not None and len(self.added):
            index.add(self.added)
        if len(self.changed):
            index.change(self.changed, self.attributes, self.lows, self.highs)


@dataclass(frozen=True, slots=True)
class IndexStore:
    """A directory of snapshots and deltas."""

    directory: Path

    def snapshot(self, version: int) -> Path:
        """Where the snapshot of a version is, or would be."""
        return self.directory / f"index-{version:012d}.hga"

    def delta(self, version: int) -> Path:
        """Where the delta that makes a version is, or would be."""
        return self.directory / f"delta-{version:012d}.hga"

    def publish(self, version: int, index: BoxIndex) -> Path:
        """Write a snapshot."""
        self.directory.mkdir(parents=True, exist_ok=True)
        arrays = arrays_of(index.tree)
        meta: dict[str, Any] = {
            "version": version,
            "attributes": [[attribute.name, type_name(attribute.type)] for attribute in index.attributes],
            "labels": sorted(index.labels),
        }
        write_arrays(self.snapshot(version), meta, {**arrays, **_label_arrays(index.labels)})
        return self.snapshot(version)

    def append(self, version: int, delta: Delta) -> Path:
        """Write the delta that makes `version` of the one before it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        added = delta.added
        arrays = {
            "removed": delta.removed,
            "changed": delta.changed,
            "attributes": delta.attributes,
            "lows": delta.lows,
            "highs": delta.highs,
        }
        if added is not None:
            arrays |= {"added.ids": added.ids, "added.exact": added.exact, "added.nulls": added.nulls}
        meta = {"version": version, "labels": sorted(delta.labels)}
        write_arrays(self.delta(version), meta, {**arrays, **_label_arrays(delta.labels)})
        return self.delta(version)

    def read_delta(self, version: int) -> Delta:
        """The delta that makes a version; a damaged or missing one is refused."""
        meta, arrays = map_arrays(self.delta(version))
        added = None
        if "added.ids" in arrays:
            added = Boxes(arrays["added.ids"], arrays["added.exact"], arrays["added.nulls"])
        changed, attributes, lows, highs = (arrays[name] for name in ("changed", "attributes", "lows", "highs"))
        return Delta(arrays["removed"], added, changed, attributes, lows, highs, _labels(meta["labels"], arrays))

    def open(self, version: int, *, verify: bool = True) -> BoxIndex:
        """The index of a version: the newest snapshot not after it, and the deltas from there."""
        base = version
        while base >= 0 and not self.snapshot(base).exists():
            if not self.delta(base).exists():
                raise MatchingError(
                    f"version {version} cannot be opened: {self.delta(base).name} is missing",
                    where=str(self.directory),
                    hint="publish a snapshot",
                )
            base -= 1
        meta, arrays = map_arrays(self.snapshot(base), verify=verify)
        attributes = [Attribute(name, parse_type(kind)) for name, kind in meta["attributes"]]
        index = BoxIndex(attributes, tree_of(arrays), _labels(meta["labels"], arrays))
        for following in range(base + 1, version + 1):
            self.read_delta(following).apply(index)
        return index


def _label_arrays(labels: Mapping[str, Labels]) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for name, value in labels.items():
        ends = np.cumsum([len(text) for text in value.strings], dtype=np.int64)
        found[f"text.{name}.ends"] = np.asarray(ends, np.int64)
        found[f"text.{name}.bytes"] = np.frombuffer(b"".join(value.strings), np.uint8)
        found[f"text.{name}.labels"] = value.labels
    return found


def _labels(names: list[str], arrays: Mapping[str, np.ndarray]) -> dict[str, Labels]:
    found = {}
    for name in names:
        data, ends = arrays[f"text.{name}.bytes"].tobytes(), arrays[f"text.{name}.ends"].tolist()
        strings = np.empty(len(ends), object)
        strings[:] = [data[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        found[name] = Labels(strings, np.array(arrays[f"text.{name}.labels"]))
    return found
