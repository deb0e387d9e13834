"""Versions of a box index in a directory: snapshots that are mapped, and deltas that lead from one version to the next.

A worker that holds version n applies the delta n -> n+1 to its private pages; one that starts maps the newest snapshot
and applies what follows. Replaying the same deltas on the same snapshot gives the same arrays. Both kinds of file may
carry more: what `headgate.matching.live` keeps beside the boxes. Numbers of versions may skip; a delta says which
version it follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
class More:
    """What a file carries beside boxes: a JSON document and arrays, which this module does not interpret."""

    meta: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> More:
        """What a file had."""
        prefix = "more."
        return cls(
            meta.get("more", {}),
            {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)},
        )


_NOTHING = More()


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

    def publish(self, version: int, index: BoxIndex | None, more: More = _NOTHING) -> Path:
        """Write a snapshot; `index` None is one without boxes."""
        self.directory.mkdir(parents=True, exist_ok=True)
        meta: dict[str, Any] = {"version": version, "more": dict(more.meta), "boxes": index is not None}
        arrays = {f"more.{name}": array for name, array in more.arrays.items()}
        if index is not None:
            meta["attributes"] = [[attribute.name, type_name(attribute.type)] for attribute in index.attributes]
            meta["labels"] = sorted(index.labels)
            arrays |= {**arrays_of(index.tree), **_label_arrays(index.labels)}
        write_arrays(self.snapshot(version), meta, arrays)
        return self.snapshot(version)

    def append(self, version: int, delta: Delta, after: int | None = None, more: More = _NOTHING) -> Path:
        """Write the delta that makes `version` of an earlier one, by default of the one before it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        added = delta.added
        arrays = {
            "removed": delta.removed,
            "changed": delta.changed,
            "attributes": delta.attributes,
            "lows": delta.lows,
            "highs": delta.highs,
            **{f"more.{name}": array for name, array in more.arrays.items()},
        }
        if added is not None:
            arrays |= {"added.ids": added.ids, "added.exact": added.exact, "added.nulls": added.nulls}
        meta = {"version": version, "labels": sorted(delta.labels), "more": dict(more.meta)}
        meta["after"] = version - 1 if after is None else after
        write_arrays(self.delta(version), meta, {**arrays, **_label_arrays(delta.labels)})
        return self.delta(version)

    def read_delta(self, version: int) -> Delta:
        """The delta that makes a version; a damaged or missing one is refused."""
        return self.load_delta(version)[0]

    def load_delta(self, version: int) -> tuple[Delta, More]:
        """The delta that makes a version, and what it carries beside."""
        meta, arrays = map_arrays(self.delta(version))
        added = None
        if "added.ids" in arrays:
            added = Boxes(arrays["added.ids"], arrays["added.exact"], arrays["added.nulls"])
        changed, attributes, lows, highs = (arrays[name] for name in ("changed", "attributes", "lows", "highs"))
        labels = _labels(meta["labels"], arrays)
        return Delta(arrays["removed"], added, changed, attributes, lows, highs, labels), More.of(meta, arrays)

    def load_snapshot(self, version: int, *, verify: bool = True) -> tuple[BoxIndex | None, More]:
        """The snapshot of a version, mapped privately, and what it carries beside."""
        meta, arrays = map_arrays(self.snapshot(version), verify=verify)
        more = More.of(meta, arrays)
        if not meta.get("boxes", True):
            return None, more
        attributes = [Attribute(name, parse_type(kind)) for name, kind in meta["attributes"]]
        plain = {name: array for name, array in arrays.items() if not name.startswith("more.")}
        return BoxIndex(attributes, tree_of(plain), _labels(meta["labels"], arrays)), more

    def chain(self, version: int) -> list[int]:
        """The versions that lead to one: a snapshot's, then each delta's; a missing file is refused."""
        found = [version]
        while not self.snapshot(found[-1]).exists():
            path = self.delta(found[-1])
            if not path.exists():
                raise MatchingError(
                    f"version {version} cannot be opened: {path.name} is missing",
                    where=str(self.directory),
                    hint="publish a snapshot",
                )
            found.append(int(map_arrays(path, verify=False)[0]["after"]))
        return found[::-1]

    def open(self, version: int, *, verify: bool = True) -> BoxIndex:
        """The index of a version: the newest snapshot not after it, and the deltas from there."""
        base, *following = self.chain(version)
        index, _ = self.load_snapshot(base, verify=verify)
        if index is None:
            raise MatchingError(f"version {version} has no boxes", where=str(self.directory))
        for each in following:
            self.read_delta(each).apply(index)
        return index

    def versions(self) -> list[int]:
        """The versions that there is a file of, ascending."""
        return sorted({int(path.stem.rpartition("-")[2]) for path in self.directory.glob("*-*.hga")})

    def files(self, version: int) -> list[Path]:
        """The files that a version is opened from: a snapshot, then deltas."""
        base, *following = self.chain(version)
        return [self.snapshot(base), *(self.delta(each) for each in following)]

    def clean(self, keep: Iterable[int]) -> list[Path]:
        """Delete every file that none of these versions needs; returns which. A worker keeps what it has mapped."""
        needed: set[Path] = set()
        for version in keep:
            needed |= set(self.files(version))
        gone = [path for path in self.directory.glob("*.hga*") if path not in needed]
        for path in gone:
            path.unlink(missing_ok=True)
        return gone


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
