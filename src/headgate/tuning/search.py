"""Improving a tree by local transformations, one optimisation period after another (XPORT, section 4.2).

One process holds the tree here; `protocol` does the same with messages. A period prices the candidates of every unit
that matters, takes the best (or the best set that can run side by side), and never breaks a constraint that holds;
while one does not hold, bringing it closer comes before the objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headgate.tuning.compile import Compiled
from headgate.tuning.constraints import CompiledConstraint
from headgate.tuning.evaluate import TreeView, evaluate
from headgate.tuning.joint import adds_up, plain_latency, useful_demotions
from headgate.tuning.outlook import Outlook
from headgate.tuning.overlay import Overlay
from headgate.tuning.shape import Shape
from headgate.tuning.transformations import STANDARD, Candidate, Transformation, candidates
from headgate.tuning.transformations.primitives import child_demotion
from headgate.tuning.unit import Unit

TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Options:
    """How a tree is improved.

    `mode` is `bottleneck` (only changes that improve the system) or `opportunistic` (changes that improve their own
    unit); `concurrent` lets independent transformations run in one period; `random_share` is the chance that a period
    tries a random change that breaks no constraint; `levels` is the depth of a unit; `screen` skips demotions that
    cannot help where that is known without pricing.
    """

    transformations: tuple[Transformation, ...] = STANDARD
    mode: str = "bottleneck"
    concurrent: bool = False
    random_share: float = 0.0
    levels: int = 3
    periods: int = 1000
    screen: bool = True


@dataclass(frozen=True, slots=True)
class Applied:
    """One transformation that was applied, what it was expected to bring, and the state of things after it."""

    period: int
    candidate: Candidate
    benefit: float
    cost: float
    violation: float
    at_random: bool = False


@dataclass(frozen=True, slots=True)
class Tuned:
    """The improved tree, its cost before and after, and every step. `settled` is False when periods ran out."""

    shape: Shape
    before: float
    after: float
    violation_before: float
    violation: float
    steps: tuple[Applied, ...]
    periods: int
    settled: bool
    priced: int


@dataclass(frozen=True, slots=True)
class Offer:
    """A candidate with its benefit and what it does to each constraint (positive: closer to holding)."""

    candidate: Candidate
    benefit: float
    relief: float

    @property
    def rank(self) -> tuple[float, float]:
        """Constraints first, then the objective."""
        return (self.relief, self.benefit) if self.relief > TOLERANCE else (0.0, self.benefit)


@dataclass(slots=True)
class _Scene:
    """One shape under the objective and every limit."""

    objective: Outlook
    limits: list[tuple[CompiledConstraint, Outlook]] = field(default_factory=list)

    @property
    def misses(self) -> list[float]:
        return [limit.violation(outlook.cost) for limit, outlook in self.limits]


class Tuner:
    """Improves one tree. Deterministic for a seed."""

    def __init__(
        self,
        overlay: Overlay,
        objective: Compiled,
        limits: Sequence[CompiledConstraint] = (),
        options: Options | None = None,
        seed: int = 0,
    ) -> None:
        self.overlay, self.objective, self.limits = overlay, objective, tuple(limits)
        self.options = options or Options()
        self.generator = np.random.default_rng(seed)
        self.priced = 0

    def run(self, shape: Shape) -> Tuned:
        """Improve until no transformation helps or the periods run out."""
        scene = self.scene(shape)
        before, missed = scene.objective.cost, sum(scene.misses)
        steps: list[Applied] = []
        period, settled = 0, False
        while period < self.options.periods and not settled:
            period += 1
            chosen, at_random = self.choose(scene)
            shape = scene.objective.shape
            for offer in chosen:
                shape = shape.moved(offer.candidate.moves)
                view = TreeView(self.overlay, shape)
                missing = sum(limit.of(view) for limit in self.limits)
                cost = evaluate(self.objective, view)
                step = Applied(period, offer.candidate, offer.benefit, cost, missing, at_random)
                steps.append(step)
            if chosen:
                scene = self.scene(shape)
            settled = not chosen and not self.options.random_share
        after, missing = scene.objective.cost, sum(scene.misses)
        return Tuned(scene.objective.shape, before, after, missed, missing, tuple(steps), period, settled, self.priced)

    def scene(self, shape: Shape) -> _Scene:
        """Everything that pricing needs to know of a shape."""
        view = TreeView(self.overlay, shape)
        return _Scene(Outlook(self.objective, view), [(limit, Outlook(limit.compiled, view)) for limit in self.limits])

    def choose(self, scene: _Scene) -> tuple[list[Offer], bool]:
        """What to apply this period: nothing, one change, a set of independent ones, or one at random."""
        if self.options.random_share and self.generator.random() < self.options.random_share:
            return self._random(scene), True
        offers = sorted(self.offers(scene), key=lambda offer: (-offer.rank[0], -offer.rank[1]))
        if not offers:
            return [], False
        return (self._together(scene, offers) if self.options.concurrent else offers[:1]), False

    def offers(self, scene: _Scene) -> list[Offer]:
        """Acceptable candidates that improve the system (or their unit), of every unit that matters."""
        found: list[Offer] = []
        for owner in self.owners(scene):
            best = self._best(scene, owner)
            if best is not None:
                found.append(best)
        return found

    def owners(self, scene: _Scene) -> list[int]:
        """Owners of units with something to move; for bottleneck functions only those that own a critical unit."""
        shape = scene.objective.shape
        owners = [site for site in scene.objective.order if shape.children[site]]
        function = scene.objective.compiled.function
        if self.options.mode != "bottleneck" or function not in ("min", "max") or any(scene.misses):
            return owners
        return [owner for owner in owners if owner in critical_owners(scene.objective)]

    def _best(self, scene: _Scene, owner: int) -> Offer | None:
        unit = scene.objective.unit(owner, self.options.levels)
        best: Offer | None = None
        for offer in self._priced(scene, unit):
            useful = offer.relief > TOLERANCE or offer.benefit > TOLERANCE * max(1.0, abs(scene.objective.cost))
            if useful and (best is None or offer.rank > best.rank):
                best = offer
        return best

    def _priced(self, scene: _Scene, unit: Unit) -> list[Offer]:
        pricer = scene.objective.pricer(unit)
        checks = [
            (limit, outlook.pricer(outlook.unit(unit.owner, self.options.levels))) for limit, outlook in scene.limits
        ]
        own_before = pricer.algebra.finish(pricer.inside)
        found: list[Offer] = []
        demotes = any(transformation.rule is child_demotion for transformation in self.options.transformations)
        screened = self.options.screen and demotes and not self.limits
        metric = plain_latency(self.objective) if screened else None
        useful = None if metric is None else useful_demotions(scene.objective, unit.owner, metric)
        for candidate in candidates(unit, self.options.transformations, useful, self.overlay.joins):
            self.priced += 1
            relief = 0.0
            for limit, check in checks:
                change = check.price(candidate.moves)
                was, now = limit.violation(change.before), limit.violation(change.after)
                if now > was + TOLERANCE * max(1.0, was):
                    break
                relief += was - now
            else:
                price = pricer.price(candidate.moves)
                benefit = price.benefit
                if self.options.mode == "opportunistic":
                    benefit = self.objective.better(own_before, pricer.algebra.finish(price.inside))
                if not np.isnan(benefit):
                    found.append(Offer(candidate, benefit, relief))
        return found

    def _together(self, scene: _Scene, offers: list[Offer]) -> list[Offer]:
        """The best offer, and every further one that is independent of the chosen and adds to the joint benefit."""
        chosen, busy = [offers[0]], touched(scene.objective.shape, offers[0].candidate)
        if adds_up(self.objective) and not self.limits and self.options.mode == "bottleneck":
            for offer in offers[1:]:
                mine = touched(scene.objective.shape, offer.candidate)
                if not mine & busy:
                    chosen.append(offer)
                    busy |= mine
            return chosen
        moves = dict(offers[0].candidate.moves)
        joint, missing = self._after(scene, moves)
        for offer in offers[1:]:
            mine = touched(scene.objective.shape, offer.candidate)
            if mine & busy:
                continue
            both = {**moves, **dict(offer.candidate.moves)}
            cost, misses = self._after(scene, both)
            worse = any(now > was + TOLERANCE * max(1.0, was) for now, was in zip(misses, missing, strict=True))
            if not worse and (self.objective.better(joint, cost) > 0 or sum(misses) < sum(missing)):
                chosen.append(offer)
                busy |= mine
                moves, joint, missing = both, cost, misses
        return chosen

    def _after(self, scene: _Scene, moves: dict[int, int]) -> tuple[float, list[float]]:
        scene = self.scene(scene.objective.shape.moved(moves.items()))
        return scene.objective.cost, scene.misses

    def _random(self, scene: _Scene) -> list[Offer]:
        owners = [site for site in scene.objective.order if scene.objective.shape.children[site]]
        owner = int(self.generator.choice(owners))
        offers = self._priced(scene, scene.objective.unit(owner, self.options.levels))
        return [offers[int(self.generator.integers(len(offers)))]] if offers else []


def touched(shape: Shape, candidate: Candidate) -> set[int]:
    """Sites with a new parent or a new set of children (Definition 5's trans_set)."""
    return {site for moved, parent in candidate.moves for site in (moved, parent, shape.parents[moved])}


def critical_owners(outlook: Outlook) -> set[int]:
    """Owners of critical units: those whose changes can reach a site that sets the system cost (section 4.2.1)."""
    shape = outlook.shape
    counted = np.where(np.array(outlook.weights) > 0, outlook.costs, np.nan)
    if np.isnan(counted).all():
        return set()
    cost = np.nanmin(counted) if outlook.compiled.function == "min" else np.nanmax(counted)
    critical = np.flatnonzero(np.isclose(counted, cost, rtol=1e-9, atol=0.0)).tolist()
    by_path = all(term.kind == "path" for term in outlook.compiled.terms)
    found: set[int] = set()
    for site in critical:
        above = site
        while above >= 0:
            found.add(above)
            above = shape.parents[above]
        if not by_path:
            found.update(shape.children[site])
    return found
