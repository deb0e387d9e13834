"""Digests: what a receiver is told about rows that it did not get.

A digest always counts rows, by reason, and gives the first and last sequence number among them; the policy's digesters
add to that. Digests merge, in any order and grouping, so a chain of relays gives the receiver one digest per gap.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headgate.reduction.digesters import Digester, Parts, by_label, joined
from headgate.reduction.rows import Ints, Seqs, packed

_ONE = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Digest:
    """The summary of some dropped rows: `first` and `last` are sequence numbers, `parts` what the digesters found."""

    count: int
    reasons: Mapping[str, int]
    first: int
    last: int
    parts: Mapping[str, Any] = field(default_factory=dict)

    def merge(self, other: Digest) -> Digest:
        """One digest of the rows of both. A digester that one of them lacks covers the other's rows only."""
        reasons = dict(self.reasons)
        for reason, count in other.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
        parts: dict[str, Any] = {}
        for label in {**self.parts, **other.parts}:
            digester = by_label(label)
            found = [digest.parts[label] for digest in (self, other) if label in digest.parts]
            entries = joined([digester.decode(value) for value in found])
            parts[label] = digester.encode(digester.fold(entries, _ONE), 0)
        return Digest(
            self.count + other.count,
            dict(sorted(reasons.items())),
            min(self.first, other.first),
            max(self.last, other.last),
            dict(sorted(parts.items())),
        )

    def show(self) -> dict[str, Any]:
        """The digest as a person reads it: ``{"count": 3, ..., "min(bpm)": 48}``."""
        shown = {label: by_label(label).show(value) for label, value in self.parts.items()}
        return {"count": self.count, "reasons": dict(self.reasons), "first": self.first, "last": self.last, **shown}

    def to_dict(self) -> dict[str, Any]:
        """The JSON-ready form."""
        short: dict[str, Any] = {"n": self.count, "why": dict(self.reasons), "seq": [self.first, self.last]}
        return {**short, "of": dict(self.parts)} if self.parts else short

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Digest:
        """The digest from its JSON-ready form."""
        return cls(value["n"], dict(value["why"]), value["seq"][0], value["seq"][1], dict(value.get("of", {})))

    def to_bytes(self) -> bytes:
        """Compact bytes for a message header."""
        return json.dumps(self.to_dict(), separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Digest:
        """The digest from its bytes."""
        return cls.from_dict(json.loads(data))


def merged(one: Digest | None, other: Digest | None) -> Digest | None:
    """One digest of both, where either may be missing."""
    if one is None or other is None:
        return other if one is None else one
    return one.merge(other)


@dataclass(frozen=True, slots=True)
class DigestTable:
    """Many digests side by side, as arrays: the gaps of one queue, in order.

    `reasons` has one column per reason named in `names`; `parts` has the entries of each digester.
    """

    count: Ints
    first: Seqs
    last: Seqs
    names: tuple[str, ...]
    reasons: Ints
    digesters: tuple[Digester, ...] = ()
    parts: tuple[Parts, ...] = ()

    def __len__(self) -> int:
        return len(self.count)

    @classmethod
    def of(
        cls, rows: pa.RecordBatch, seqs: Seqs, why: Ints, names: tuple[str, ...], digesters: tuple[Digester, ...]
    ) -> DigestTable:
        """One entry per dropped row; `why` is the index of its reason in `names`."""
        size = len(seqs)
        reasons = np.zeros((size, len(names)), dtype=np.int64)
        reasons[np.arange(size), why] = 1
        count = np.ones(size, dtype=np.int64)
        return cls(count, seqs, seqs, names, reasons, digesters, tuple(digester.lift(rows) for digester in digesters))

    @classmethod
    def empty(cls) -> DigestTable:
        """No digests."""
        none = np.zeros(0, dtype=np.int64)
        return cls(none, none.astype(np.uint64), none.astype(np.uint64), (), np.zeros((0, 0), dtype=np.int64))

    def pick(self, index: Any) -> DigestTable:
        """Some of the entries, in the order given (a slice, a mask or indices)."""
        parts = tuple(tuple(array[index] for array in entry) for entry in self.parts)
        return DigestTable(
            self.count[index],
            self.first[index],
            self.last[index],
            self.names,
            self.reasons[index],
            self.digesters,
            parts,
        )

    def join(self, other: DigestTable) -> DigestTable:
        """Entries of both; reasons and digesters that one side lacks count nothing there."""
        if not len(self) or not len(other):
            return other if not len(self) else self
        names = tuple(dict.fromkeys((*self.names, *other.names)))
        digesters = tuple({digester.label: digester for digester in (*self.digesters, *other.digesters)}.values())
        one, two = self._widened(names, digesters), other._widened(names, digesters)
        return DigestTable(
            np.concatenate([one.count, two.count]),
            np.concatenate([one.first, two.first]),
            np.concatenate([one.last, two.last]),
            names,
            np.concatenate([one.reasons, two.reasons]),
            digesters,
            tuple(joined([left, right]) for left, right in zip(one.parts, two.parts, strict=True)),
        )

    def _widened(self, names: tuple[str, ...], digesters: tuple[Digester, ...]) -> DigestTable:
        if names == self.names and digesters == self.digesters:
            return self
        reasons = np.zeros((len(self), len(names)), dtype=np.int64)
        for index, name in enumerate(self.names):
            reasons[:, names.index(name)] = self.reasons[:, index]
        mine = {digester.label: part for digester, part in zip(self.digesters, self.parts, strict=True)}
        parts = tuple(mine.get(digester.label) or digester.empty(len(self)) for digester in digesters)
        return DigestTable(self.count, self.first, self.last, names, reasons, digesters, parts)

    def fold(self, starts: Ints) -> DigestTable:
        """Merge runs of neighbouring entries; run i is from starts[i] to starts[i + 1]."""
        return DigestTable(
            np.add.reduceat(self.count, starts, dtype=np.int64),
            np.minimum.reduceat(self.first, starts),
            np.maximum.reduceat(self.last, starts),
            self.names,
            np.add.reduceat(self.reasons, starts, axis=0, dtype=np.int64),
            self.digesters,
            tuple(digester.fold(part, starts) for digester, part in zip(self.digesters, self.parts, strict=True)),
        )

    def packed(self) -> DigestTable:
        """The same in less memory, to be kept: counts in the fewest bytes that hold the largest."""
        return replace(self, count=packed(self.count), reasons=packed(self.reasons))

    def total(self) -> Digest | None:
        """One digest of all entries, None without any."""
        if not len(self):
            return None
        one = self.fold(_ONE)
        reasons = {name: int(count) for name, count in sorted(zip(self.names, one.reasons[0], strict=True)) if count}
        pairs = sorted(zip(one.digesters, one.parts, strict=True), key=lambda pair: pair[0].label)
        parts = {digester.label: digester.encode(part, 0) for digester, part in pairs}
        return Digest(int(one.count[0]), reasons, int(one.first[0]), int(one.last[0]), parts)

    def reduced(self) -> int:
        """How many rows the entries stand for."""
        return int(self.count.sum())
