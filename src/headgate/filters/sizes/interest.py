"""What a member of a delivery tree wants, in the planner's terms: covering, merging, amortised size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from headgate.filters.algebra.normal import NormalForm, normal_form
from headgate.filters.algebra.relate import columns_cover, forms_cover, merge
from headgate.filters.filter import Filter
from headgate.filters.sizes.statistics import StreamStatistics


@dataclass(frozen=True)
class Interest:
    """A filter and a projection over one stream's statistics. `select` None keeps every column."""

    filter: Filter
    select: frozenset[str] | None
    statistics: StreamStatistics

    @classmethod
    def of(cls, where: Filter, select: Iterable[str] | None, statistics: StreamStatistics) -> Interest:
        """An interest from a projection in any form."""
        return cls(where, None if select is None else frozenset(select), statistics)

    @cached_property
    def form(self) -> NormalForm:
        """The normal form, made once."""
        return normal_form(self.filter)

    def covers(self, other: Interest) -> bool:
        """Whether everything the other wants passes this one, with all its columns."""
        if not columns_cover(self.select, other.select):
            return False
        return self.filter == other.filter or forms_cover(self.form, other.form)

    def merge(self, other: Interest) -> Interest:
        """The interest of both together: the union of rows and of columns."""
        both = None if self.select is None or other.select is None else self.select | other.select
        return Interest(merge([self.filter, other.filter]), both, self.statistics)

    @cached_property
    def size(self) -> float:
        """Amortised size in bytes per row of the unfiltered stream."""
        return self.statistics.amortised_bytes(self.filter, self.select).value
