"""What DISTINCT and QUANTILES share: an exact set of values while it is small, a sketch when it is not.

Small gaps are the rule (a few rows between two kept ones), and there a plain list of values is smaller than any
sketch, exact, and merges exactly.
"""

from __future__ import annotations

import base64
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from headgate.reduction.digesters.base import Digester, Parts
from headgate.reduction.rows import Ints


@dataclass(frozen=True, slots=True)
class Sketched(Digester):
    """Entries are objects: a list of values up to `exact` of them, else a sketch."""

    exact: ClassVar[int] = 32

    @abstractmethod
    def sketch(self, items: list[Any]) -> Any:
        """The sketch of lists of values and of sketches."""

    @abstractmethod
    def reduce_exact(self, values: list[Any]) -> list[Any]:
        """The canonical list of values."""

    @abstractmethod
    def to_bytes(self, sketch: Any) -> bytes:
        """The sketch's wire form."""

    @abstractmethod
    def from_bytes(self, data: bytes) -> Any:
        """The sketch from its wire form."""

    def empty(self, count: int) -> Parts:
        """No values."""
        entries = np.empty(count, dtype=object)
        entries[:] = [[] for _ in range(count)]
        return (entries,)

    def fold(self, parts: Parts, starts: Ints) -> Parts:
        """Join lists while they are short, sketches otherwise."""
        entries = parts[0]
        merged = np.empty(len(starts), dtype=object)
        for run, (start, stop) in enumerate(zip(starts, [*starts[1:], len(entries)], strict=True)):
            merged[run] = self._merge(list(entries[start:stop]))
        return (merged,)

    def _merge(self, entries: list[Any]) -> Any:
        if len(entries) == 1:
            return entries[0]
        if all(isinstance(entry, list) for entry in entries):
            values = self.reduce_exact([value for entry in entries for value in entry])
            return values if len(values) <= self.exact else self.sketch([values])
        return self.sketch(entries)

    def encode(self, parts: Parts, index: int) -> Any:
        """The values, or the sketch as text."""
        entry = parts[0][index]
        return entry if isinstance(entry, list) else base64.b85encode(self.to_bytes(entry)).decode()

    def decode(self, value: Any) -> Parts:
        """The entry."""
        entries = np.empty(1, dtype=object)
        entries[0] = list(value) if isinstance(value, list) else self.from_bytes(base64.b85decode(value))
        return (entries,)
