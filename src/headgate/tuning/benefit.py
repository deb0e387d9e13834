"""The benefit of a transformation, from its unit alone (XPORT, section 3.2, with the corrected equations).

Only what a change touches is worked out again: the members whose link, local value or children changed, the members
below them, and, through their state, the dependents that hang below the unit. Equations 1 (additive), 2 (bottleneck,
with the untouched set corrected) and 3 (holistic) then give the system cost after the change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from headgate.tuning.arrangement import Arrangement, Setting
from headgate.tuning.compile import Compiled
from headgate.tuning.states import Additive, Prefix, Rows, algebra_for
from headgate.tuning.states.prefix import reading, step
from headgate.tuning.unit import Measure, Unit

Partial = tuple[float, int, float, float]
NO_CHILDREN: Partial = (0.0, 0, math.inf, -math.inf)


def add_child(partial: Partial, value: float) -> Partial:
    """A children term's partial result with one more child."""
    total, count, least, greatest = partial
    return total + value, count + 1, min(least, value), max(greatest, value)


def read_children(function: str, partial: Partial) -> float:
    """A children term's value; NaN over no children, except for the sum."""
    total, count, least, greatest = partial
    if function == "sum":
        return total
    if count == 0:
        return math.nan
    return {"average": total / count, "min": least, "max": greatest}[function]


@dataclass(frozen=True, slots=True)
class Price:
    """The system cost before and after a change, and the benefit: positive when the system gets better.

    `inside` is the absolute result of everything below the unit's top after the change.
    """

    before: float
    after: float
    benefit: float
    inside: Any


