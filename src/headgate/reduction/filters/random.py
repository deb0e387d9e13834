"""RANDOM: throws away a fraction of the rows, each by its own seeded draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, Floats, Seqs


def draws(seqs: Seqs, seed: int, round_: int) -> Floats:
    """A uniform number in [0, 1) per sequence number, fixed by seed and round (SplitMix64's finaliser)."""
    with np.errstate(over="ignore"):
        salt = np.uint64((seed * 0x9E3779B97F4A7C15 + round_ * 0xD1B54A32D192ED03 + 1) & 0xFFFFFFFFFFFFFFFF)
        mixed = seqs.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + salt
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    uniform: Floats = (mixed >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    return uniform


@dataclass(frozen=True, slots=True)
class Random(ReductionFilter):
    """Drops each row with probability `fraction`; a row that stayed in one pack is drawn again in the next.

    A fraction of None (written `needed`) drops exactly as many as have to go, which is the default policy.
    """

    fraction: float | None
    seed: int
    name: ClassVar[str] = "random"
    main: ClassVar[str | None] = "fraction"
    about: ClassVar[str] = "drop each row with probability `fraction`"

    @property
    def as_needed(self) -> bool:
        """Whether no fraction was given."""
        return self.fraction is None

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Fraction and seed."""
        reader.has("attribute")
        needed = reader.raw("fraction") == "needed"
        fraction = None if needed else reader.number("fraction", low=0.0, high=1.0)
        return cls(fraction, reader.integer("seed", 0, low=0))

    def keep(self, rows: pa.RecordBatch, state: Any, moment: Moment) -> tuple[Bools, Any]:
        """Keep what was not drawn."""
        del rows
        uniform = draws(moment.seqs, self.seed, moment.round)
        if self.fraction is not None:
            return np.asarray(uniform >= self.fraction, dtype=np.bool_), state
        mask = np.ones(len(uniform), dtype=np.bool_)
        if moment.need_rows > 0 or moment.need_bytes > 0:
            order = np.argsort(uniform, kind="stable")
            freed = np.searchsorted(np.cumsum(moment.sizes[order]), moment.need_bytes) + (moment.need_bytes > 0)
            mask[order[: max(int(np.ceil(moment.need_rows)), int(freed))]] = False
        return mask, state
