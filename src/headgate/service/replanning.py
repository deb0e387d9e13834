"""Planning while running: what was measured replaces what was assumed, and a better plan replaces the one in force.

Every so often the plan in force is judged on the measured problem, and a search that pays for every member it moves
looks for a better one (`headgate.planning.replan`), from where it left off the last time. Now and then it is compared
with a plan from nothing. A plan is changed when the gain passes a threshold several times in a row and the last change
is long enough ago: measurements are noisy, and a change costs a hand-off at every member that moves. A change is a
revision of the catalog like any other, in force from the next micro-batch on, so nothing is lost by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from headgate.catalog import Catalog
from headgate.errors import HeadgateError
from headgate.fabric import Fabric
from headgate.model import Plan
from headgate.planning import Graph, PlanResult
from headgate.planning.covering import Comparisons
from headgate.planning.deployment import assumed_part, assumed_row_bytes
from headgate.planning.measured import Figures, Measured, cautious, measured_problem, with_relays_of
from headgate.planning.planner import result_of
from headgate.planning.replan import Effort, Replanned, replan
from headgate.service.observer import Observer
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


@dataclass(frozen=True, slots=True)
class Outlook:
    """The plan in force and the best that was found, both on the measured problem."""

    now: PlanResult
    best: Replanned

    @property
    def gain(self) -> float:
        """What the better plan would gain: the growth of the geometric mean, 1 where fewer qualities are zero."""
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
) -> Outlook:
    """Judge a plan by what was measured, and look for a better one near it, cautious where an upload is unknown.

    `candidate` is what was found before; with `anew` a plan from nothing is made too. `known` is how subscriptions
    compare, from one judgement to the next.
    """
    problem = measured_problem(snapshot.deployment, snapshot.class_ids, measured, known=known)
    problem = with_relays_of(problem, plan)
    graph = Graph.of(problem, plan)
    return Outlook(
        result_of(graph, "in force"), replan(cautious(graph), plan, seed, effort, candidate=candidate, anew=anew)
    )


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
    ) -> None:
        """`publish` puts a changed catalog in force. A plan is never changed when `fixed`, nor while it is `held`."""
        self._fabric = fabric
        self._catalog = catalog
        self._observer = observer
        self._publish = publish
        self._rules = rules
        self._fixed = fixed
        self._held = held
        self._confirmed = 0
        self._candidate: Plan | None = None
        self._known = Comparisons()
        self.figures = Figures()
        self._changed_s = time.monotonic()
        self.changes = 0
        self.judged = 0

    async def run(self) -> None:
        """Judge until cancelled."""
        while True:
            await asyncio.sleep(self._rules.every_s)
            with contextlib.suppress(HeadgateError):  # NATS or the catalog is away: the next judgement counts
                await self.look()

    async def look(self) -> Outlook | None:
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
        due = outlook.gain >= self._rules.gain and outlook.best.moves > 0
        self._confirmed = self._confirmed + 1 if due else 0
        self._candidate = outlook.best.plan
        rested = time.monotonic() - self._changed_s >= self._rules.rest_s
        document = self._document(snapshot, measured, outlook)
        worth_it = self._confirmed >= self._rules.confirm and rested and not (self._fixed or self._held())
        if worth_it and await asyncio.to_thread(self._put, outlook.best.plan, snapshot.revision):
            await self._publish()
            self.changes += 1
            self._confirmed = 0
            self._candidate = None
            self._changed_s = time.monotonic()
            self._observer.forget()
            document["state"] = "changed"
        await self._fabric.publish(
            self._fabric.logs.stats("planner", "_"), json.dumps({**document, "changes": self.changes}).encode()
        )
        return outlook

    def _put(self, plan: Plan, revision: int) -> bool:
        """Make a plan the catalog's, unless the catalog has changed since the revision that it was made for."""
        with self._catalog.edit("plan") as edit:
            unchanged = edit.revision == revision
            if unchanged:
                edit.set_plan(plan)
        return unchanged

    def _document(self, snapshot: Snapshot, measured: Measured, outlook: Outlook) -> dict[str, Any]:
        """Assumed, predicted and measured side by side."""
        deployment = snapshot.deployment
        streams = {
            name: {
                "rate_assumed": deployment.streams[name].rate_rows_per_s,
                "rate": seen.rate_rows_per_s,
                "row_bytes_assumed": assumed_row_bytes(deployment.streams[name]),
                "row_bytes": seen.row_bytes,
            }
            for name, seen in measured.streams.items()
        }
        subscriptions = {}
        for name, prediction in outlook.now.subscriptions.items():
            subscription = deployment.subscriptions[name]
            part = self.figures.parts.get(snapshot.class_ids[name], 0.0)
            got = self._observer.got(snapshot.subscription_ids[name])
            subscriptions[name] = {
                "selectivity_assumed": assumed_part(subscription, deployment.streams[subscription.stream]),
                "selectivity": part if subscription.stream in measured.streams else None,
                "drop_predicted": prediction.drop,
                "drop": None if got is None else got.drop,
                "delay_predicted_s": prediction.delay_s,
                "delay_s": None if got is None else got.delay_s,
                "rows": 0 if got is None else got.rows,
            }
        return {
            "time_ms": int(time.time() * 1000),
            "revision": snapshot.revision,
            "window_s": self._observer.seconds,
            "state": "confirming" if self._confirmed else "keeping",
            "fixed": self._fixed,
            "quality": outlook.now.metrics.geometric_mean,
            "quality_reachable": outlook.best.metrics.geometric_mean,
            "quality_anew": None if outlook.best.fresh is None else outlook.best.fresh.quality,
            "gain": outlook.gain,
            "moves": outlook.best.moves,
            "gain_per_move": outlook.gain_per_move,
            "streams": streams,
            "sites": {
                name: {"upload_bytes_per_s": found.upload_bytes_per_s, "shed": self._observer.shed(name)}
                for name, found in measured.sites.items()
            },
            "subscriptions": subscriptions,
        }
