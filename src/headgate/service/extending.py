"""The plan in force for those who subscribe now: new sites find a parent, within the constraints of the deployment.

A site that nobody planned for gets the parent that is best by what was measured so far and what the deployment declares
of the rest, and nobody else moves. Only where that would miss a constraint of the deployment file do others move too.
A request after which no plan could be found that keeps to the constraints is refused before anything changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from headgate.diagnostics import SERVICE, noted
from headgate.model import Deployment, Plan, Subscription, Tree
from headgate.planning import Problem, ProblemError
from headgate.planning.covering import Comparisons
from headgate.planning.late_members import joined
from headgate.planning.measured import Figures, with_relays_of
from headgate.planning.search import Search
from headgate.tuning.terms import ConstraintError, Miss, Terms, plan_within, within, worse
from headgate.wire.snapshot import Snapshot

BUDGET_S: Final = 5.0
"""Processor time that may be spent on bringing a plan within the constraints while a request waits."""


FIRST_S: Final = 60.0
"""The same for the first plan of a deployment."""


def extend_plan(
    snapshot: Snapshot, known: Comparisons | None = None, figures: Figures | None = None, *, fixed: bool = False
) -> Plan | None:
    """The plan with every subscribing site in its stream's tree, None when nothing is to be changed.

    Whoever extends one plan after another keeps what is `known` of how subscriptions compare. With `fixed` nobody who
    is served already moves, whatever the constraints say.
    """
    missing = _missing(snapshot)
    plan = snapshot.plan if missing is None else _extended(snapshot, missing, known, figures)
    terms = Terms.of(snapshot.deployment)
    if plan is not None and terms.limits:
        with noted(
            SERVICE, "what cannot be planned is served by the root", ProblemError
        ):  # what cannot be planned is served by the root
            problem = _problem(snapshot, plan, known, figures)
            if any(terms.missed(problem, plan)):
                plan = _placed(problem, plan, missing or (), terms)
                if not fixed and any(terms.missed(problem, plan)):
                    plan = within(problem, plan, Terms(None, terms.limits), deadline(BUDGET_S))
    return None if plan == snapshot.plan else plan


def first_plan(snapshot: Snapshot, given: Plan | None, search: Search) -> Plan:
    """The plan that a deployment starts with: the one that its file gives, or one by quality and the file's terms.

    Raises `ConstraintError` that names every constraint that cannot be kept, and why.
    """
    deployment = replace(snapshot.deployment, plan=None)
    if given is None:
        return plan_within(deployment, "search", search=search, stop=deadline(FIRST_S)).plan
    terms = Terms.of(deployment)
    there = replace(snapshot, plan=given)
    plan = extend_plan(there, fixed=True) or given
    if misses := terms.misses(_problem(there, plan, None, None), plan):
        raise ConstraintError(
            "; ".join(map(str, misses)),
            where="the plan that the file gives",
            hint="change `plan:`, leave it out, or loosen the constraint",
        )
    return given


def missed_constraints(snapshot: Snapshot) -> tuple[Miss, ...]:
    """The constraints that the plan in force misses by what the deployment declares."""
    terms = Terms.of(snapshot.deployment)
    if snapshot.plan is not None and terms.limits:
        with noted(SERVICE, "what cannot be planned is served by the root", ProblemError):
            return terms.misses(_problem(snapshot, snapshot.plan, None, None), snapshot.plan)
    return ()


class Extender:
    """Extends one plan after another, and refuses requests that would break a constraint that holds."""

    def __init__(self) -> None:
        self.fixed = False
        self._known = Comparisons()
        self._seen: tuple[Plan | None, Deployment] | None = None

    def extend(self, snapshot: Snapshot, figures: Figures) -> Plan | None:
        """The plan that a snapshot needs, None when it has it; what could not be mended is not tried again."""
        here = (snapshot.plan, replace(snapshot.deployment, plan=None))
        if snapshot.deployment.constraints and here == self._seen:
            return None
        plan = extend_plan(snapshot, self._known, figures, fixed=self.fixed or snapshot.deployment.tuned)
        self._seen = (plan or snapshot.plan, here[1])
        return plan

    def check(
        self, snapshot: Snapshot, wanted: Iterable[Subscription], figures: Figures, *, quoted: bool = True
    ) -> None:
        """Refuse subscriptions that nobody can serve without missing a constraint by more than it is missed now.

        The constraints are `quoted` to operators only, as they name what is others'.
        """
        terms = Terms.of(snapshot.deployment)
        if not terms.limits or snapshot.plan is None:
            return
        added = {each.name: each for each in wanted}
        there = replace(
            snapshot,
            deployment=replace(snapshot.deployment, subscriptions={**snapshot.deployment.subscriptions, **added}),
            class_ids={**snapshot.class_ids, **{name: snapshot.class_ids.get(name, -1) for name in added}},
        )
        with noted(SERVICE, "what cannot be planned is served by the root", ProblemError):
            before = terms.missed(_problem(snapshot, snapshot.plan, self._known, figures), snapshot.plan)
            fixed = self.fixed or snapshot.deployment.tuned
            plan = extend_plan(there, self._known, figures, fixed=fixed) or snapshot.plan
            problem = _problem(there, plan, self._known, figures)
            if worse(terms.missed(problem, plan), before):
                which = ": " + "; ".join(map(str, terms.misses(problem, plan))) if quoted else ""
                raise ConstraintError(
                    f"{', '.join(map(repr, added))} cannot be served within the deployment's constraints{which}",
                    hint="subscribe at another site, or loosen the constraint in the deployment file",
                )


def deadline(budget_s: float) -> Callable[[], bool]:
    """Says when this thread has used so much processor time from now on."""
    end = time.thread_time() + budget_s
    return lambda: time.thread_time() > end


def _extended(
    snapshot: Snapshot, missing: list[tuple[str, str]], known: Comparisons | None, figures: Figures | None
) -> Plan:
    if snapshot.plan is not None:
        with noted(
            SERVICE, "what cannot be planned is served by the root", ProblemError
        ):  # what cannot be planned is served by the root
            problem = (figures or Figures()).problem(snapshot.deployment, snapshot.class_ids, known)
            return joined(problem, snapshot.plan, missing)
    trees = dict(snapshot.plan.trees) if snapshot.plan else {}
    for name, stream in snapshot.deployment.streams.items():
        parents = trees[name].parents if name in trees else {}
        added = {site: stream.root for place, site in missing if place == name}
        trees[name] = Tree(name, stream.root, {**parents, **added})
    return Plan(trees)


def _placed(problem: Problem, plan: Plan, missing: Iterable[tuple[str, str]], terms: Terms) -> Plan:
    """The plan with each new member below the parent with which the constraints are missed least."""
    for stream, site in missing:
        tree = plan.trees[stream]
        if site not in tree.parents or tree.below(site):
            continue
        moved = [
            Plan({**plan.trees, stream: Tree(stream, tree.root, {**tree.parents, site: parent})})
            for parent in tree.members
            if parent != site
        ]
        plan = min([plan, *moved], key=lambda each: sum(terms.missed(problem, each)))
    return plan


def _problem(snapshot: Snapshot, plan: Plan, known: Comparisons | None, figures: Figures | None) -> Problem:
    problem = (figures or Figures()).problem(snapshot.deployment, snapshot.class_ids, known)
    return with_relays_of(problem, plan)


def _missing(snapshot: Snapshot) -> list[tuple[str, str]] | None:
    """Streams and sites that subscribe and are in no tree; None when there are none and every stream has a tree."""
    trees = snapshot.plan.trees if snapshot.plan else {}
    streams = snapshot.deployment.streams
    wanted = {(each.stream, each.site) for each in snapshot.deployment.subscriptions.values() if each.stream in streams}
    served = {(name, site) for name, tree in trees.items() for site in tree.parents}
    missing = wanted - served - {(name, stream.root) for name, stream in streams.items()}
    return sorted(missing) if missing or streams.keys() - trees.keys() else None
