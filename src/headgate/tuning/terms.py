"""What a deployment file asks of every plan: the terms `objective:` and `constraints:`, and plans that keep to them.

Plans are made by quality first. Where the file has terms, the tuner's local steps bring the plan within the
constraints and then improve it by the objective. The operator's constraints come before everything else; bandwidths and
granted qualities are not made worse for the sake of the objective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headgate.errors import HeadgateError
from headgate.model import Deployment, Plan
from headgate.planning import Graph, PlanResult, Problem, Sizes, construct, measure, problem_of
from headgate.planning.deployment import unknown_rates
from headgate.planning.planner import plan_problem, result_of, without_rates
from headgate.planning.search import Search
from headgate.planning.validity import edges_of, violations
from headgate.tuning.compile import Compiled, compile_objective
from headgate.tuning.constraints import CompiledConstraint, compile_constraint
from headgate.tuning.deployment import IMPLICIT, PlanTuner
from headgate.tuning.evaluate import node_costs
from headgate.tuning.language.quantities import UNITS
from headgate.tuning.language.vocabulary import Vocabulary
from headgate.tuning.scene import Scene
from headgate.tuning.search import TOLERANCE, Options
from headgate.tuning.shape import Shape

QUALITY = "maximise average(attained_quality) over clients"
"""What is kept as high as possible where the file names no objective."""
STARTS = ("brush", "chain", "unfag")
"""Plans of other shapes, from which constraints are tried to be kept when a good plan cannot be brought within them."""
UNPLANNED = frozenset({"relay_cpu", "loss_rate", "link_loss"})
"""Metrics that have no value before a deployment runs, so that no plan can be made by them."""
_OPTIONS = Options(periods=200)
_SHOWN = 3


class ConstraintError(HeadgateError):
    """A constraint that no plan was found to keep, or that plans cannot be made by."""

    usual_kind = "conflict"


@dataclass(frozen=True, slots=True)
class Miss:
    """A constraint that a plan does not keep: by how much in all, in base units, and where it is missed most."""

    constraint: str
    missed_by: float
    where: str

    def __str__(self) -> str:
        return f"constraint `{self.constraint}` is missed: {self.where}"


@dataclass(frozen=True)
class Terms:
    """The objective and the constraints of a deployment, compiled. They are false when there are none."""

    objective: Compiled | None = None
    limits: tuple[CompiledConstraint, ...] = ()

    @classmethod
    def of(cls, deployment: Deployment, vocabulary: Vocabulary | None = None) -> Terms:
        """The terms of a deployment; `ConstraintError` where one is about something that plans cannot be made by."""
        if deployment.objective is None and not deployment.constraints:
            return cls()
        words = vocabulary or Vocabulary.installed()
        objective = None if deployment.objective is None else compile_objective(deployment.objective, words)
        limits = tuple(compile_constraint(text, words) for text in deployment.constraints)
        costs = [(limit.text, limit.compiled.metrics) for limit in limits]
        for text, metrics in [
            *costs,
            *([] if objective is None else [(deployment.objective or "", objective.metrics)]),
        ]:
            if unknown := sorted(metrics & UNPLANNED):
                raise ConstraintError(
                    f"`{text}` is about {', '.join(unknown)}, which is not known before a deployment runs, so no plan "
                    "can be made by it",
                    hint="leave it out of the file and give it to `headgate tune --watch`",
                )
        return cls(objective, limits)

    def __bool__(self) -> bool:
        return self.objective is not None or bool(self.limits)

    def missed(self, problem: Problem, plan: Plan) -> list[float]:
        """How far a plan misses each constraint, in their order; 0 where it holds."""
        scene = Scene(problem)
        return _missed(scene, scene.shapes(plan), self.limits)

    def misses(self, problem: Problem, plan: Plan) -> tuple[Miss, ...]:
        """The constraints that a plan misses, and where."""
        scene = Scene(problem)
        shapes = scene.shapes(plan)
        return tuple(
            Miss(limit.text, by, _where(scene, shapes, limit))
            for limit, by in zip(self.limits, _missed(scene, shapes, self.limits), strict=True)
            if by > 0
        )

    def gain(self, problem: Problem, before: Plan, after: Plan) -> float:
        """By which part of itself the objective's cost gets better from one plan to another; 0 without an objective."""
        if self.objective is None:
            return 0.0
        scene = Scene(problem)
        was, now = (scene.cost(self.objective, scene.shapes(plan)) for plan in (before, after))
        better = self.objective.better(was, now)
        if not np.isfinite(was) or was == 0.0:
            return 1.0 if better > 0 else 0.0
        return better / abs(was)


def worse(now: Sequence[float], before: Sequence[float]) -> bool:
    """Whether any constraint is missed by more than before.

    >>> worse([0.0, 0.1], [0.0, 0.2]), worse([0.0, 0.3], [5.0, 0.2])
    (False, True)
    """
    return any(one > other + TOLERANCE * max(1.0, other) for one, other in zip(now, before, strict=True))


def within(problem: Problem, plan: Plan, terms: Terms, stop: Callable[[], bool] = lambda: False) -> Plan:
    """The plan brought within the constraints and improved by the objective, as far as local steps can do that.

    Without an objective a plan that keeps to the constraints stays as it is. `stop` ends the search early.
    """
    scene = Scene(problem)
    shapes = scene.shapes(plan)
    if terms.objective is not None:
        implied = tuple(compile_constraint(text) for text in _implied(problem))
        shapes = PlanTuner(scene, terms.objective, (*terms.limits, *implied), _OPTIONS, stop).run(shapes)[0]
    if any(_missed(scene, shapes, terms.limits)):
        shapes = _relieved(scene, shapes, terms, stop)
    return scene.plan(shapes)


