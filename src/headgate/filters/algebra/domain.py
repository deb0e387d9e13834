"""What a box allows one attribute to be: a set of values, and whether NULL is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headgate.filters.algebra import intervals
from headgate.filters.algebra.intervals import Cuts
from headgate.filters.algebra.keys import Space, prefix_end, space_of, successor, value_of


@dataclass(frozen=True, slots=True)
class Domain:
    """A set of values of one type as cuts of its key space, and whether NULL belongs to it.

    >>> some = Domain.of(pa.int32(), (3, 7))
    >>> some.bounds()
    ((3, 6),)
    >>> some.complement().null, some.holds(None), some.holds(6)
    (True, False, True)
    """

    kind: pa.DataType
    cuts: Cuts
    null: bool

    @classmethod
    def of(cls, kind: pa.DataType, cuts: Cuts, *, null: bool = False) -> Domain:
        """A domain with the cuts brought within the type's space."""
        space = _space(kind)
        if space.end is not None and cuts and len(cuts) % 2 == 0 and cuts[-1] >= space.end:
            cuts = cuts[:-1]
        if cuts and len(cuts) % 2 == 1 and space.end is not None and cuts[-1] >= space.end:
            cuts = cuts[:-1]
        return cls(kind, cuts, null)

    @classmethod
    def everything(cls, kind: pa.DataType, *, null: bool = True) -> Domain:
        """Every value, and NULL."""
        return cls(kind, (_space(kind).least,), null)

    @classmethod
    def nothing(cls, kind: pa.DataType, *, null: bool = False) -> Domain:
        """No value, or NULL alone."""
        return cls(kind, (), null)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is allowed."""
        return not self.cuts and not self.null

    @property
    def is_everything(self) -> bool:
        """Whether everything is allowed, NULL too."""
        return self.null and self.cuts == (_space(self.kind).least,)

    def holds(self, key: Any) -> bool:
        """Whether a key, or None for NULL, is allowed."""
        return self.null if key is None else intervals.holds(self.cuts, key)

    def end_key(self, *, least: bool) -> Any:
        """The least key that is allowed, or the greatest that is easily told; None for NULL where there is no key."""
        if not self.cuts:
            return None
        if least or len(self.cuts) == 1:
            return self.cuts[0]
        if len(self.cuts) % 2:
            return self.cuts[-1]
        return self.cuts[-2] if isinstance(self.cuts[-1], str) else self.cuts[-1] - 1

    def intersect(self, other: Domain) -> Domain:
        """What both allow."""
        return Domain(self.kind, intervals.intersection(self.cuts, other.cuts), self.null and other.null)

    def unite(self, other: Domain) -> Domain:
        """What either allows."""
        return Domain(self.kind, intervals.union(self.cuts, other.cuts), self.null or other.null)

    @classmethod
    def union_of(cls, domains: Sequence[Domain]) -> Domain:
        """What any of the domains of one type allows; takes time in proportion to all their cuts."""
        if len(domains) == 1:
            return domains[0]
        cuts = intervals.union_all([domain.cuts for domain in domains])
        return cls(domains[0].kind, cuts, any(domain.null for domain in domains))

    @classmethod
    def intersection_of(cls, domains: Sequence[Domain]) -> Domain:
        """What each of the domains of one type allows; takes time in proportion to all their cuts."""
        if len(domains) == 1:
            return domains[0]
        cuts = intervals.intersection_all([domain.cuts for domain in domains])
        return cls(domains[0].kind, cuts, all(domain.null for domain in domains))

    def minus(self, other: Domain) -> Domain:
        """What this one allows and the other does not."""
        return Domain(self.kind, intervals.difference(self.cuts, other.cuts), self.null and not other.null)

    def complement(self) -> Domain:
        """What this one does not allow."""
        return Domain.everything(self.kind).minus(self)

    def within(self, other: Domain) -> bool:
        """Whether the other allows everything that this one allows."""
        return (self.cuts == other.cuts and self.null <= other.null) or self.minus(other).is_empty

    def bounds(self) -> tuple[tuple[Any, Any], ...]:
        """The maximal ranges as pairs of least and greatest value, both included; None where there is no end.

        Decimals are unscaled integers, dates days, timestamps microseconds. A string range has no greatest value
        unless it ends at one: it is then given as the first string that is not in it, which `strings` tells apart.
        """
        found = []
        for low, high in intervals.ranges(self.cuts):
            if high is None or isinstance(high, str):
                found.append((value_of(low, self.kind), high))
            else:
                found.append((value_of(low, self.kind), value_of(high - 1, self.kind)))
        return tuple(found)

    def points(self) -> tuple[Any, ...] | None:
        """The values in order if the set is finitely many separate ones, None otherwise."""
        found = []
        for low, high in intervals.ranges(self.cuts):
            if high is None or high != successor(low):
                return None
            found.append(value_of(low, self.kind))
        return tuple(found)

    def prefixes(self) -> tuple[str, ...] | None:
        """The prefixes if every range of a string set is all that begins with one, None otherwise."""
        found = []
        for low, high in intervals.ranges(self.cuts):
            if not isinstance(low, str) or not low or prefix_end(low) != high:
                return None
            found.append(low)
        return tuple(found)


def _space(kind: pa.DataType) -> Space:
    space = space_of(kind)
    if space is None:
        raise ValueError(f"values of type {kind} have no order keys")
    return space
