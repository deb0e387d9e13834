"""Boxes as arrays: what an index is built from and what is added to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.matching.compiled.coding import ALSO_NULLS, HIGHEST, LOWEST, NO_NULLS, ONLY_NULLS, Flags, Keys
from headgate.matching.compiled.keys import can_index, float_keys
from headgate.matching.index import MatchingError


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column that boxes constrain."""

    name: str
    type: pa.DataType

    def __post_init__(self) -> None:
        if not can_index(self.type):
            raise ValueError(f"values of type {self.type} have no keys, so {self.name!r} cannot be an attribute")

    @property
    def floating(self) -> bool:
        """Whether keys stand for floating-point numbers."""
        return bool(pa.types.is_floating(self.type))


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes by class id: `exact[box, attribute]` is the closed range of keys, `nulls` what it says of nulls.

    A class may have several boxes and matches when any of them does. An unconstrained attribute has the range of all
    keys and `ALSO_NULLS`.
    """

    ids: npt.NDArray[np.uint32]
    exact: Keys
    nulls: Flags

    def __post_init__(self) -> None:
        for name, dtype in (("ids", np.uint32), ("exact", np.int64), ("nulls", np.uint8)):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype))
        if self.exact.shape != (*self.nulls.shape, 2) or len(self.ids) != len(self.exact):
            raise ValueError(f"{len(self.ids)} ids, ranges {self.exact.shape} and nulls {self.nulls.shape} do not fit")
        reversed_ = (self.exact[:, :, 0] > self.exact[:, :, 1]) & (self.nulls != ONLY_NULLS)
        if reversed_.any():
            raise _reversed(self.ids, reversed_)
        everything = (self.exact[:, :, 0] == LOWEST) & (self.exact[:, :, 1] == HIGHEST)
        if ((self.nulls == ALSO_NULLS) & ~everything).any():
            raise ValueError("a range that nulls pass too must be the range of all keys; split it into two boxes")

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def unbounded(cls, ids: npt.NDArray[np.uint32], attributes: int) -> Boxes:
        """Boxes that contain every row; the start for filling in constraints."""
        exact = np.empty((len(ids), attributes, 2), np.int64)
        exact[:, :, 0], exact[:, :, 1] = LOWEST, HIGHEST
        return cls(ids, exact, np.full((len(ids), attributes), ALSO_NULLS, np.uint8))

    @classmethod
    def of_floats(
        cls, ids: npt.NDArray[np.uint32], lows: npt.NDArray[np.float64], highs: npt.NDArray[np.float64]
    ) -> Boxes:
        """Boxes over floating-point attributes, boxes x attributes, bounds included; NaN bounds are refused."""
        for bounds in (lows, highs):
            if len(bounds) and np.isnan(bounds.min()):
                box, attribute = np.argwhere(np.isnan(bounds))[0]
                raise MatchingError(
                    f"class {ids[box]} has a NaN bound on attribute {attribute}", hint="bounds must be numbers"
                )
        if (lows > highs).any():  # as keys it would be found too, after the work of making them
            raise _reversed(ids, lows > highs)
        exact = np.stack([float_keys(lows), float_keys(highs)], axis=2)
        return cls(np.asarray(ids, np.uint32), exact, np.full(lows.shape, NO_NULLS, np.uint8))


def _reversed(ids: npt.NDArray[np.uint32], where: npt.NDArray[np.bool_]) -> MatchingError:
    box, attribute = np.argwhere(where)[0]
    return MatchingError(
        f"class {ids[box]} has a reversed range on attribute {attribute}",
        hint="the lower bound must not be above the upper one",
    )
