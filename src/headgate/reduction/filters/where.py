"""DROP WHERE and KEEP WHERE: any expression of the filter language, with its direction in the name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from headgate.errors import HeadgateError
from headgate.reduction.errors import PolicyError
from headgate.reduction.filters.base import Moment, ReductionFilter
from headgate.reduction.reader import Reader
from headgate.reduction.rows import Bools

if TYPE_CHECKING:
    from headgate.filters import Filter


def condition(reader: Reader, text: Any, name: str) -> Filter:
    """A filter-language expression over the stream's columns."""
    from headgate.filters import parse_filter  # only a policy with a condition needs the language
    from headgate.filters.cost import ROW_US

    try:
        return parse_filter(str(text), reader.schema, row_us=ROW_US)
    except HeadgateError as error:
        place = reader.at(name) + (f", {error.where}" if error.where else "")
        raise PolicyError(error.message, where=place, hint=error.hint) from error


@dataclass(frozen=True, slots=True)
class DropWhere(ReductionFilter):
    """Drops rows for which the expression is true; NULL is not true, so such rows stay."""

    where: Filter
    name: ClassVar[str] = "drop_where"
    main: ClassVar[str | None] = "where"
    about: ClassVar[str] = "drop rows for which an expression is true"

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """The expression."""
        reader.has("attribute")
        return cls(condition(reader, reader.raw("where", required="an expression"), "where"))

    def reads(self) -> frozenset[str]:
        """The columns of the expression."""
        return self.where.columns

    def keep(self, rows: pa.RecordBatch, state: Any, moment: Moment) -> tuple[Bools, Any]:
        """Keep where the expression is false or NULL."""
        del moment
        return ~np.asarray(self.where.evaluate(rows), dtype=np.bool_), state


@dataclass(frozen=True, slots=True)
class KeepWhere(DropWhere):
    """Keeps only rows for which the expression is true."""

    name: ClassVar[str] = "keep_where"
    about: ClassVar[str] = "keep only rows for which an expression is true"

    def keep(self, rows: pa.RecordBatch, state: Any, moment: Moment) -> tuple[Bools, Any]:
        """Keep where the expression is true."""
        del moment
        return np.asarray(self.where.evaluate(rows), dtype=np.bool_), state
