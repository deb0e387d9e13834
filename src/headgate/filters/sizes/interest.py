"""What a member of a delivery tree wants, in the planner's terms: covering, merging, amortised size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from headgate.filters.algebra.normal import NormalForm, normal_form
from headgate.filters.algebra.relate import columns_cover, forms_cover
from headgate.filters.filter import Filter
from headgate.filters.profiles.base import Profile, ProfileType
from headgate.filters.profiles.relational_type import PROFILE as RELATIONAL
from headgate.filters.sizes.statistics import StreamStatistics


@dataclass(frozen=True)
class SizedInterest:
    """A profile of one type and a projection, over one stream's statistics. `select` None keeps every column."""

    profile: Profile
    select: frozenset[str] | None
    statistics: StreamStatistics
    kind: ProfileType = RELATIONAL

    @classmethod
    def of(
        cls,
        profile: Profile,
        select: Iterable[str] | None,
        statistics: StreamStatistics,
        kind: ProfileType = RELATIONAL,
    ) -> SizedInterest:
        """An interest from a projection in any form."""
        return cls(profile, None if select is None else frozenset(select), statistics, kind)

    @cached_property
    def _form(self) -> NormalForm | None:
        """The normal form of a filter, made once."""
        return normal_form(self.profile) if isinstance(self.profile, Filter) else None

    def covers(self, other: SizedInterest) -> bool:
        """Whether everything the other wants passes this one, with all its columns."""
        if self.kind.name != other.kind.name or not columns_cover(self.select, other.select):
            return False
        if self._form is not None and other._form is not None:
            return self.profile == other.profile or forms_cover(self._form, other._form)
        return self.kind.covers(self.profile, other.profile)

    def merge(self, other: SizedInterest) -> SizedInterest:
        """The interest of both together: the union of rows and of columns."""
        if self.kind.name != other.kind.name:
            raise ValueError(f"profiles of the types {self.kind.name} and {other.kind.name} are not merged")
        both = None if self.select is None or other.select is None else self.select | other.select
        return SizedInterest(self.kind.merge(self.profile, other.profile), both, self.statistics, self.kind)

    @cached_property
    def size(self) -> float:
        """Amortised size in bytes per row of the unfiltered stream."""
        return self.statistics.amortised_bytes(self.profile, self.select).value
