"""The planner as the product uses it: a deployment in, a checked plan with predictions and reasons out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headgate.model import Deployment, Plan
from headgate.planning.construct import construct
from headgate.planning.deployment import Sizes, unknown_rates, whole_problem
from headgate.planning.doubled import DoubledPath, doubled_paths, without_doubled
from headgate.planning.evaluation import Metrics, Prediction, measure, predict
from headgate.planning.exact import best_quality, least_bandwidth
from headgate.planning.graph import Graph
from headgate.planning.problem import Problem, unreachable
from headgate.planning.search import Search, improve, usual_steps
from headgate.planning.validity import InvalidPlanError, Violation, edges_of, require_valid, violations


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A valid plan, its metrics, what every subscription will get, and why.

    `overloads` are the resources that the plan needs more of than there is (condition 3): rows are shed there.
    Of streams with `unknown_rates` nobody knows how many rows come, so drop, overload and contracts are not known.
    `doubled` are the second paths of subscriptions with `paths: 2`; what they take is not there for others.
    """

    plan: Plan
    metrics: Metrics
    subscriptions: Mapping[str, Prediction]
    overloads: tuple[Violation, ...]
    explanation: str
    algorithm: str
    problem: Problem = field(repr=False)
    graph: Graph = field(repr=False)
    unknown_rates: tuple[str, ...] = ()
    doubled: tuple[DoubledPath, ...] = ()


def plan_deployment(
    deployment: Deployment,
    algorithm: str = "qasdg",
    seed: int = 0,
    sizes: Mapping[str, Any] | Sizes | None = None,
    search: Search | None = None,
) -> PlanResult:
    """Plan all streams of a deployment. A plan that the deployment gives is checked and used instead of a computed one.

    Raises `ProblemError` for what cannot be planned and `InvalidPlanError` for a given plan that breaks a condition.
    """
    problem = whole_problem(deployment, sizes)
    if deployment.plan is not None:
        result = result_of(Graph.of(problem, deployment.plan), "given")
    else:
        result = plan_problem(problem, algorithm, seed, search)
    return with_second_paths(without_rates(result, unknown_rates(deployment, sizes)), deployment)


def with_second_paths(result: PlanResult, deployment: Deployment) -> PlanResult:
    """The same plan with the second paths of its subscriptions: what they cost, and what is left for everybody."""
    doubled = doubled_paths(result.problem, deployment, result.plan)
    wanted = {(each.stream, each.site) for each in deployment.subscriptions.values() if each.paths > 1}
    alone = sorted(wanted - {(each.path.stream, each.path.site) for each in doubled})
    lines = [str(each) for each in doubled]
    lines += [f"one path: {stream} to {site}, which no site above its parent can serve too" for stream, site in alone]
    if not lines:
        return result
    explained = explain(result.metrics, [*result.subscriptions.values()], result.overloads, result.unknown_rates)
    more = [line for line in result.explanation.splitlines() if line not in explained.splitlines()]
    plain = result_of(Graph.of(without_doubled(result.problem, doubled), result.plan), result.algorithm)
    found = without_rates(plain, result.unknown_rates)
    return replace(found, doubled=doubled, explanation="\n".join([found.explanation, *lines, *more]))


def plan_problem(problem: Problem, algorithm: str = "qasdg", seed: int = 0, search: Search | None = None) -> PlanResult:
    """Plan a problem by a construction, by `search` (QASDG improved by annealing, repeatable by its seed), or exactly.

    The exact ones are for small problems: `optimum` has the best quality that any graph has, `cheapest` the least total
    bandwidth of those that overload nothing.
    """
    cut_off = unreachable(problem)
    if cut_off:
        stream, site = cut_off[0]
        raise InvalidPlanError(
            f"no chain of links through members of stream {stream!r} joins {site!r} to its source"
            + (f", and {len(cut_off) - 1} more members are cut off" if len(cut_off) > 1 else ""),
            hint="add a link, or let sites relay what they do not subscribe to",
        )
    name = algorithm.lower()
    if name == "cheapest":
        return _cheapest(problem)
    if name not in ("search", "optimum"):
        return result_of(construct(problem, algorithm, seed).graph, name)
    graph = construct(problem, "qasdg", seed).graph
    graph = improve(graph, seed, search or Search(steps=usual_steps(len(problem.members)))).graph
    return result_of(graph, "search") if name == "search" else _optimum(problem, graph)


