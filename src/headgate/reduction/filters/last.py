"""LAST: of the rows whose attribute is in a set, only the last stays (the mirror of FIRST)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headgate.reduction.filters.first import First
from headgate.reduction.rows import Ints


@dataclass(frozen=True, slots=True)
class LastOfKey(First):
    """One row of a set per key: the last."""

    name: ClassVar[str] = "last"
    about: ClassVar[str] = "of the rows whose attribute is in the set, keep the last"
    newest_first: ClassVar[bool] = True

    def chosen(self, groups_of: Ints, groups: int, indices: Ints) -> Ints:
        """The last index of each group."""
        last = np.full(groups, -1, dtype=np.int64)
        last[groups_of] = indices  # the last of equal indices stays
        return last[last >= 0]