def plan_within(
    deployment: Deployment,
    algorithm: str = "search",
    seed: int = 0,
    search: Search | None = None,
    stop: Callable[[], bool] = lambda: False,
    sizes: Sizes | None = None,
) -> PlanResult:
    """Plan a deployment by quality, then within its constraints and by its objective.

    Raises `ConstraintError` that names every constraint no plan was found to keep, and why.
    """
    terms = Terms.of(deployment)
    problem = problem_of(deployment, sizes)
    planned = plan_problem(problem, algorithm, seed, search)
    unknown = unknown_rates(deployment, sizes)
    if not terms:
        return without_rates(planned, unknown)
    plan = within(problem, planned.plan, terms, stop)
    for start in _starts(problem, seed):
        if not terms.misses(problem, plan):
            break
        other = within(problem, start, terms, stop)
        if sum(terms.missed(problem, other)) < sum(terms.missed(problem, plan)):
            plan = other
    if misses := terms.misses(problem, plan):
        raise _refusal(problem, plan, terms, misses, stop)
    name = planned.algorithm if plan == planned.plan else f"{planned.algorithm}, within the file's terms"
    result = without_rates(result_of(Graph.of(problem, plan), name), unknown)
    kept = [f"constraint `{limit.text}` holds" for limit in terms.limits]
    return replace(result, explanation="\n".join([result.explanation, *kept]))


def _starts(problem: Problem, seed: int = 0) -> Iterator[Plan]:
    """Plans of other shapes; where some pairs of sites cannot connect, not every construction serves everybody."""
    for name in STARTS:
        graph = construct(problem, name, seed).graph
        if not violations(problem, edges_of(problem, graph.parents()), bandwidth=False):
            yield graph.plan()


def _refusal(
    problem: Problem, plan: Plan, terms: Terms, misses: tuple[Miss, ...], stop: Callable[[], bool]
) -> ConstraintError:
    """The error that names the constraints that cannot be kept, each with whether it could be kept alone."""
    found = []
    for miss in misses:
        alone = Terms(None, tuple(limit for limit in terms.limits if limit.text == miss.constraint))
        starts = [plan, *_starts(problem)]
        possible = len(terms.limits) > 1 and any(
            not any(alone.missed(problem, within(problem, start, alone, stop))) for start in starts
        )
        others = ", ".join(f"`{limit.text}`" for limit in terms.limits if limit.text != miss.constraint)
        why = f"alone it could be kept, together with {others} it cannot" if possible else "no plan was found that does"
        found.append(f"constraint `{miss.constraint}` cannot be kept ({why}); in the closest plan {miss.where}")
    return ConstraintError("; ".join(found), where="constraints", hint="loosen or remove the constraint")


def _relieved(scene: Scene, shapes: dict[str, Shape], terms: Terms, stop: Callable[[], bool]) -> dict[str, Shape]:
    """Shapes that keep to the constraints, if steps can bring them there; then what that cost is won back."""
    goal = terms.objective or compile_objective(QUALITY)
    tuner = PlanTuner(scene, goal, terms.limits, _OPTIONS, stop)
    before = _quality(scene, shapes)
    shapes = tuner.run(shapes, until_held=True)[0]
    lost = _quality(scene, shapes) < before
    return tuner.run(shapes)[0] if terms.objective is not None or lost else shapes


def _quality(scene: Scene, shapes: Mapping[str, Shape]) -> tuple[int, float]:
    metrics = measure(Graph.of(scene.problem, scene.plan(shapes)))
    return -metrics.zeros, metrics.geometric_mean


def _implied(problem: Problem) -> tuple[str, ...]:
    """What is in force whatever the file says; granted qualities only where there are any, because they are costly."""
    granted = any(want.quality.at_least is not None for member in problem.members for want in member.wants)
    return IMPLICIT if granted else IMPLICIT[:-1]


def _missed(scene: Scene, shapes: Mapping[str, Shape], limits: Sequence[CompiledConstraint]) -> list[float]:
    return [limit.violation(scene.cost(limit.compiled, shapes)) for limit in limits]


def _where(scene: Scene, shapes: Mapping[str, Shape], limit: CompiledConstraint) -> str:
    """The sites that miss a bound most, with their values; of a bound on the system the value of the system."""
    if not limit.by_site:
        return f"it is {_shown(scene.cost(limit.value, shapes), limit)}"
    found: dict[tuple[str, str], tuple[float, list[str]]] = {}
    views = scene.views(shapes, limit.value.metrics)
    for stream, view in zip(scene.streams, views, strict=True):
        values = node_costs(limit.value, view)
        missed = np.where(view.overlay.weights(limit.value.over) > 0, limit.miss(values), 0.0)
        for site in np.flatnonzero(missed > 0):
            key = (scene.names[site], _shown(float(values[site]), limit))
            found.setdefault(key, (float(missed[site]), []))[1].append(stream)
    most = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))
    texts = [
        f"{site} has {value}" + ("" if len(streams) > 1 or len(scene.streams) == 1 else f" in {streams[0]}")
        for (site, value), (_, streams) in most[:_SHOWN]
    ]
    more = f" and {len(most) - _SHOWN} more sites" if len(most) > _SHOWN else ""
    return ", ".join(texts) + more


def _shown(value: float, limit: CompiledConstraint) -> str:
    unit = limit.threshold.unit
    return f"{value / UNITS[unit]:.4g} {unit}" if unit else f"{value:.4g}"
