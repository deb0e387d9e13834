"""Plans that are asked for: what an algorithm would plan, what a change would do, and what the plan in force grants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headgate.model import Deployment, Plan
from headgate.planning import Graph, PlanResult, Prediction, Sizes, plan_deployment
from headgate.planning.covering import Comparisons
from headgate.planning.deployment import problem_of, unknown_rates
from headgate.planning.difference import difference, moves
from headgate.planning.document import plan_document
from headgate.planning.living_plan import Life
from headgate.planning.measured import with_relays_of
from headgate.planning.planner import result_of, with_second_paths, without_rates
from headgate.planning.search import Search, parse_objective
from headgate.planning.what_if import change
from headgate.service.extending import FIRST_S, deadline
from headgate.tuning.terms import Terms, plan_within
from headgate.wire.snapshot import Snapshot


def propose(
    deployment: Deployment, algorithm: str, objective: str, seed: int, sizes: Sizes | None, *, terms: bool = True
) -> PlanResult:
    """The plan of an algorithm; with `terms` within the constraints of the file and by its objective, as `up` plans."""
    search = None
    if algorithm in ("search", "optimum"):
        steps = min(400_000, max(4_000, 500 * len(deployment.subscriptions)))
        search = Search(steps=steps, objective=parse_objective(objective))
    if terms and deployment.plan is None:
        within = plan_within(deployment, algorithm, seed, search, sizes=sizes, stop=deadline(FIRST_S))
        return with_second_paths(within, deployment)
    result = plan_deployment(deployment, algorithm, seed, sizes, search)
    misses = Terms.of(deployment).misses(result.problem, result.plan) if terms else ()
    return replace(result, explanation="\n".join([result.explanation, *map(str, misses)]))


def carry_over(before: Plan, anew: PlanResult, seed: int) -> tuple[PlanResult, dict[str, Any]]:
    """The plan before, carried over to what has changed with few moves, and how it compares with planning anew."""
    life = Life(anew.problem, seed=seed, plan=before)
    life.settle(before)
    result = result_of(life.graph, "kept")
    return result, {
        "steps": [str(step) for step in difference(before, result.plan)],
        "moves": moves(before, result.plan),
        "moves_anew": moves(before, anew.plan),
        "quality_anew": anew.metrics.geometric_mean,
    }


def granted(snapshot: Snapshot, sizes: Sizes | None, known: Comparisons | None = None) -> PlanResult | None:
    """What the plan in force gives to whom, by what was measured or else is declared; None where nothing is planned.

    Whoever asks again and again keeps what is `known` of how classes compare.
    """
    if snapshot.plan is None:
        return None
    deployment = replace(snapshot.deployment, plan=None)
    problem = with_relays_of(problem_of(deployment, sizes, known), snapshot.plan)
    result = result_of(Graph.of(problem, snapshot.plan), "in force")
    return with_second_paths(without_rates(result, unknown_rates(deployment, sizes)), deployment)


def ask_what_if(
    snapshot: Snapshot, sizes: Sizes | None, changes: Sequence[str], algorithm: str, *, keep: bool
) -> dict[str, Any]:
    """What changes, written as for `headgate plan --what-if`, would do to the deployment that is in force."""
    before = granted(snapshot, sizes)
    deployment = replace(snapshot.deployment, plan=None)
    for text in changes:
        deployment = change(deployment, text)
    result = propose(deployment, algorithm, "quality,bandwidth,fairness", 0, sizes)
    kept: dict[str, Any] = {}
    if keep and snapshot.plan is not None:
        result, kept = carry_over(snapshot.plan, result, 0)
    gone = sorted(snapshot.deployment.subscriptions.keys() - deployment.subscriptions.keys())
    was = {} if before is None else {"before": result_document(before)}
    return {**was, "after": result_document(result), "subscriptions_gone": gone, **kept}


def result_document(result: PlanResult) -> dict[str, Any]:
    """A plan with its metrics and what every subscription gets, as one JSON-ready document."""
    return {
        "algorithm": result.algorithm,
        "plan": plan_document(result.plan),
        "metrics": result.metrics.as_dict(),
        "subscriptions": {
            name: prediction_document(found, result.unknown_rates) for name, found in result.subscriptions.items()
        },
        "rates_unknown": list(result.unknown_rates),
        "overloads": [str(found) for found in result.overloads],
        "second_paths": [each.document() for each in result.doubled],
    }


def prediction_document(found: Prediction, unknown: Sequence[str]) -> dict[str, Any]:
    """What a plan gives to one subscription; unknown where the rate of its stream is."""

    def known(value: Any) -> Any:
        return None if found.stream in unknown else value

    return {
        "stream": found.stream,
        "site": found.site,
        "drop": known(found.drop),
        "delay_s": found.delay_s,
        "quality": known(found.quality),
        "at_least": found.at_least,
        "met": known(found.met),
        "binds": known(found.binds),
    }


def measured_sizes(planner: Mapping[str, Any]) -> Sizes | None:
    """What the planner of a running deployment has measured, by its report; None while it has measured nothing."""
    if not planner:
        return None
    shares = {name: each["selectivity"] for name, each in planner["subscriptions"].items()}
    return Sizes(
        {name: each["row_bytes"] for name, each in planner["streams"].items()},
        {name: each["rate"] for name, each in planner["streams"].items()},
        {name: share for name, share in shares.items() if share is not None},
    )
