"""Tuning a deployment: the planner's plan, the operator's objective and constraints, and a better plan step by step.

Besides the operator's constraints two are always in force: no site sends or receives more than its bandwidth, and no
subscription that was granted a quality falls below it. Where the plan misses one already, bringing it closer comes
first; a tuned star therefore cannot overload its root.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.model import Deployment, Plan
from headgate.planning import Graph, Metrics, Problem, Sizes, measure, plan_deployment
from headgate.planning.measured import with_relays_of
from headgate.planning.planner import result_of
from headgate.tuning.compile import Compiled, compile_objective
from headgate.tuning.constraints import CompiledConstraint, compile_constraint
from headgate.tuning.language.vocabulary import Vocabulary
from headgate.tuning.outlook import Outlook
from headgate.tuning.scene import MeasuredScene, Scene, tree_by_tree
from headgate.tuning.search import TOLERANCE, Options, critical_owners
from headgate.tuning.shape import Shape
from headgate.tuning.sources import sources_of
from headgate.tuning.states import algebra_for
from headgate.tuning.steps import Step, make_before_break
from headgate.tuning.transformations import Candidate, candidates
from headgate.tuning.unit import Unit

DEFAULT_OBJECTIVE = "minimise average(path_latency) over clients"
IMPLICIT = ("upload_excess <= 0", "download_excess <= 0", "granted_shortfall <= 0")


@dataclass(frozen=True, slots=True)
class TuneStep:
    """One transformation of one stream's tree: what it was expected to bring, and how things stand after it."""

    period: int
    stream: str
    candidate: Candidate
    benefit: float
    cost: float
    violation: float
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class TuneResult:
    """A plan before and after tuning. `violations` are by constraint, before and after; metrics are the planner's.

    `sources` says of every metric that the objective and the constraints use where its figures come from.
    """

    objective: str
    goal: str
    before: Plan
    plan: Plan
    cost_before: float
    cost: float
    violations: Mapping[str, tuple[float, float]]
    steps: tuple[TuneStep, ...]
    periods: int
    settled: bool
    metrics_before: Metrics
    metrics: Metrics
    sites: tuple[str, ...] = field(repr=False, default=())
    sources: Mapping[str, str] = field(repr=False, default_factory=dict)


