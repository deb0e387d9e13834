"""A plan in force on a problem that is not the one it was made for: the better plan that is worth its moves.

Every member that gets another parent costs a hand-off, so a search from the plan in force pays a price for each
(`headgate.planning.living_plan`). A search can go on where the last one left off. Now and then a plan is made from
nothing beside it, and when what was found is too far below that one, it is taken over with as few moves as that can
be done.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from headgate.model import Plan, Tree
from headgate.planning.construct import construct
from headgate.planning.difference import moves
from headgate.planning.evaluation import Metrics, measure
from headgate.planning.fresh_plan import GraphWorth, standing_of
from headgate.planning.generate import Workload, generate
from headgate.planning.living_plan import EventWork, Life
from headgate.planning.problem import Problem
from headgate.planning.search import Search, usual_steps
from headgate.planning.validity import require_valid


@dataclass(frozen=True, slots=True)
class Effort:
    """What a change of plan must bring, and how long it may be looked for.

    A member gets another parent only if that brings as much as one subscription of mean weight whose quality grows by
    the part `move_gain`. `loss` is how much of the quality of a plan from nothing may be missing before that one is
    taken over. `steps` are those of the search from the plan in force, `long_steps` at most those of the plan from
    nothing and of each of the two searches that follow it. With a `clock` each of the four ends after `budget_s` of it.
    """

    move_gain: float = 0.5
    loss: float = 0.1
    steps: int = 20_000
    long_steps: int = 60_000
    budget_s: float = 5.0
    clock: Callable[[], float] | None = None

    def price(self, problem: Problem) -> float:
        """What a move costs in the sum of weighted log qualities.

        It is the same for all weights twice as large, and for a problem of the same kind with twice as many members.
        """
        weights = [want.weight for member in problem.members for want in member.wants]
        return math.log1p(self.move_gain) * (sum(weights) / len(weights) if weights else 1.0)


@dataclass(frozen=True, slots=True)
class Replanned:
    """A valid plan, what it is worth, and how many members have another parent than in force.

    `fresh` is what a plan from nothing is worth, if one was made.
    """

    plan: Plan
    metrics: Metrics
    moves: int
    fresh: GraphWorth | None = None


def replan(
    problem: Problem,
    plan: Plan,
    seed: int = 0,
    effort: Effort | None = None,
    *,
    candidate: Plan | None = None,
    anew: bool = False,
) -> Replanned:
    """A plan that is as good as the one in force or better by more than its moves cost.

    The search starts from a `candidate`, the result of an earlier one, where that is still worth its moves. With `anew`
    a plan is made from nothing too, and the result is at most `Effort.loss` below it. Members who are not in the plan
    are given a place. Repeatable under its seed as long as no clock ends it.
    """
    effort = effort or Effort()
    long_steps = min(effort.long_steps, usual_steps(len(problem.members)))
    upkeep = EventWork(
        trials=0,
        wide=effort.steps,
        margin=effort.price(problem),
        loss=effort.loss,
        steps=long_steps,
        judge_every=int(anew),
        search=Search(steps=long_steps, budget_s=effort.budget_s, clock=effort.clock),
        budget_s=effort.budget_s,
        clock=effort.clock,
    )
    life = Life(problem, seed=seed, upkeep=upkeep, plan=plan)
    resumed = candidate is not None and life.resume(candidate, plan)
    parents, standing = life.graph.parent_array, standing_of(life.graph)
    happened = life.settle(plan)
    if resumed and standing_of(life.graph).lags(standing, effort.loss):  # it would have saved moves at that price
        life.graph.assign(parents)
    require_valid(problem, life.graph.parents())
    found = life.plan
    return Replanned(found, measure(life.graph), moves(plan, found), happened.fresh)


def warm() -> None:
    """Compile what `replan` needs, or load it: a running service must not lose seconds to that."""
    problem = generate(Workload(sites=4, streams=1, filters_per_stream=3), 0)
    plan = construct(problem, "brush").graph.plan()
    effort = Effort(steps=10, long_steps=10)
    fewer = Plan(
        {name: Tree(name, tree.root, dict(list(tree.parents.items())[1:])) for name, tree in plan.trees.items()}
    )
    replan(problem, fewer, effort=effort, candidate=plan, anew=True)
