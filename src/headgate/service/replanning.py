"""Planning while running: what was measured replaces what was assumed, and a better plan replaces the one in force.

Every so often the plan in force is judged on the measured problem, and a search that pays for every member it moves
looks for a better one (`headgate.planning.replan`), from where it left off the last time. Now and then it is compared
with a plan from nothing. A plan is changed when the gain passes a threshold several times in a row and the last change
is long enough ago: measurements are noisy, and a change costs a hand-off at every member that moves. A change is a
revision of the catalog like any other, in force from the next micro-batch on, so nothing is lost by it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np

from headgate.catalog import Catalog
from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import Fabric
from headgate.model import Deployment, Plan
from headgate.planning import Graph, PlanResult, Problem, measure
from headgate.planning.covering import Comparisons
from headgate.planning.deployment import assumed_part, assumed_row_bytes
from headgate.planning.difference import moves
from headgate.planning.evaluation import geometric_mean
from headgate.planning.measured import Figures, Measured, cautious, measured_problem, with_relays_of
from headgate.planning.planner import result_of
from headgate.planning.replan import Effort, Replanned, replan
from headgate.protocol.reports import PlannedSite, PlannedStream, PlannedSubscription, PlannerReport
from headgate.service.extending import BUDGET_S, deadline
from headgate.service.observer import Observer
from headgate.service.proposals import APPROVE, Proposals
from headgate.tuning.terms import Miss, Terms, within, worse
from headgate.wire.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Rules:
    """When a plan is changed: judged every `every_s`, for a gain of at least `gain` seen `confirm` times in a row.

    `rest_s` is the least time between two changes, `window_s` the least time that must have been measured. `effort`
    says what a moved member must bring and how much processor time a judgement may take; every `anew_every` of them
    makes a plan from nothing, the first included.
    """

    every_s: float = 30.0
    gain: float = 0.05
    confirm: int = 2
    rest_s: float = 60.0
    window_s: float = 10.0
    anew_every: int = 10
    effort: Effort = field(default_factory=lambda: Effort(clock=time.thread_time))


@dataclass(frozen=True)
class PlanOutlook:
    """The plan in force and the best that was found, both on the measured problem.

    `terms` are those of the deployment file, with which the best plan was found.
    """

    now: PlanResult
    best: Replanned
    terms: Terms = field(default_factory=Terms)

    @cached_property
    def misses(self) -> tuple[Miss, ...]:
        """The constraints that the plan in force misses by what was measured."""
        return self.terms.misses(self.now.problem, self.now.plan)

    @cached_property
    def gain(self) -> float:
        """What the better plan would gain.

        That is the growth of the geometric mean of qualities, 1 where fewer are zero; with an objective the part by
        which its cost gets better. A plan that misses a constraint by more gains nothing, one that brings a constraint
        closer gains 1.
        """
        problem, plan = self.now.problem, self.now.plan
        if self.terms.limits:
            before, after = (self.terms.missed(problem, each) for each in (plan, self.best.plan))
            if worse(after, before):
                return 0.0
            if worse(before, after):
                return 1.0
        if self.terms.objective is not None:
            return self.terms.gain(problem, plan, self.best.plan)
        return self._quality_gain

    @property
    def _quality_gain(self) -> float:
        before, after = self.now.metrics, self.best.metrics
        if after.zeros != before.zeros:
            return 1.0 if after.zeros < before.zeros else 0.0
        return after.geometric_mean / before.geometric_mean - 1.0 if before.geometric_mean > 0 else 0.0

    @property
    def gain_per_move(self) -> float:
        """The gain for each member that would get another parent."""
        return self.gain / self.best.moves if self.best.moves else 0.0


def judge(
    snapshot: Snapshot,
    plan: Plan,
    measured: Measured,
    seed: int = 0,
    effort: Effort | None = None,
    *,
    candidate: Plan | None = None,
    anew: bool = False,
    known: Comparisons | None = None,
) -> PlanOutlook:
    """Judge a plan by what was measured, and look for a better one near it, cautious where an upload is unknown.

    `candidate` is what was found before; with `anew` a plan from nothing is made too. `known` is how subscriptions
    compare, from one judgement to the next.
    """
    problem = measured_problem(snapshot.deployment, snapshot.class_ids, measured, known=known)
    problem = with_relays_of(problem, plan)
    graph = Graph.of(problem, plan)
    careful, terms = cautious(graph), Terms.of(snapshot.deployment)
    best = replan(careful, plan, seed, effort, candidate=candidate, anew=anew)
    if terms:
        best = _within(careful, plan, best, terms)
    return PlanOutlook(result_of(graph, "in force"), best, terms)


def _within(problem: Problem, plan: Plan, best: Replanned, terms: Terms) -> Replanned:
    """What was found, by the file's terms: with an objective steps from the plan in force, else within the limits."""
    start = best.plan if terms.objective is None else plan
    found = within(problem, start, terms, deadline(BUDGET_S))
    if found == best.plan:
        return best
    return Replanned(found, measure(Graph.of(problem, found)), moves(plan, found), best.fresh)


