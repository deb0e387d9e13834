"""What every digester is: a commutative, associative summary of dropped rows, held as arrays with one entry per gap.

A digester never holds rows. `lift` makes one entry of each dropped row, `fold` merges runs of neighbouring entries;
both are vectorised. An entry's wire form is a small JSON value, so that a message header can carry it; entries that
came over the wire fold with entries that were made here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.reduction.reader import Reader
from headgate.reduction.rows import Ints

Parts = tuple[NDArray[Any], ...]


@dataclass(frozen=True, slots=True)
class Digester(ABC):
    """A summary of some columns. `label` names it in digests: ``min(bpm)``."""

    columns: tuple[str, ...]
    name: ClassVar[str]
    kind: ClassVar[str] = "number"
    about: ClassVar[str] = ""

    @property
    def label(self) -> str:
        """The name that digests carry."""
        return f"{self.name}({', '.join(self.columns)})"

    @classmethod
    def read(cls, reader: Reader, value: Any) -> Self:
        """The digester of one column, the one named or else the policy's attribute."""
        if value is None:
            return cls((reader.attribute(cls.kind),))
        return cls((reader.checked_column(value, cls.name, cls.kind),))

    @abstractmethod
    def lift(self, rows: pa.RecordBatch) -> Parts:
        """One entry per row."""

    @abstractmethod
    def empty(self, count: int) -> Parts:
        """Entries that summarise nothing: the identity of `fold`."""

    @abstractmethod
    def fold(self, parts: Parts, starts: Ints) -> Parts:
        """Merge runs of entries; run i is from starts[i] to starts[i + 1]."""

    @abstractmethod
    def encode(self, parts: Parts, index: int) -> Any:
        """The JSON form of one entry."""

    @abstractmethod
    def decode(self, value: Any) -> Parts:
        """One entry from its JSON form."""

    @abstractmethod
    def show(self, value: Any) -> Any:
        """What a person or program wants to read from the JSON form."""


def to_json(value: float) -> Any:
    """A number as JSON can carry it; the infinite ones and NaN as text."""
    if isinstance(value, int | np.integer):
        return int(value)
    return float(value) if np.isfinite(value) else str(float(value))


def from_json(value: Any) -> Any:
    """The number of `to_json`."""
    return float(value) if isinstance(value, str) else value


def joined(parts: list[Parts]) -> Parts:
    """Entries one after the other."""
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))
