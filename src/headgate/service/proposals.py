"""Plans that wait for an operator: proposed by the planner or on request, approved, rejected, and what was in force.

There is one proposal at a time, stored in the state log so that it survives a restart. With the option `replan_approve`
of a deployment the planner proposes what it would otherwise put in force itself. The history of plans is that of the
catalog: as many revisions as it keeps.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from headgate.catalog import Catalog, Edit
from headgate.errors import HeadgateError
from headgate.fabric import Fabric
from headgate.model import Plan
from headgate.planning.difference import difference, parent_changes
from headgate.planning.document import parse_plan, plan_document
from headgate.protocol.reports import (
    ForeseenChange,
    MovedMember,
    PlanChangesReport,
    PlannerReport,
    ProposalReport,
    TuningReport,
)
from headgate.service.clerk import Clerk
from headgate.service.proposing import granted, measured_sizes, propose, result_document
from headgate.service.reports import read_reports, shown
from headgate.service.requests import Handler, Request, text_of
from headgate.service.reshaping import MakeChange
from headgate.wire.snapshot import Snapshot

APPROVE = "replan_approve"
"""The option of a deployment by which plans are changed only when an operator approves."""
_MOST_HISTORY = 200


class PlanError(HeadgateError):
    """A proposed plan that is not there, or does not fit any more."""

    usual_kind = "conflict"


async def read_proposal(fabric: Fabric) -> ProposalReport | None:
    """The last proposal, None where there was none."""
    return (await read_reports(fabric, ProposalReport)).get("_")


class Proposals:
    """Keeps the proposal of one deployment, and answers requests about plans."""

    def __init__(self, fabric: Fabric, clerk: Clerk, current: Callable[[], Snapshot], make: MakeChange) -> None:
        self._fabric = fabric
        self._clerk = clerk
        self._current = current
        self._make = make
        self._turn = asyncio.Lock()
        self._foreseeing = asyncio.Lock()
        self.approved: Callable[[], Awaitable[None]] | None = None
        """Called after an approved plan came into force."""

    @property
    def verbs(self) -> dict[str, Handler]:
        """Requests that change something."""
        return {"plan-propose": self._propose, "plan-approve": self._approve, "plan-reject": self._reject}

    @property
    def reports(self) -> dict[str, Handler]:
        """Requests that change nothing."""
        return {"plan-history": self._history}

    async def offer(self, plan: Plan, revision: int, by: str, figures: Mapping[str, float | None]) -> ProposalReport:
        """Propose a plan for the revision that it was made for; one that waits is replaced.

        The same plan is not proposed again after it was rejected.
        """
        before = self._current().plan or Plan({})
        known = await read_proposal(self._fabric)
        document = plan_document(plan)
        if known is not None and known.state in ("pending", "rejected") and known.plan == document and by == "planner":
            return known
        changed = moved(before, plan)
        report = ProposalReport(
            id=uuid.uuid4().hex[:12],
            time_ms=int(time.time() * 1000),
            state="pending",
            by=by,
            revision=revision,
            plan=document,
            steps=[str(step) for step in difference(before, plan)],
            moves=len(changed),
            moved=changed,
            **figures,
        )
        await self._store(report)
        return report

    async def foresee(self, revision: int, by: str, before: float | None, after: float | None) -> None:
        """Remember what quality a change of the plan was to bring, for the history of plans."""
        change = ForeseenChange(revision=revision, by=by, quality_before=before, quality_after=after)
        async with self._foreseeing:
            known = (await read_reports(self._fabric, PlanChangesReport)).get("_")
            changes = [*([] if known is None else known.changes), change][-_MOST_HISTORY:]
            report = PlanChangesReport(time_ms=int(time.time() * 1000), changes=changes)
            await self._fabric.publish(self._fabric.logs.stats("plan-changes", "_"), report.encode())

    def _check_owner(self) -> None:
        """Refuse plans of the central planner where the tuner owns the plan: two owners would undo each other."""
        if self._current().deployment.tuned:
            raise PlanError(
                "the tuner owns the plan of this deployment, so no other plan is put in force",
                hint="see `headgate tune --live`; `options: {planner: central}` gives the plan back to the planner",
            )

    async def _store(self, report: ProposalReport) -> None:
        await self._fabric.publish(self._fabric.logs.stats("proposal", "_"), report.encode())

    async def _propose(self, request: Request) -> dict[str, Any]:
        """Make a plan by an algorithm (`algorithm`) with what was measured, and propose it."""
        self._check_owner()
        algorithm = text_of(request, "algorithm") if request.get("algorithm") is not None else "search"
        async with self._turn:
            snapshot = self._current()
            planner = (await read_reports(self._fabric, PlannerReport)).get("_")
            sizes = measured_sizes(shown(planner))
            now = await asyncio.to_thread(granted, snapshot, sizes)
            deployment = replace(snapshot.deployment, plan=None)
            found = await asyncio.to_thread(
                propose, deployment, algorithm.lower(), "quality,bandwidth,fairness", 0, sizes
            )
            quality = None if now is None else now.metrics.geometric_mean
            figures = {"quality": quality, "quality_proposed": found.metrics.geometric_mean, "gain": None}
            report = await self.offer(found.plan, snapshot.revision, str(request.get("operator", "operator")), figures)
        return {"proposal": shown(report), "after": result_document(found)}

    async def _pending(self, request: Request) -> ProposalReport:
        wanted, known = text_of(request, "proposal"), await read_proposal(self._fabric)
        if known is None or known.id != wanted:
            raise PlanError(f"no proposal {wanted[:60]!r}", hint="see `headgate plans proposed`", kind="unknown")
        if known.state != "pending":
            raise PlanError(f"proposal {wanted} was {known.state}", hint="propose a plan with `headgate plans propose`")
        return known

    async def _approve(self, request: Request) -> dict[str, Any]:
        """Put the proposal of an id (`proposal`) in force."""
        self._check_owner()
        async with self._turn:
            known = await self._pending(request)
            plan = parse_plan(known.plan)

            def change(edit: Edit, before: Snapshot) -> dict[str, Any]:
                lost = unserved(plan, before)
                if lost:
                    raise PlanError(
                        f"proposal {known.id} was made for revision {known.revision} and leaves out {', '.join(lost)}",
                        hint="propose a plan anew",
                    )
                edit.set_plan(plan)
                return {"steps": [str(step) for step in difference(before.plan or Plan({}), plan)]}

            answer = await self._make(f"plan {known.id} approved", request, change)
            await self._store(msgspec.structs.replace(known, state="approved"))
            await self.foresee(answer["revision"], known.by, known.quality, known.quality_proposed)
            if self.approved is not None:
                await self.approved()
        return {"proposal": known.id, **answer}

    async def _reject(self, request: Request) -> dict[str, Any]:
        """Say no to the proposal of an id (`proposal`)."""
        async with self._turn:
            known = await self._pending(request)
            await self._store(msgspec.structs.replace(known, state="rejected"))
        return {"proposal": known.id, "state": "rejected"}

    async def _history(self, request: Request) -> dict[str, Any]:
        """The plans that were in force, newest first, at most `limit` of them, each with who got another parent.

        Of those that the planner made or an operator approved it says what quality was predicted with the plan before
        and after; of those of the live tuner, what its objective cost and was predicted and measured to cost.
        """
        given = request.get("limit", 50)
        limit = min(max(given if isinstance(given, int) else 50, 1), _MOST_HISTORY)

        def work(catalog: Catalog) -> list[dict[str, Any]]:
            return [
                {
                    "revision": each.revision,
                    "time": each.time,
                    "what": each.what,
                    "moved": msgspec.to_builtins(moved(each.before, each.after)),
                    "steps": [str(step) for step in difference(each.before, each.after)],
                    "plan": plan_document(each.after),
                }
                for each in catalog.plans(limit)
            ]

        plans, foreseen, tuned = await self._clerk.run(work), await self._foreseen(), await self._tuned()
        return {
            "plans": [
                {
                    **each,
                    "moves": len(each["moved"]),
                    **foreseen.get(each["revision"], _UNFORESEEN),
                    "tuned": tuned.get(each["revision"]),
                }
                for each in plans
            ]
        }

    async def _foreseen(self) -> dict[int, dict[str, Any]]:
        """What was predicted of changes of the plan, by revision."""
        known = (await read_reports(self._fabric, PlanChangesReport)).get("_")
        changes = [] if known is None else known.changes
        return {
            each.revision: {"by": each.by, "quality": each.quality_before, "quality_after": each.quality_after}
            for each in changes
        }

    async def _tuned(self) -> dict[int, dict[str, Any]]:
        """What the live tuner's objective cost before a change, and was predicted and measured to cost."""
        known = (await read_reports(self._fabric, TuningReport)).get("_")
        return {
            step.revision: {
                "objective": known.objective,
                "transformation": step.transformation,
                "cost": step.cost_before,
                "cost_predicted": step.predicted_cost,
                "cost_measured": step.measured_cost,
            }
            for step in ([] if known is None else known.steps)
            if known is not None and step.state == "in force"
        }


_UNFORESEEN: Final = {"by": None, "quality": None, "quality_after": None}


def moved(before: Plan, after: Plan) -> list[MovedMember]:
    """Who gets another parent from one plan to another."""
    return [
        MovedMember(stream=each.stream, site=each.site, before=each.before, after=each.after)
        for each in parent_changes(before, after)
    ]


def unserved(plan: Plan, snapshot: Snapshot) -> list[str]:
    """The sites that subscribe and that a plan does not serve, each with its stream."""
    missing = set()
    for each in snapshot.deployment.subscriptions.values():
        tree, root = plan.trees.get(each.stream), snapshot.deployment.streams[each.stream].root
        if each.site != root and (tree is None or each.site not in tree.parents):
            missing.add(f"{each.site} for {each.stream}")
    return sorted(missing)
