"""Manifests: the commit of a micro-batch. One names the parts in order and gives every row its sequence number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headgate.reduction import merged
from headgate.wire.frame import Frame, decode_frame, encode_frame
from headgate.wire.integers import decode_sorted, decode_uints, encode_sorted, encode_uints
from headgate.wire.unsent import Unsent


def of_class(identity: int) -> str:
    """The group of a single class among those that rows were withheld from.

    >>> of_class(12)
    'class 12'
    """
    return f"class {identity}"


def tolerances(withheld: Mapping[str, int]) -> dict[str, int]:
    """What was withheld from groups of classes by what they tolerate, without what was from single classes."""
    return {group: count for group, count in withheld.items() if not group.startswith("class ")}


def classes_withheld(withheld: Mapping[str, int]) -> dict[int, int]:
    """The other part of it: by class, the rows that were not looked at for it.

    >>> classes_withheld({"1": 7, of_class(12): 3})
    {12: 3}
    """
    return {int(group[6:]): count for group, count in withheld.items() if group.startswith("class ")}


@dataclass(frozen=True, slots=True)
class PartRef:
    """A staged part by its place in the root log (0 when nothing in the run was wanted) and what it counted."""

    log_sequence: int
    evaluated: int
    kept: int


@dataclass(frozen=True, slots=True)
class SourceRange:
    """What a batch read of one source: its offsets before and after, as the JSON text that the source gave Spark.

    `before` is None where the batch began at the source's start.
    """

    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a micro-batch committed: rows (after, upto] of the stream's sequence, under one pinned version.

    `lineage` identifies the checkpoint that numbers the batches: a batch of another lineage is refused, because its
    number says nothing about what was already committed. `lag_ms` is the mean age of the rows at the commit. `context`
    is the place in the root log up to which updates of contexts were applied, but for those at the places `skipped`,
    which were shed, and of those in `partly` the changes whose bits are set: with `version` they are the batch's pin.
    `shed_updates` counts the values that this batch shed, `partly_shed` the evaluated rows that were matched for some
    groups of classes only, `withheld` by a group's tolerance the rows that were not matched for it, or by `of_class`
    those that were not looked at for a class that takes too long. `unsent` is what senders declared in this batch to
    have given up, `untold` what they had declared in the batches before it that had
    no rows: subscribers hear of both with the rows of this one.

    `ranges` are what the batch read of each source; they begin where those of the manifest before it end. `files` is
    the place in the root log of the newest list of files that were read, 0 where the source is not one of files. `gaps`
    counts sequence numbers at the manifest's start whose rows were lost with a part of the root log: they are among the
    evaluated rows, so that no number is given twice. `memory` are, for each partition of the keys, the place in the
    root log of the newest message of what derived columns remember, 0 where nothing is; empty where nothing is derived.
    """

    stream: str
    lineage: str
    batch: int
    version: int
    after: int
    parts: tuple[PartRef, ...]
    class_ids: npt.NDArray[np.uint64] = field(repr=False)
    class_counts: npt.NDArray[np.uint64] = field(repr=False)
    dead: int = 0
    shed: int = 0
    gaps: int = 0
    dead_parts: tuple[PartRef, ...] = ()
    time_ms: int = 0
    lag_ms: int = 0
    context: int = 0
    skipped: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64), repr=False)
    shed_updates: int = 0
    partly_shed: int = 0
    partly: Mapping[int, bytes] = field(default_factory=dict, repr=False)
    withheld: Mapping[str, int] = field(default_factory=dict)
    ranges: tuple[SourceRange, ...] = ()
    files: int = 0
    memory: tuple[int, ...] = ()
    unsent: Unsent | None = None
    untold: Unsent | None = None

    @property
    def told(self) -> Unsent | None:
        """What senders gave up and subscribers are told with this manifest, or with the next one that has rows."""
        return merged(self.untold, self.unsent)

    @property
    def evaluated(self) -> int:
        """Rows that were matched against the index."""
        return sum(part.evaluated for part in self.parts)

    @property
    def upto(self) -> int:
        """The sequence number of the last row."""
        return self.after + self.evaluated

    @property
    def rows_in(self) -> int:
        """Rows that the source gave: evaluated, dead and shed."""
        return self.evaluated + self.dead + self.shed

    def bases(self) -> list[int]:
        """For each part, the sequence number before its first row."""
        ends = np.cumsum([part.evaluated for part in self.parts], dtype=np.int64)
        return [self.after + int(end) - part.evaluated for end, part in zip(ends, self.parts, strict=True)]

    def matched(self, class_ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """How many rows each of these classes matched."""
        if not len(self.class_ids):
            return np.zeros(len(class_ids), dtype=np.int64)
        at = np.minimum(np.searchsorted(self.class_ids, class_ids), len(self.class_ids) - 1)
        return np.where(self.class_ids[at] == class_ids, self.class_counts[at], 0).astype(np.int64)


def _refs(parts: Sequence[PartRef]) -> list[list[int]]:
    return [[part.log_sequence, part.evaluated, part.kept] for part in parts]


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest."""
    header = {
        "stream": manifest.stream,
        "lineage": manifest.lineage,
        "batch": manifest.batch,
        "version": manifest.version,
        "after": manifest.after,
        "parts": _refs(manifest.parts),
        "dead_parts": _refs(manifest.dead_parts),
        "dead": manifest.dead,
        "shed": manifest.shed,
        "gaps": manifest.gaps,
        "time_ms": manifest.time_ms,
        "lag_ms": manifest.lag_ms,
        "context": manifest.context,
        "classes": len(manifest.class_ids),
    }
    sections = [encode_sorted(manifest.class_ids), encode_uints(manifest.class_counts)]
    if manifest.ranges:
        header["ranges"] = [[each.before, each.after] for each in manifest.ranges]
    if manifest.files:
        header["files"] = manifest.files
    if manifest.memory:
        header["memory"] = list(manifest.memory)
    if manifest.partly_shed:
        header["partly_shed"] = manifest.partly_shed
    if len(manifest.skipped) or manifest.shed_updates:
        header |= {"skipped": len(manifest.skipped), "shed_updates": manifest.shed_updates}
        sections.append(encode_sorted(manifest.skipped))
    if manifest.withheld:
        header["withheld"] = dict(manifest.withheld)
    header |= {
        name: digest.to_dict()
        for name, digest in (("unsent", manifest.unsent), ("untold", manifest.untold))
        if digest is not None
    }
    if manifest.partly:
        places = sorted(manifest.partly)
        bits = [manifest.partly[place] for place in places]
        header["partly"] = [len(places), len(sections)]
        sections += [
            encode_sorted(np.array(places, np.uint64)),
            encode_uints(np.array([len(each) for each in bits], np.uint64)),
            b"".join(bits),
        ]
    return encode_frame("m", header, sections)


def decode_manifest(data: bytes) -> Manifest:
    """Read a manifest."""
    frame = decode_frame(data, "m")
    header = frame.header
    count, skipped = int(header["classes"]), int(header.get("skipped", 0))
    return Manifest(
        stream=header["stream"],
        lineage=header["lineage"],
        batch=header["batch"],
        version=header["version"],
        after=header["after"],
        parts=tuple(PartRef(*ref) for ref in header["parts"]),
        class_ids=decode_sorted(frame.sections[0], count),
        class_counts=decode_uints(frame.sections[1], count),
        dead=header["dead"],
        shed=header["shed"],
        gaps=header["gaps"],
        dead_parts=tuple(PartRef(*ref) for ref in header["dead_parts"]),
        time_ms=header["time_ms"],
        lag_ms=header["lag_ms"],
        context=header.get("context", 0),
        skipped=decode_sorted(frame.sections[2], skipped) if skipped else np.zeros(0, np.uint64),
        shed_updates=header.get("shed_updates", 0),
        partly_shed=header.get("partly_shed", 0),
        partly=_decode_partly(frame) if "partly" in header else {},
        withheld=header.get("withheld", {}),
        ranges=tuple(SourceRange(*each) for each in header.get("ranges", ())),
        files=header.get("files", 0),
        memory=tuple(header.get("memory", ())),
        unsent=Unsent.from_dict(header["unsent"]) if "unsent" in header else None,
        untold=Unsent.from_dict(header["untold"]) if "untold" in header else None,
    )


def _decode_partly(frame: Frame) -> dict[int, bytes]:
    count, first = frame.header["partly"]
    places = decode_sorted(frame.sections[first], count).tolist()
    ends = np.cumsum(decode_uints(frame.sections[first + 1], count)).tolist()
    bits = frame.sections[first + 2]
    starts = [0, *ends[:-1]] if ends else []
    return {place: bytes(bits[start:end]) for place, start, end in zip(places, starts, ends, strict=True)}