class Pricer:
    """Prices changes of one unit under one objective."""

    def __init__(self, compiled: Compiled, unit: Unit, setting: Setting, measure: Measure) -> None:
        self.compiled, self.unit = compiled, unit
        self.algebra = algebra_for(compiled)
        self.paths = [index for index, term in enumerate(compiled.terms) if term.kind == "path"]
        self.path_terms = [(i, compiled.terms[i].function, compiled.terms[i].on_link) for i in self.paths]
        self.child_terms = [index for index, term in enumerate(compiled.terms) if term.kind == "children"]
        self.now = Arrangement(unit, setting, measure, profiles=compiled.needs_profiles)
        self.order = self._downwards(self.now, [unit.top])
        self.locals = {site: self._local(self.now, site) for site in self.order}
        self.prefixes: dict[int, Prefix] = {}
        for site in self.order:
            self.prefixes[site] = self._prefix(self.now, site, self.locals, self.prefixes)
        self.values = {site: self._values(self.now, site, self.locals, self.prefixes) for site in self.order}
        self.parts = {site: self._part(site, self.values, self.prefixes) for site in self.order}
        self.inside = self.algebra.merge(self.parts.values())
        self.cost = self.algebra.finish(self.algebra.merge([unit.outside, self.inside]))
        pick = getattr(self.algebra, "pick", None)
        self.ranked = (
            sorted(self.order, key=lambda site: self.parts[site], reverse=pick is max) if pick is not None else []
        )

    def price(self, moves: tuple[tuple[int, int], ...]) -> Price:
        """The system cost after some members change their parents."""
        at = Arrangement(
            self.unit, self.now.setting, self.now.measure, dict(moves), self.now, self.compiled.needs_profiles
        )
        shifted = {site for site, _ in moves}
        if self.compiled.follows_shape:
            shifted |= at.dirty
        new_locals = {site: self._local(at, site) for site in shifted}
        touched = set(shifted)
        if self.child_terms:
            touched.update(at.dirty)
            touched.update(parent for site in shifted if (parent := at.parent(site)) in self.unit.members)
        prefixes: dict[int, Prefix] = {}
        if self.paths:
            moved = [site for site in shifted if site in at.moves or self.locals[site] != new_locals[site]]
            for site in self._downwards(at, moved):
                prefixes[site] = self._prefix(at, site, new_locals, prefixes)
            touched.update(prefixes)
        values = {site: self._values(at, site, new_locals, prefixes) for site in touched}
        inside = self._inside(touched, values, prefixes)
        after = self.algebra.finish(self.algebra.merge([self.unit.outside, inside]))
        return Price(self.cost, after, self.compiled.better(self.cost, after), inside)

    def _inside(self, touched: set[int], values: dict[int, Any], prefixes: dict[int, Prefix]) -> Any:
        if isinstance(self.algebra, Additive):
            counted, total = self.inside
            for site in touched:
                weight = self.unit.members[site].facts.weight
                for sign, cost in ((-1.0, self._cost(self.values[site])), (1.0, self._cost(values[site]))):
                    if cost == cost:
                        counted, total = counted + sign * weight, total + sign * weight * cost
                if site in prefixes:
                    frontier = self.unit.members[site].frontier.state
                    total += self.algebra.change(frontier, self.prefixes[site], prefixes[site])
            return counted, total
        if isinstance(self.algebra, Rows):
            return self._rows(touched, values, prefixes)
        parts = [self._part(site, values, prefixes) for site in touched]
        if self.ranked:
            rest = next((self.parts[site] for site in self.ranked if site not in touched), None)
            return self.algebra.merge(parts if rest is None else [*parts, rest])
        return self.algebra.merge([*parts, *(part for site, part in self.parts.items() if site not in touched)])

    def _rows(self, touched: set[int], values: dict[int, Any], prefixes: dict[int, Prefix]) -> Any:
        """Everything inside, row by row: members that were touched anew, the others as they were."""
        assert isinstance(self.algebra, Rows)
        members = self.unit.members
        owns = self.algebra.owns(
            [members[site].facts.weight for site in touched], [self._cost(values[site]) for site in touched]
        )
        below = [
            self.algebra.settle(members[site].frontier.state, prefixes.get(site) or self.prefixes[site])
            for site in touched
            if members[site].frontier.fanout
        ]
        return self.algebra.merge([owns, *below, *(part for site, part in self.parts.items() if site not in touched)])

    def _downwards(self, at: Arrangement, start: list[int]) -> list[int]:
        """Some members and everything below them inside the unit, parents before children."""
        wanted, found = set(start), list[int]()
        for first in start:
            above = first
            while above != self.unit.top and (above := at.parent(above)) not in wanted:
                pass
            if above in wanted and above != first:
                continue  # it comes below another one
            pending = [first]
            while pending:
                site = pending.pop()
                found.append(site)
                pending.extend(at.children(site))
        return found

    def _local(self, at: Arrangement, site: int) -> tuple[float, ...]:
        view = at.view(site)
        return tuple(float(term.value(view)) for term in self.compiled.terms)

    def _prefix(
        self, at: Arrangement, site: int, fresh: dict[int, tuple[float, ...]], known: dict[int, Prefix]
    ) -> Prefix:
        if not self.paths:
            return ()
        parent = at.parent(site)
        above = self.unit.prefix if site == self.unit.top else known.get(parent) or self.prefixes[parent]
        local = fresh.get(site) or self.locals[site]
        return tuple(
            before if parent < 0 and on_link else step(function, before, local[index])
            for (index, function, on_link), before in zip(self.path_terms, above, strict=True)
        )

    def _values(
        self, at: Arrangement, site: int, fresh: dict[int, tuple[float, ...]], known: dict[int, Prefix]
    ) -> tuple[float, ...]:
        """The value of every term at a member."""
        prefix = iter(known.get(site) or self.prefixes[site])
        partials = iter(self.unit.members[site].frontier.partials)
        found: list[float] = []
        for index, term in enumerate(self.compiled.terms):
            if term.kind == "path":
                found.append(reading(term.function, next(prefix)))
            elif term.kind == "children":
                partial = next(partials)
                for child in at.children(site):
                    partial = add_child(partial, (fresh.get(child) or self.locals[child])[index])
                found.append(read_children(term.function, partial))
            else:
                found.append((fresh.get(site) or self.locals[site])[index])
        return tuple(found)

    def _cost(self, values: tuple[float, ...]) -> float:
        return values[0] if self.compiled.combine is None else float(self.compiled.combine(values))

    def _part(self, site: int, values: dict[int, Any], prefixes: dict[int, Prefix]) -> Any:
        """The absolute result of a member and of its dependents outside of the unit."""
        member = self.unit.members[site]
        own = values.get(site) or self.values[site]
        prefix = prefixes.get(site) or self.prefixes[site]
        return self.algebra.merge(
            [
                self.algebra.own(member.facts.weight, self._cost(own)),
                self.algebra.settle(member.frontier.state, prefix),
            ]
        )
