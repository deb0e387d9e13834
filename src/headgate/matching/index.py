"""What every index is: classes in, the classes of each row out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.matching.lists import ClassLists, Ids

MAX_CLASS_ID = 2**32 - 1


class MatchingError(HeadgateError):
    """A class, a range or an index file that cannot be used; nothing was changed."""


class RowFilter(Protocol):
    """A predicate over rows, such as `headgate.filters.Filter`."""

    @property
    def text(self) -> str:
        """The predicate as its owner wrote it."""
        ...

    @property
    def columns(self) -> Sequence[str] | frozenset[str]:
        """The columns that it reads."""
        ...

    def evaluate(self, batch: pa.RecordBatch, context: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
        """For each row whether the predicate is true; unknown counts as false."""
        ...


@runtime_checkable
class Bounded(Protocol):
    """A predicate beside another one, whose rows all lie in boxes of numeric columns: a region, a resolution."""

    @property
    def where(self) -> RowFilter:
        """The other predicate; rows satisfy both."""
        ...

    def bounds(self, context: Mapping[str, Any]) -> tuple[Sequence[Mapping[str, tuple[float, float]]], bool]:
        """Boxes of closed ranges by column that hold every row, and whether all rows in them satisfy this predicate.

        No two boxes share a row. A row without a value in a column that is named lies in no box.
        """
        ...


@dataclass(frozen=True, slots=True)
class ClassSpec:
    """A delivery class as matching sees it: its id from the catalog, its filter and the context bound to `$names`."""

    id: int
    filter: RowFilter
    context: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.id <= MAX_CLASS_ID:
            raise MatchingError(f"class id {self.id} is out of range", hint=f"ids go from 0 to {MAX_CLASS_ID}")


@runtime_checkable
class Index(Protocol):
    """Finds, for every row of a batch, exactly the classes whose filters are true for it."""

    @property
    def classes(self) -> Ids:
        """The ids it knows, ascending."""
        ...

    def match(self, batch: pa.RecordBatch) -> ClassLists:
        """The classes of each row; equal for every implementation."""
        ...


def check_unique(ids: Ids) -> Ids:
    """The ids ascending; a repeated one is refused."""
    ordered = np.sort(ids)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated):
        raise MatchingError(f"class id {repeated[0]} is given twice", hint="ids name one class each")
    return ordered
