"""GUNIQ: drops every row whose attribute was already seen in the queue, adjacent or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools, codes, column, place_in_group


@dataclass(frozen=True, slots=True)
class GlobalUniq(ReductionFilter):
    """Removes all duplicates inside the queue, first one kept. NULL is no duplicate of anything.

    It looks at the queue only, as the paper's filters do: remembering every value ever sent would not be bounded.
    """

    attribute: str
    key: tuple[str, ...]
    name: ClassVar[str] = "guniq"
    main: ClassVar[str | None] = "attribute"
    about: ClassVar[str] = "drop all duplicates of the attribute in the queue"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Attribute and key."""
        return cls(reader.attribute("scalar"), reader.key())

    def keep(self, rows: pa.RecordBatch, state: Any, moment: Moment) -> tuple[Bools, Any]:
        """Keep the first row of each value."""
        del moment
        values = column(rows, self.attribute)
        found, groups = codes([*(column(rows, name) for name in self.key), values], rows.num_rows)
        mask: Bools = place_in_group(found, groups) == 0
        return mask | ~np.asarray(values.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_), state
