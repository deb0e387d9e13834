"""Boxes: a domain for each attribute that is constrained, and predicates that no domain expresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from headgate.filters.algebra.domain import Domain
from headgate.filters.expr import Expr

_FREE: Mapping[str, Domain] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Box:
    """The rows whose attributes lie in their domains and for which every residual predicate is TRUE.

    An attribute that is not named may be anything. A box without residual is exact; one with a residual bounds the rows
    from outside, and they have to be checked again.
    """

    domains: Mapping[str, Domain] = field(default_factory=lambda: _FREE)
    residual: tuple[Expr, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether the domains alone decide."""
        return not self.residual

    @property
    def is_empty(self) -> bool:
        """Whether no row can be in the box."""
        return any(domain.is_empty for domain in self.domains.values())

    @property
    def cuts(self) -> int:
        """How many cuts its domains have together: its size."""
        return sum(len(domain.cuts) for domain in self.domains.values())

    def __reduce__(self) -> tuple[object, ...]:
        return Box, (dict(self.domains), self.residual)

    def __hash__(self) -> int:
        return hash((frozenset(self.domains.items()), self.residual))

    def narrowed(self, attribute: str, domain: Domain) -> Box:
        """The part of the box where the attribute lies in the domain."""
        known = self.domains.get(attribute)
        found = domain if known is None else known.intersect(domain)
        return Box({**self.domains, attribute: found}, self.residual)

    def intersect(self, other: Box) -> Box:
        """The rows of both boxes."""
        domains = dict(self.domains)
        for attribute, domain in other.domains.items():
            known = domains.get(attribute)
            domains[attribute] = domain if known is None else known.intersect(domain)
        return Box(domains, self.residual + tuple(one for one in other.residual if one not in self.residual))

    def within(self, other: Box) -> bool:
        """Whether every row of this box is in the other, as far as domains and equal residuals tell."""
        if other.domains.keys() - self.domains.keys():
            return False
        if other.residual and other.residual != self.residual and not set(other.residual) <= set(self.residual):
            return False
        return all(self.domains[attribute].within(domain) for attribute, domain in other.domains.items())

    def minus(self, other: Box) -> list[Box]:
        """Disjoint boxes that hold the rows of this one outside of the other's domains."""
        pieces, rest = [], self
        for attribute, domain in other.domains.items():
            known = rest.domains.get(attribute) or Domain.everything(domain.kind)
            outside = known.minus(domain)
            if not outside.is_empty:
                pieces.append(Box({**rest.domains, attribute: outside}, self.residual))
            inside = known.intersect(domain)
            if inside.is_empty:
                return [self]
            rest = Box({**rest.domains, attribute: inside}, self.residual)
        return pieces

    def hull(self, other: Box) -> Box:
        """The smallest box of per-attribute unions that holds both."""
        domains = {}
        for attribute, domain in self.domains.items():
            if attribute in other.domains:
                joined = domain.unite(other.domains[attribute])
                if not joined.is_everything:
                    domains[attribute] = joined
        return Box(domains, tuple(one for one in self.residual if one in other.residual))


def intersection_of(boxes: Sequence[Box]) -> Box:
    """The rows of all boxes; takes time in proportion to all their cuts and predicates."""
    if len(boxes) == 1:
        return boxes[0]
    domains: dict[str, list[Domain]] = {}
    for box in boxes:
        for attribute, domain in box.domains.items():
            domains.setdefault(attribute, []).append(domain)
    return Box(
        {attribute: Domain.intersection_of(found) for attribute, found in domains.items()},
        tuple(dict.fromkeys(one for box in boxes for one in box.residual)),
    )


def tidy(boxes: Iterable[Box]) -> tuple[Box, ...]:
    """The same rows in fewer boxes: empty ones dropped, contained ones absorbed, neighbours joined."""
    found: list[Box] = []
    for box in boxes:
        if box.is_empty:
            continue
        free = {name: domain for name, domain in box.domains.items() if not domain.is_everything}
        found.append(box if len(free) == len(box.domains) else Box(free, box.residual))
    joined = True
    while joined and len(found) > 1:
        joined = False
        index = 0
        while index < len(found):
            partner = _partner(found, index)
            if partner is None:
                index += 1
            else:
                other, found[index] = partner
                del found[other]
                joined = True
    return tuple(found)


def _partner(boxes: Sequence[Box], index: int) -> tuple[int, Box] | None:
    """A later box that is contained in this one, contains it, or differs in one attribute only; and the union."""
    one = boxes[index]
    for position in range(index + 1, len(boxes)):
        other = boxes[position]
        if other.within(one):
            return position, one
        if one.within(other):
            return position, other
        if one.residual == other.residual and one.domains.keys() == other.domains.keys():
            unequal = [name for name in one.domains if one.domains[name] != other.domains[name]]
            if len(unequal) == 1:
                name = unequal[0]
                union = one.domains[name].unite(other.domains[name])
                return position, Box({**one.domains, name: union}, one.residual)
    return None


def subtract(boxes: Iterable[Box], other: Box, budget: int) -> list[Box] | None:
    """The boxes without the other's rows; None when that takes more than `budget` boxes."""
    found: list[Box] = []
    for box in boxes:
        found.extend(box.minus(other))
        if len(found) > budget:
            return None
    return found
