"""What a site knows: itself, its parent's last word, its children's last reports, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headgate.tuning.arrangement import Arrangement, MemberView
from headgate.tuning.benefit import NO_CHILDREN, Partial, add_child, read_children
from headgate.tuning.compile import Compiled
from headgate.tuning.overlay import Bits
from headgate.tuning.protocol.coupling import PULL, STEPS, pulls
from headgate.tuning.protocol.host import Share, Station
from headgate.tuning.protocol.messages import ReportPart, SubtreeReport, SubtreeTotals, Surroundings, Values
from headgate.tuning.protocol.rope import Rope
from headgate.tuning.protocol.settings import TuningSettings
from headgate.tuning.states import Additive, Extreme, Prefix, advance, algebra_for, start
from headgate.tuning.states.prefix import reading
from headgate.tuning.unit import Facts, Frontier, Unit, UnitMember

ROOT = -1
DETACHED = -3


@dataclass(slots=True)
class KnownChild:
    """A child: its facts, its last report, its merged profile and the bytes per second of it."""

    facts: Facts
    report: SubtreeReport
    merged: Bits | None
    rate: float
    heard: float
    lifted: dict[int, Any] = field(default_factory=dict)


class Neighbourhood:
    """Everything one site holds of one tree. `weights` says how often it counts in each cost's system set.

    `station` joins it with the site's other trees, where there are some; `rest` has what those add up to (at a root).
    """

    def __init__(
        self,
        number: int,
        facts: Facts,
        weights: tuple[int, ...],
        settings: TuningSettings,
        measure: Callable[[str, int], float],
        station: Station | None = None,
    ) -> None:
        self.number, self.weights, self.station = number, weights, station
        self._facts = facts
        self.settings, self.measure = settings, measure
        self.costs: tuple[Compiled, ...] = settings.costs
        self.algebras = tuple(algebra_for(compiled) for compiled in self.costs)
        self.with_profiles = any(compiled.needs_profiles for compiled in self.costs)
        self.parent = DETACHED
        self.children: dict[int, KnownChild] = {}
        self.surroundings: Surroundings | None = None
        self._frontiers: dict[int, Frontier] = {}
        self._local: Values | None = None
        self._seen = 0  # the version of the site's record that `_local` was worked out from
        self.rest: dict[int, tuple[Any, ...]] = {}

    def changed(self) -> None:
        """Forget what was worked out: the parent or a child is another one, or has said something new."""
        self._frontiers, self._local = {}, None
        if self.station is not None:
            self.station.host.post(self.station.stream, self._share())

    @property
    def facts(self) -> Facts:
        """What the site knows of itself, with what it does in its other trees."""
        if self.station is None:
            return self._facts
        return replace(self._facts, elsewhere=self.station.host.elsewhere(self.station.stream))

    def _share(self) -> Share:
        """What the site does in this tree; a root matches its whole stream but does not download it."""
        merged = self.merged()
        matched = 0.0 if merged is None else self.settings.setting.sizing.size(merged)
        return {
            "fanout": float(len(self.children)),
            "outgoing_rate": sum(child.rate for child in self.children.values()),
            "incoming_rate": 0.0 if self.parent == ROOT else matched,
            "matched_rate": matched,
            "entries": float(self._facts.clients),
            **self._pull(),
        }

    def _pull(self) -> Share:
        """What the objective in this tree costs for a child or byte more that the site has in another (`coupling`)."""
        compiled = self.costs[0]
        term, root = compiled.terms[0], self.parent == ROOT
        if not pulls(compiled) or self.parent == DETACHED or (root and term.kind == "path" and term.on_link):
            return {}
        dependents = self.weights[0]
        if term.kind == "path":
            dependents += sum(count for count, _ in self.frontier(0).state.values())
        facts, found = self.facts, {}
        before = float(term.value(self._view(facts)))
        for name, step in STEPS.items():
            more = replace(facts, elsewhere={**facts.elsewhere, name: facts.elsewhere.get(name, 0.0) + step})
            found[PULL + name] = dependents * (float(term.value(self._view(more))) - before) / step
        return found

    def own_rate(self) -> float:
        """Bytes per second that the site itself asks for."""
        profile = self._facts.profile
        return 0.0 if profile is None else self.settings.setting.sizing.size(profile)

    def merged(self) -> Bits | None:
        """The merged profile of the site and its children."""
        if not self.with_profiles:
            return None
        found = [child.merged for child in self.children.values() if child.merged is not None]
        own = self._facts.profile
        parts = [*found, own] if own is not None else found
        if not parts:
            return np.zeros(self.settings.setting.sizing.atoms, dtype=np.bool_)
        merged: Bits = np.logical_or.reduce(parts)
        return merged

    def lifted(self, index: int, child: KnownChild) -> Any:
        """A child and everything below it, relative to this site, for one cost."""
        if index not in child.lifted:
            algebra, report = self.algebras[index], child.report
            own = algebra.single(report.weights[index], report.fixed[index])
            child.lifted[index] = algebra.extend(
                algebra.union((own, report.below[index])), self._path(index, report.local[index], root=False)
            )
        return child.lifted[index]

    def _path(self, index: int, local: tuple[float, ...], *, root: bool) -> tuple[float, ...]:
        return tuple(
            float("nan") if root and term.on_link else value
            for term, value in zip(self.costs[index].terms, local, strict=True)
            if term.kind == "path"
        )

    def frontier(self, index: int, without: Iterable[int] = ()) -> Frontier:
        """The children that are not named, as a member of a unit shows them."""
        hidden = set(without)
        if hidden:
            return self._frontier(index, hidden)
        if index not in self._frontiers:
            self._frontiers[index] = self._frontier(index, hidden)
        return self._frontiers[index]

    def _frontier(self, index: int, hidden: set[int]) -> Frontier:
        shown = [child for site, child in self.children.items() if site not in hidden]
        algebra = self.algebras[index]
        profiles = [child.merged for child in shown if child.merged is not None]
        return Frontier(
            len(shown),
            algebra.union(self.lifted(index, child) for child in shown),
            self._partials(index, shown),
            np.logical_or.reduce(profiles) if profiles else None,
            sum(child.rate for child in shown),
        )

    def _partials(self, index: int, shown: list[KnownChild]) -> tuple[Partial, ...]:
        found: list[Partial] = []
        for place, term in enumerate(self.costs[index].terms):
            if term.kind == "children":
                partial = NO_CHILDREN
                for child in shown:
                    partial = add_child(partial, child.report.local[index][place])
                found.append(partial)
        return tuple(found)

    def part(self, without: Iterable[int] = ()) -> ReportPart:
        """This site as a member of a unit."""
        frontiers = tuple(self.frontier(index, without) for index in range(len(self.costs)))
        sizes = zip(self.algebras, frontiers, strict=True)
        numbers = sum(algebra.size(frontier.state) for algebra, frontier in sizes)
        return ReportPart(self.number, self.parent, self.facts, self.weights, frontiers, numbers)

    def child_part(self, site: int) -> ReportPart:
        """A child as a member of the last level of a unit."""
        child = self.children[site]
        report = child.report
        facts = replace(child.facts, profile=None, own_rate=report.own_rate)
        frontiers = tuple(
            Frontier(report.fanout, report.below[index], report.partials[index], child.merged, report.out_rate)
            for index in range(len(self.costs))
        )
        return ReportPart(site, self.number, facts, report.weights, frontiers, report.numbers)

    def local(self) -> Values:
        """The site's local values: every term of every cost."""
        version = 0 if self.station is None else self.station.host.version
        if self._local is None or self._seen != version:
            self._local, self._seen = self._work_out_local(), version
        return self._local

    def _work_out_local(self) -> Values:
        view = self._view(self.facts)
        return tuple(tuple(float(term.value(view)) for term in compiled.terms) for compiled in self.costs)

    def _view(self, facts: Facts) -> MemberView:
        """The site's metrics as they are with some facts."""
        member = UnitMember(self.number, facts, self.frontier(0))
        unit = Unit(self.number, self.number, max(self.parent, ROOT), 1, {self.number: member}, {}, (), None)
        return Arrangement(unit, self.settings.setting, lambda name, _, other: self.measure(name, other)).view(
            self.number
        )

    def fixed(self, local: Values) -> Values:
        """Terms that no change above this site can touch; NaN for path terms."""
        found = []
        for index, compiled in enumerate(self.costs):
            partials = iter(self._partials(index, list(self.children.values())))
            found.append(
                tuple(
                    float("nan")
                    if term.kind == "path"
                    else (read_children(term.function, next(partials)) if term.kind == "children" else value)
                    for term, value in zip(compiled.terms, local[index], strict=True)
                )
            )
        return tuple(found)

    def report(self, merged: Bits | None) -> SubtreeReport:
        """What the parent needs to know; `merged` only when it changed."""
        local = self.local()
        frontiers = [self.frontier(index) for index in range(len(self.costs))]
        numbers = sum(algebra.size(frontier.state) for algebra, frontier in zip(self.algebras, frontiers, strict=True))
        return SubtreeReport(
            tuple(frontier.state for frontier in frontiers),
            local,
            self.fixed(local),
            self.weights,
            tuple(frontier.partials for frontier in frontiers),
            self.sites(),
            len(self.children),
            frontiers[0].rate,
            self.own_rate(),
            numbers,
            merged,
            self.facts.elsewhere,
        )

    def sites(self) -> int:
        """Sites at and below this one, as far as reported."""
        return 1 + sum(child.report.sites for child in self.children.values())

    def above(self) -> tuple[Prefix, ...]:
        """The prefix above this site."""
        if self.surroundings is None:
            return tuple(start(compiled) for compiled in self.costs)
        return self.surroundings.prefix

    def prefix(self, local: Values) -> tuple[Prefix, ...]:
        """The prefix down to this site."""
        root = self.parent == ROOT
        return tuple(
            advance(compiled, above, self._path(index, local[index], root=root))
            for index, (compiled, above) in enumerate(zip(self.costs, self.above(), strict=True))
        )

    def outside(self, index: int) -> Any:
        """The absolute result of everything not at or below this site."""
        if self.surroundings is not None:
            return self.surroundings.outside[index]
        algebra, rest = self.algebras[index], [results[index] for results in self.rest.values()]
        if isinstance(algebra, Additive | Extreme):
            return algebra.merge(rest)
        if not rest:
            return None
        costs, weights = algebra.merge(rest)
        return Rope(None, (costs, weights), (), -1, len(costs))

    def totals(self, stream: int) -> SubtreeTotals:
        """What this tree adds up to, as its root knows it."""
        results = tuple(self.everything(index) for index in range(len(self.costs)))
        return SubtreeTotals(stream, results, sum(_numbers(result) for result in results))

    def own_result(self, index: int, prefix: tuple[Prefix, ...], fixed: Values) -> Any:
        """The absolute result of this site alone."""
        compiled = self.costs[index]
        steps = iter(prefix[index])
        values = tuple(
            reading(term.function, next(steps)) if term.kind == "path" else fixed[index][place]
            for place, term in enumerate(compiled.terms)
        )
        cost = values[0] if compiled.combine is None else float(compiled.combine(values))
        return self.algebras[index].own(self.weights[index], cost)

    def everything(self, index: int) -> Any:
        """The absolute result of this site and everything below it: at the root, of the whole system."""
        local = self.local()
        prefix = self.prefix(local)
        own = self.own_result(index, prefix, self.fixed(local))
        below = self.algebras[index].settle(self.frontier(index).state, prefix[index])
        return self.algebras[index].merge([own, below])

    def known_cost(self, index: int) -> float:
        """A cost of the whole system over all trees, as a root knows it from messages alone."""
        algebra = self.algebras[index]
        return algebra.finish(algebra.merge([self.everything(index), *(each[index] for each in self.rest.values())]))

    def surround(self, total: int, beat: int, root: int, branch: int) -> dict[int, Surroundings]:
        """What each child needs to know of the rest of the system."""
        if not self.children:
            return {}
        local = self.local()
        fixed, prefix = self.fixed(local), self.prefix(local)
        outsides: list[dict[int, Any]] = []
        for index in range(len(self.costs)):
            own = self.own_result(index, prefix, fixed)
            inside = [
                self.algebras[index].settle(self.lifted(index, child), prefix[index])
                for child in self.children.values()
            ]
            outsides.append(self._outside_of_children(index, own, inside))
        return {
            site: Surroundings(
                prefix,
                tuple(outside[site] for outside in outsides),
                self.parent,
                root,
                site if self.parent == ROOT else branch,
                total,
                beat,
                sum(_numbers(outside[site]) for outside in outsides),
            )
            for site in self.children
        }

    def _outside_of_children(self, index: int, own: Any, inside: list[Any]) -> dict[int, Any]:
        algebra, here = self.algebras[index], self.outside(index)
        sites = list(self.children)
        if isinstance(algebra, Additive):
            counted, total = algebra.merge([here, own, *inside])
            return {site: (counted - part[0], total - part[1]) for site, part in zip(sites, inside, strict=True)}
        if isinstance(algebra, Extreme):
            later = [algebra.merge([here, own])]
            for part in reversed(inside[1:]):
                later.append(algebra.merge([later[-1], part]))
            found, before = {}, algebra.merge([])
            for site, part, after in zip(sites, inside, reversed(later), strict=True):
                found[site] = algebra.merge([before, after])
                before = algebra.merge([before, part])
            return found
        counted = 1 + (here.count if here is not None else 0) + sum(len(costs) for costs, _ in inside)
        return {
            site: Rope(here, own, inside, place, counted - len(inside[place][0])) for place, site in enumerate(sites)
        }


def _numbers(outside: Any) -> int:
    if isinstance(outside, Rope):
        return outside.count
    if isinstance(outside, tuple) and isinstance(outside[0], np.ndarray):
        return len(outside[0])
    return 2 if isinstance(outside, tuple) else 1