class PlanTuner:
    """Improves all trees of a plan. An objective spans all of them; each step changes one."""

    def __init__(
        self,
        scene: Scene,
        objective: Compiled,
        limits: tuple[CompiledConstraint, ...],
        options: Options,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """`stop` is asked while changes are priced; when it says so, the best that was found so far counts."""
        self.scene, self.objective, self.limits, self.options, self.stop = scene, objective, limits, options, stop
        self.by_unit = tree_by_tree(objective, scene.streams)

    def run(
        self,
        shapes: dict[str, Shape],
        *,
        until_held: bool = False,
    ) -> tuple[dict[str, Shape], list[TuneStep], int, bool]:
        """Improve until nothing helps, the periods run out or, with `until_held`, all limits hold."""
        steps: list[TuneStep] = []
        for period in range(1, self.options.periods + 1):
            if self.stop():
                break
            if until_held and not any(self.misses(shapes)):
                return shapes, steps, period, True
            found = self.best(shapes)
            if found is None:
                return shapes, steps, period, not self.stop()
            stream, candidate, benefit = found
            plan_steps = make_before_break(shapes[stream], candidate.moves)
            shapes = {**shapes, stream: shapes[stream].moved(candidate.moves)}
            step = TuneStep(
                period,
                stream,
                candidate,
                benefit,
                self.scene.cost(self.objective, shapes),
                sum(self.misses(shapes)),
                plan_steps,
            )
            steps.append(step)
        return shapes, steps, self.options.periods, False

    def misses(self, shapes: Mapping[str, Shape]) -> list[float]:
        """How far each limit is missed."""
        return [limit.violation(self.scene.cost(limit.compiled, shapes)) for limit in self.limits]

    def best(self, shapes: dict[str, Shape]) -> tuple[str, Candidate, float] | None:
        """The best acceptable change of any tree: what brings a missed limit closer, else what improves most."""
        missed = self.misses(shapes)
        before = self.scene.cost(self.objective, shapes)
        offers = sorted(self._offers(shapes, before, anything=any(missed)), key=lambda offer: -offer[2])
        if any(missed):
            relieving = self._most_relief(shapes, missed, offers)
            if relieving is not None:
                return relieving
        for stream, candidate, benefit in offers:
            if benefit <= TOLERANCE * max(1.0, abs(before)):
                break
            after = {**shapes, stream: shapes[stream].moved(candidate.moves)}
            if self._relief(missed, after) is not None:
                return stream, candidate, benefit
        return None

    def _most_relief(
        self, shapes: dict[str, Shape], missed: list[float], offers: list[tuple[str, Candidate, float]]
    ) -> tuple[str, Candidate, float] | None:
        best, most = None, TOLERANCE
        for stream, candidate, benefit in offers:
            if best is not None and self.stop():
                break
            relief = self._relief(missed, {**shapes, stream: shapes[stream].moved(candidate.moves)})
            if relief is not None and relief > most:
                best, most = (stream, candidate, benefit), relief
        return best

    def _relief(self, missed: list[float], shapes: Mapping[str, Shape]) -> float | None:
        """How much closer the limits come, each in units of what it was missed by; None when one gets worse."""
        relief = 0.0
        for limit, was in zip(self.limits, missed, strict=True):
            now = limit.violation(self.scene.cost(limit.compiled, shapes))
            if now > was + TOLERANCE * max(1.0, was):
                return None
            relief += (was - now) / was if was > 0 else 0.0
        return relief

    def _offers(self, shapes: dict[str, Shape], before: float, *, anything: bool) -> list[tuple[str, Candidate, float]]:
        found: list[tuple[str, Candidate, float]] = []
        views = dict(zip(self.scene.streams, self.scene.views(shapes, self.objective.metrics), strict=True))
        algebra = algebra_for(self.objective)
        alone = {stream: Outlook(self.objective, view) for stream, view in views.items()} if self.by_unit else {}
        for stream, view in views.items():
            others = [outlook.total for name, outlook in alone.items() if name != stream]
            outlook = Outlook(self.objective, view, algebra.merge(others)) if self.by_unit else None
            shape_source = outlook or Outlook(_PLAIN, view)
            critical = None
            if outlook is not None and self.objective.function in ("min", "max") and not anything and len(views) == 1:
                critical = critical_owners(outlook)
            for owner in shape_source.order:
                if not view.shape.children[owner] or (critical is not None and owner not in critical):
                    continue
                unit: Unit = shape_source.unit(owner, self.options.levels)
                pricer = outlook.pricer(unit) if outlook is not None else None
                for candidate in candidates(unit, self.options.transformations, joins=view.overlay.joins):
                    if self.stop():
                        return found
                    if pricer is not None:
                        benefit = pricer.price(candidate.moves).benefit
                    else:
                        after = {**shapes, stream: view.shape.moved(candidate.moves)}
                        benefit = self.objective.better(before, self.scene.cost(self.objective, after))
                    if anything or benefit > 0:
                        found.append((stream, candidate, benefit))
        return found


_PLAIN = compile_objective("minimise sum(link_hop)")


def tune_deployment(
    deployment: Deployment,
    *,
    plan: Plan | None = None,
    objective: str | None = None,
    constraints: tuple[str, ...] | None = None,
    options: Options | None = None,
    sizes: Mapping[str, Any] | Sizes | None = None,
    measured: MeasuredScene | None = None,
    problem: Problem | None = None,
) -> TuneResult:
    """Plan a deployment (or start from a given plan) and improve it by its objective within its constraints.

    `problem` is the planner's view of the deployment as it was measured; else it is made from the file and `sizes`.
    """
    vocabulary = Vocabulary.installed()
    if problem is not None and plan is not None:
        planned = result_of(Graph.of(with_relays_of(problem, plan), plan), "in force")
    else:
        planned = plan_deployment(replace(deployment, plan=plan) if plan is not None else deployment, sizes=sizes)
    text = objective or deployment.objective or DEFAULT_OBJECTIVE
    compiled = compile_objective(text, vocabulary)
    texts = (*IMPLICIT, *(deployment.constraints if constraints is None else constraints))
    limits = tuple(compile_constraint(limit, vocabulary) for limit in texts)
    if not any(want.quality.at_least is not None for member in planned.problem.members for want in member.wants):
        limits = tuple(limit for limit in limits if limit.text != "granted_shortfall <= 0")
    scene = Scene(planned.problem, measured or MeasuredScene())
    tuner = PlanTuner(scene, compiled, limits, options or Options(periods=200))
    start = scene.shapes(planned.plan)
    missed = tuner.misses(start)
    shapes, steps, periods, settled = tuner.run(start)
    final = scene.plan(shapes)
    used = compiled.metrics.union(*(limit.compiled.metrics for limit in limits))
    return TuneResult(
        text,
        "minimise" if compiled.sign > 0 else "maximise",
        planned.plan,
        final,
        scene.cost(compiled, start),
        scene.cost(compiled, shapes),
        {limit.text: (was, now) for limit, was, now in zip(limits, missed, tuner.misses(shapes), strict=True)},
        tuple(steps),
        periods,
        settled,
        planned.metrics,
        measure(Graph.of(planned.problem, final)),
        tuple(scene.names),
        sources_of(used, scene.measured, scene.streams),
    )