def attained_quality(deployment: Deployment, qualities: Mapping[str, float | None]) -> tuple[float | None, int, int]:
    """What subscriptions attained by measured drop and delay: the mean of those above zero, how many are zero, of all.

    The mean is the geometric one by weight. Subscriptions of which nothing was settled while it was measured are left
    out; None when that is everybody.
    """
    known = {name: quality for name, quality in qualities.items() if quality is not None}
    if not known:
        return None, 0, 0
    weights = np.array([deployment.subscriptions[name].weight for name in known])
    mean, zeros = geometric_mean(np.array(list(known.values())), weights)
    return mean, zeros, len(known)


class Replanner:
    """Judges the plan in force from time to time and changes it when that is worth it."""

    def __init__(
        self,
        fabric: Fabric,
        catalog: Catalog,
        observer: Observer,
        publish: Callable[[], Awaitable[Snapshot]],
        rules: Rules,
        *,
        fixed: bool = False,
        held: Callable[[], bool] = lambda: False,
        proposals: Proposals | None = None,
    ) -> None:
        """`publish` puts a changed catalog in force. A plan is never changed when `fixed`, nor while it is `held`.

        Where the deployment says that an operator approves plans, they go to `proposals` instead.
        """
        self._fabric = fabric
        self._catalog = catalog
        self._observer = observer
        self._publish = publish
        self._rules = rules
        self._fixed = fixed
        self._held = held
        self._proposals = proposals
        self._confirmed = 0
        self._candidate: Plan | None = None
        self._missed: set[str] = set()
        self._known = Comparisons()
        self.figures = Figures()
        self._changed_s = time.monotonic()
        self.changes = 0
        self.judged = 0

    async def run(self) -> None:
        """Judge until cancelled."""
        while True:
            await asyncio.sleep(self._rules.every_s)
            with noted(SERVICE, "the plan was not judged, the next time counts", HeadgateError, level=logging.WARNING):
                await self.look()

    async def look(self) -> PlanOutlook | None:
        """Judge once, change the plan if that is due, and report; None as long as too little was measured."""
        snapshot = await asyncio.to_thread(self._catalog.snapshot)
        measured = await self._observer.measured_aside(snapshot)
        if snapshot.plan is None or not measured.streams or self._observer.seconds < self._rules.window_s:
            return None
        self.figures = Figures.of(measured)
        outlook = await asyncio.to_thread(
            judge,
            snapshot,
            snapshot.plan,
            measured,
            self.judged,
            self._rules.effort,
            candidate=self._candidate,
            anew=self.judged % self._rules.anew_every == 0,
            known=self._known,
        )
        self.judged += 1
        self._tell(outlook.misses)
        due = outlook.gain >= self._rules.gain and outlook.best.moves > 0
        self._confirmed = self._confirmed + 1 if due else 0
        self._candidate = outlook.best.plan
        rested = time.monotonic() - self._changed_s >= self._rules.rest_s
        report = self._report(snapshot, measured, outlook)
        worth_it = self._confirmed >= self._rules.confirm and rested and not (self._fixed or self._held())
        if worth_it and self._proposals is not None and snapshot.deployment.options.get(APPROVE) is True:
            figures = {
                "quality": outlook.now.metrics.geometric_mean,
                "quality_proposed": outlook.best.metrics.geometric_mean,
                "gain": outlook.gain,
            }
            await self._proposals.offer(outlook.best.plan, snapshot.revision, "planner", figures)
            report = msgspec.structs.replace(report, state="proposed")
        elif worth_it and await asyncio.to_thread(self._put, outlook.best.plan, snapshot.revision):
            await self._publish()
            await self.changed()
            if self._proposals is not None:
                qualities = (outlook.now.metrics.geometric_mean, outlook.best.metrics.geometric_mean)
                await self._proposals.foresee(snapshot.revision + 1, "planner", *qualities)
            report = msgspec.structs.replace(report, state="changed", changes=self.changes)
        await self._fabric.publish(self._fabric.logs.stats("planner", "_"), report.encode())
        return outlook

    async def changed(self) -> None:
        """Another plan is in force: what was measured under the one before says nothing about it."""
        self.changes += 1
        self._confirmed = 0
        self._candidate = None
        self._changed_s = time.monotonic()
        self._observer.forget()

    def _tell(self, misses: tuple[Miss, ...]) -> None:
        """Say once, where `up` says things, which constraints the plan in force misses by what was measured."""
        missed = {miss.constraint for miss in misses}
        for miss in misses:
            if miss.constraint not in self._missed:
                print(f"headgate: {miss} (a plan that keeps it is looked for)", file=sys.stderr, flush=True)
        for text in sorted(self._missed - missed):
            print(f"headgate: constraint `{text}` is kept again", file=sys.stderr, flush=True)
        self._missed = missed

    def _put(self, plan: Plan, revision: int) -> bool:
        """Make a plan the catalog's, unless the catalog has changed since the revision that it was made for."""
        with self._catalog.edit("plan") as edit:
            unchanged = edit.revision == revision
            if unchanged:
                edit.set_plan(plan)
        return unchanged

    def _report(self, snapshot: Snapshot, measured: Measured, outlook: PlanOutlook) -> PlannerReport:
        """Assumed, predicted and measured side by side."""
        deployment = snapshot.deployment
        streams = {
            name: PlannedStream(
                rate_assumed=deployment.streams[name].rate_rows_per_s,
                rate=seen.rate_rows_per_s,
                row_bytes_assumed=assumed_row_bytes(deployment.streams[name]),
                row_bytes=seen.row_bytes,
            )
            for name, seen in measured.streams.items()
        }
        subscriptions = {}
        for name, prediction in outlook.now.subscriptions.items():
            subscription = deployment.subscriptions[name]
            part = self.figures.parts.get(snapshot.class_ids[name], 0.0)
            got = self._observer.got(snapshot.subscription_ids[name])
            subscriptions[name] = PlannedSubscription(
                selectivity_assumed=assumed_part(subscription, deployment.streams[subscription.stream]),
                selectivity=part if subscription.stream in measured.streams else None,
                drop_predicted=prediction.drop,
                drop=None if got is None else got.drop,
                delay_predicted_s=prediction.delay_s,
                delay_s=None if got is None else got.delay_s,
                quality_predicted=prediction.quality,
                quality=None if got is None else subscription.quality.value(got.drop, got.delay_s or 0.0),
                rows=0 if got is None else got.rows,
            )
        attained, zeros, counted = attained_quality(deployment, {n: e.quality for n, e in subscriptions.items()})
        return PlannerReport(
            time_ms=int(time.time() * 1000),
            revision=snapshot.revision,
            window_s=self._observer.seconds,
            state="confirming" if self._confirmed else "keeping",
            fixed=self._fixed,
            quality=attained,
            quality_zeros=zeros,
            quality_of=counted,
            quality_predicted=outlook.now.metrics.geometric_mean,
            quality_reachable=outlook.best.metrics.geometric_mean,
            quality_anew=None if outlook.best.fresh is None else outlook.best.fresh.quality,
            gain=outlook.gain,
            moves=outlook.best.moves,
            gain_per_move=outlook.gain_per_move,
            streams=streams,
            sites={
                name: PlannedSite(upload_bytes_per_s=found.upload_bytes_per_s, shed=self._observer.shed(name))
                for name, found in measured.sites.items()
            },
            subscriptions=subscriptions,
            objective=None if outlook.terms.objective is None else deployment.objective,
            constraints_missed=[str(miss) for miss in outlook.misses],
            changes=self.changes,
        )
