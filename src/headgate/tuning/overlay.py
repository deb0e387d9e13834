"""What is known of the sites that a tree can join: link metrics, site constants, profiles and clients.

Sites are numbered 0 to n - 1 here; names come back at the edge. Link metrics are asked pair by pair or for arrays of
pairs, so that ten thousand sites need no matrix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bits = NDArray[np.bool_]


class LinkMetric(Protocol):
    """A measurement between two sites; not necessarily symmetric (`child`, `parent`)."""

    def between(self, child: int, parent: int) -> float:
        """The value for one pair."""

    def pairs(self, children: Ints, parents: Ints) -> Floats:
        """The values for pairs."""


@dataclass(frozen=True)
class MatrixMetric:
    """A link metric held as a matrix."""

    values: Floats

    def between(self, child: int, parent: int) -> float:
        """The value for one pair."""
        return float(self.values[child, parent])

    def pairs(self, children: Ints, parents: Ints) -> Floats:
        """The values for pairs."""
        return np.asarray(self.values[children, parents], dtype=np.float64)


@dataclass(frozen=True)
class PlaneMetric:
    """Distance in a plane times `scale`, plus `base`: obeys the triangle inequality and needs no matrix."""

    positions: Floats
    scale: float = 1.0
    base: float = 0.0

    def between(self, child: int, parent: int) -> float:
        """The value for one pair."""
        (x, y), (u, v) = self.positions[child].tolist(), self.positions[parent].tolist()
        return self.base + self.scale * math.hypot(x - u, y - v)

    def pairs(self, children: Ints, parents: Ints) -> Floats:
        """The values for pairs."""
        gap = self.positions[children] - self.positions[parents]
        return np.asarray(self.base + self.scale * np.hypot(gap[:, 0], gap[:, 1]), dtype=np.float64)


class Sizing(Protocol):
    """How many bytes per second a set of profile atoms is worth."""

    @property
    def atoms(self) -> int:
        """Atoms of a profile."""

    def size(self, bits: Bits) -> float:
        """One set."""

    def sizes(self, bits: Bits) -> Floats:
        """Many sets, one a row."""


@dataclass(frozen=True)
class AtomSizes:
    """Every atom (a feed, a topic) is worth its own rate."""

    rates: Floats

    @property
    def atoms(self) -> int:
        """Atoms of a profile."""
        return len(self.rates)

    def size(self, bits: Bits) -> float:
        """One set."""
        return float(self.rates[bits].sum())

    def sizes(self, bits: Bits) -> Floats:
        """Many sets, one a row."""
        return np.asarray(bits @ self.rates, dtype=np.float64)


@dataclass(frozen=True)
class PieceSizes:
    """Pieces of a stream's rows and columns, as the planner sees them: rows wanted times width of columns wanted.

    The first atoms are row pieces with their part of the rows, the rest are columns with their bytes; `row_bytes` is
    what a row costs besides.
    """

    parts: Floats
    widths: Floats
    row_bytes: float
    rows_per_s: float

    @property
    def atoms(self) -> int:
        """Atoms of a profile."""
        return len(self.parts) + len(self.widths)

    def size(self, bits: Bits) -> float:
        """One set."""
        return float(self.sizes(bits[None, :])[0])

    def sizes(self, bits: Bits) -> Floats:
        """Many sets, one a row."""
        rows = np.minimum(1.0, bits[:, : len(self.parts)] @ self.parts)
        return np.asarray(rows * (self.row_bytes + bits[:, len(self.parts) :] @ self.widths) * self.rows_per_s)


@dataclass(frozen=True)
class Profiles:
    """What each site asks for, as sets of atoms. Merging is union."""

    bits: Bits
    sizing: Sizing

    @classmethod
    def of_atoms(cls, bits: Bits, rates: Floats) -> Profiles:
        """Profiles over atoms with a rate each."""
        return cls(bits, AtomSizes(rates))

    def size(self, bits: Bits) -> float:
        """Bytes per second of a set of atoms."""
        return self.sizing.size(bits)

    def sizes(self, bits: Bits) -> Floats:
        """Bytes per second of many sets, one a row."""
        return self.sizing.sizes(bits)


@dataclass(frozen=True)
class Overlay:
    """The sites and what is known of them. `constants` are per-site values by metric name, `clients` counts clients.

    `joins` has the pairs of child and parent that can connect, None when all can.
    """

    size: int
    links: Mapping[str, LinkMetric] = field(default_factory=dict)
    constants: Mapping[str, Floats] = field(default_factory=dict)
    profiles: Profiles | None = None
    clients: Ints | None = None
    match_entry_s: float = 1e-3
    match_byte_s: float = 0.0
    joins: frozenset[tuple[int, int]] | None = None

    @cached_property
    def client_counts(self) -> Ints:
        """Clients per site; one each when nothing is known."""
        return np.ones(self.size, dtype=np.int64) if self.clients is None else self.clients

    @cached_property
    def wanted(self) -> Profiles:
        """The profiles; without any, every site asks for its own single atom of 0 bytes."""
        return self.profiles or Profiles.of_atoms(np.zeros((self.size, 1), dtype=np.bool_), np.zeros(1))

    def weights(self, over: str) -> Ints:
        """How often each site counts in a system set (grammar: brokers, clients, brokers-clients)."""
        ones = np.ones(self.size, dtype=np.int64)
        if over == "brokers":
            return ones
        return self.client_counts if over == "clients" else ones + self.client_counts