def _optimum(problem: Problem, start: Graph) -> PlanResult:
    """The best graph of all, by branch and bound from a good one; it says when the proof was not finished."""
    found = best_quality(problem, start)
    result = result_of(found.graph, "optimum")
    proof = f"no graph is better: {found.visited:,} partial graphs were looked at"
    if not found.proven:
        proof = f"not proven: {found.visited:,} partial graphs were not all; the problem is too large for a proof"
    return replace(result, explanation=f"{proof}\n{result.explanation}")


def _cheapest(problem: Problem) -> PlanResult:
    """The cheapest graph that overloads nothing, by integer programme."""
    found = least_bandwidth(problem)
    if not found.feasible:
        raise InvalidPlanError(
            "no graph serves everybody without overloading a site or a link",
            hint="raise bandwidths, or plan by quality (`--algorithm search`), which sheds where it must",
        )
    result = result_of(Graph.of(problem, found.parents), "cheapest")
    proof = f"no graph that overloads nothing needs less than {found.bound:,.0f} bytes/s"
    return replace(result, explanation=f"{proof}\n{result.explanation}")


def result_of(graph: Graph, algorithm: str) -> PlanResult:
    """Check a graph and say what it gives to whom."""
    parents = graph.parents()
    require_valid(graph.problem, parents)
    metrics, predictions = measure(graph), predict(graph)
    overloads = tuple(
        found for found in violations(graph.problem, edges_of(graph.problem, parents)) if found.condition == 3
    )
    return PlanResult(
        graph.plan(),
        metrics,
        {prediction.subscription: prediction for prediction in predictions},
        overloads,
        explain(metrics, predictions, overloads),
        algorithm,
        graph.problem,
        graph,
    )


def without_rates(result: PlanResult, streams: tuple[str, ...]) -> PlanResult:
    """The same plan, which says of some streams that their rates are not known."""
    if not streams:
        return result
    predictions = list(result.subscriptions.values())
    text = explain(result.metrics, predictions, result.overloads, streams)
    return replace(result, unknown_rates=streams, explanation=text)


def explain(
    metrics: Metrics,
    predictions: list[Prediction],
    overloads: tuple[Violation, ...],
    unknown_rates: tuple[str, ...] = (),
) -> str:
    """In a few lines: how good the plan is, what binds, and which contracts it cannot hold."""
    if unknown_rates:
        names = ", ".join(unknown_rates)
        return (
            f"the rate of {names} is unknown, so what is dropped, what is overloaded and which contracts hold is not "
            f"known either; only delays are. Declare `rate:` in the file, ask with --rate {unknown_rates[0]}=500/s, or "
            "take what a running deployment measured with --measured"
        )
    lines = []
    lines.append(
        f"quality: geometric mean {metrics.geometric_mean:.3f} over {metrics.subscriptions - metrics.zeros} "
        f"subscriptions, {metrics.zeros} at zero, arithmetic mean {metrics.arithmetic_mean:.3f}; "
        f"{metrics.total_bandwidth_bytes_per_s:,.0f} bytes/s in all"
    )
    lines += [f"overloaded: {found.where} {found.message}" for found in overloads[:10]]
    if len(overloads) > 10:
        lines.append(f"... and {len(overloads) - 10} more overloaded places")
    broken = [prediction for prediction in predictions if not prediction.met]
    for prediction in broken[:10]:
        reason = prediction.binds or f"its delay is {prediction.delay_s:.2f} s"
        lines.append(
            f"contract broken: {prediction.subscription} gets {prediction.quality:.2f} of {prediction.at_least:.2f}"
            f" (drop {prediction.drop:.3f}, delay {prediction.delay_s:.2f} s): {reason}"
        )
    if len(broken) > 10:
        lines.append(f"... and {len(broken) - 10} more broken contracts")
    if not overloads and not broken:
        lines.append("nothing is overloaded and every contract holds")
    return "\n".join(lines)
