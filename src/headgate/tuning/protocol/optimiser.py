"""The owner's side of an optimisation period: put the unit together from replies, measure, price, propose."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from headgate.tuning.benefit import Pricer
from headgate.tuning.constraints import CompiledConstraint
from headgate.tuning.protocol.coupling import cost_elsewhere, pulls
from headgate.tuning.protocol.decide import joins
from headgate.tuning.protocol.messages import BranchReply, MeasureReply, ParentReply, Proposal, ReportPart
from headgate.tuning.protocol.neighbourhood import ROOT, Neighbourhood
from headgate.tuning.protocol.rope import flat
from headgate.tuning.protocol.superpose import change_of
from headgate.tuning.search import TOLERANCE
from headgate.tuning.transformations import Candidate, candidates
from headgate.tuning.unit import Unit, UnitMember


@dataclass(slots=True)
class Round:
    """One period at one owner: who still has to answer, and what has come in."""

    period: int
    waiting: set[int]
    parts: list[ReportPart] = field(default_factory=list)
    parent: ParentReply | None = None
    found: list[Candidate] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    links: dict[tuple[str, int, int], float] = field(default_factory=dict)
    measuring: set[int] = field(default_factory=set)
    proposal: Proposal | None = None
    moving: list[tuple[int, int]] = field(default_factory=list)
    tries: int = 0


def take_branch(state: Round, sender: int, reply: BranchReply) -> None:
    """A child's part of the unit arrived."""
    state.waiting.discard(sender)
    state.parts.extend(reply.parts)


def take_parent(state: Round, sender: int, reply: ParentReply) -> None:
    """The parent's part of the unit arrived."""
    state.waiting.discard(sender)
    state.parent = reply


def assemble(state: Round, here: Neighbourhood) -> None:
    """Build the unit, once for each cost, and list what could be done to it."""
    mine = here.part(without=here.children)
    parts = [*([state.parent.part] if state.parent else []), mine, *state.parts]
    sites = {part.site for part in parts}
    top = parts[0].site
    parents = {part.site: part.parent for part in parts if part.site != top}
    if not all(parent in sites for parent in parents.values()):
        return  # somebody moved while the unit was asked: wait for the next period
    for index in range(len(here.costs)):
        members = {
            part.site: UnitMember(part.site, replace(part.facts, weight=part.weights[index]), part.frontiers[index])
            for part in parts
        }
        prefix = state.parent.prefix[index] if state.parent else here.above()[index]
        outside = state.parent.outside[index] if state.parent else here.outside(index)
        above = state.parent.above if state.parent else ROOT
        outside = here.algebras[index].merge([]) if outside is None else flat(outside)
        state.units.append(Unit(here.number, top, above, here.settings.levels, members, parents, prefix, outside))
    state.found = list(candidates(state.units[0], here.settings.transformations, joins=here.settings.joins))


def link_metrics(here: Neighbourhood) -> tuple[str, ...]:
    """Link metrics that the costs need measured."""
    names = {name for compiled in here.costs for name in compiled.metrics if name.startswith("link_")}
    return tuple(sorted(names - {"link_hop"}))


def to_measure(state: Round, here: Neighbourhood) -> dict[int, tuple[int, ...]]:
    """Which member has to measure its link to whom: present parents, and parents that some candidate would give."""
    if not link_metrics(here):
        return {}
    wanted: dict[int, set[int]] = {}
    unit = state.units[0]
    for site, parent in unit.parents.items():
        wanted.setdefault(site, set()).add(parent)
    if unit.above >= 0:
        wanted.setdefault(unit.top, set()).add(unit.above)
    for candidate in state.found:
        for site, parent in candidate.moves:
            wanted.setdefault(site, set()).add(parent)
    return {site: tuple(sorted(targets)) for site, targets in wanted.items()}


def take_links(state: Round, sender: int, reply: MeasureReply) -> None:
    """A member's measurements arrived."""
    state.measuring.discard(sender)
    state.links.update({(name, sender, target): value for (name, target), value in reply.values.items()})


def propose(state: Round, here: Neighbourhood, generator: np.random.Generator) -> list[Proposal]:
    """The best change of the unit, and with a low probability a random one besides."""
    settings = here.settings

    def measure(name: str, site: int, parent: int) -> float:
        return state.links[name, site, parent]

    pricers = [
        Pricer(compiled, unit, settings.setting, measure)
        for compiled, unit in zip(here.costs, state.units, strict=True)
    ]
    priced: list[Proposal] = []
    for candidate in state.found:
        made = _price(candidate, state, here, pricers, settings.limits)
        if made is not None:
            priced.append(made)
    useful = [offer for offer in priced if offer.relief > TOLERANCE or offer.benefit > TOLERANCE]
    best = max(
        useful, key=lambda offer: (offer.relief if offer.relief > TOLERANCE else 0.0, offer.benefit), default=None
    )
    if best is not None and settings.concurrent and not joins(here.costs[0]):
        best = replace(best, change=change_of(pricers[0].inside, pricers[0].price(best.moves).inside))
    offers = [] if best is None else [best]
    if settings.random_share and priced and generator.random() < settings.random_share:
        offers.append(replace(priced[int(generator.integers(len(priced)))], at_random=True))
    return offers


def _price(
    candidate: Candidate,
    state: Round,
    here: Neighbourhood,
    pricers: list[Pricer],
    limits: tuple[CompiledConstraint, ...],
) -> Proposal | None:
    relief = 0.0
    for limit, pricer in zip(limits, pricers[1:], strict=True):
        change = pricer.price(candidate.moves)
        was, now = limit.violation(change.before), limit.violation(change.after)
        if now > was + TOLERANCE * max(1.0, was):
            return None
        relief += was - now
    price = pricers[0].price(candidate.moves)
    benefit, after = price.benefit, price.after
    if here.settings.mode == "opportunistic":
        algebra = pricers[0].algebra
        benefit = here.costs[0].better(algebra.finish(pricers[0].inside), algebra.finish(price.inside))
    if here.station is not None and pulls(here.costs[0]):
        more = cost_elsewhere(pricers[0], candidate.moves)
        benefit, after = benefit - here.costs[0].sign * more, after + more
    if benefit != benefit:
        return None
    unit = state.units[0]
    touched = {site for moved, parent in candidate.moves for site in (moved, parent, unit.parents[moved])}
    branch = here.surroundings.branch if here.surroundings is not None else here.number
    scale = max(1.0, abs(price.before)) if price.before == price.before else 1.0
    return Proposal(
        state.period,
        here.number,
        candidate.name,
        candidate.moves,
        frozenset(touched),
        branch,
        benefit if benefit > TOLERANCE * scale or benefit < 0 else 0.0,
        relief,
        after,
    )
