"""The join protocol on the live system: where a site of unknown bandwidth sheds, those it serves look for others.

A bandwidth that nobody declared counts as unlimited until the site sheds. Then one of the members that it serves joins
again by Algorithm 2 (`headgate.planning.protocol`): the control point names a temporary parent, the catalog's next
revision assigns it, and after settling the relays' own counters say whether that parent sheds. It is confirmed, or the
next candidate is tried; slack is learned from what was seen. A member moves with everybody below it. Drops, delays and
shedding are the live system's, and so are the hops: what the two ends of a link in use have measured (`hops`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final, TypeVar

from headgate.catalog import Catalog
from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import Fabric
from headgate.model import Plan, Tree
from headgate.planning.measured import measured_problem, with_relays_of
from headgate.planning.problem import Member, Problem
from headgate.planning.protocol import ControlPoint, Request
from headgate.protocol.reports import Join, JoinsReport
from headgate.service.hop_delays import Hops
from headgate.service.observer import SHEDS, Observer
from headgate.tuning.terms import Terms, worse
from headgate.wire.snapshot import Snapshot

T = TypeVar("T")
_POLL_S: Final = 0.1
_REMEMBERED: Final = 100


class StoppedError(HeadgateError):
    """The deployment stops while a join is under way."""


@dataclass(frozen=True, slots=True)
class SettledView:
    """What was seen after settling: by member the part of its rows and its delay, by site what it sheds, hops."""

    kept: dict[tuple[str, str], float] = field(default_factory=dict)
    delay_s: dict[tuple[str, str], float] = field(default_factory=dict)
    shed: dict[str, float] = field(default_factory=dict)
    hops: Hops = field(default_factory=Hops)


class LiveFeedback:
    """The running system as a control point sees it (`headgate.planning.protocol.Feedback`).

    Its methods are called from a thread of their own and wait for the event loop. A withdrawn assignment stays until
    the next one replaces it, which always comes, and what was seen before it counts again.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        catalog: Catalog,
        observer: Observer,
        publish: Callable[[], Awaitable[Snapshot]],
        settle_s: float,
        allowed: Callable[[Plan, Plan], bool],
    ) -> None:
        """A plan that is not `allowed` after the one before it never comes into force: its parent counts as full."""
        self._catalog = catalog
        self._observer = observer
        self._publish = publish
        self._settle_s = settle_s
        self._loop = asyncio.get_running_loop()
        self._stop = Event()
        self._view = self._before = self.look(snapshot)
        self._allowed = allowed
        self.refused: set[str] = set()
        """Parents that were not tried, because a constraint would have been missed."""
        self.assignments = 0

    def stop(self) -> None:
        """Let whoever waits go."""
        self._stop.set()

    def look(self, snapshot: Snapshot) -> SettledView:
        """What is seen now of a deployment."""
        found = SettledView(
            shed={site: self._observer.shed(site) for site in snapshot.deployment.sites},
            hops=self._observer.hops(snapshot.deployment.links),
        )
        rows: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
        for name, each in snapshot.deployment.subscriptions.items():
            got = self._observer.got(snapshot.subscription_ids[name])
            if got is not None:
                rows.setdefault((each.stream, each.site), []).append((got.rows, got.drop, got.delay_s or 0.0))
        for key, lines in rows.items():
            total = sum(count for count, _, _ in lines)
            found.kept[key] = 1.0 - sum(count * drop for count, drop, _ in lines) / total
            found.delay_s[key] = sum(count * delay for count, _, delay in lines) / total
        return found

    def assign(self, stream: str, child: str, parent: str) -> None:
        """Let the parent serve the child from the next micro-batch on, wait, and look."""
        self._before = self._view
        if self._call(self._assign(stream, child, parent)):
            self._view = self.look(self._catalog.snapshot())
        else:
            self.refused.add(parent)

    async def _assign(self, stream: str, child: str, parent: str) -> bool:
        self.assignments += 1
        made = await asyncio.to_thread(self._planned, stream, child, parent)
        if made is None:
            return False
        if made:
            await self._publish()
            # What waited under the old plan is shed or sent first; only then what is seen is the new one's.
            await asyncio.sleep(self._settle_s)
        self._observer.forget()
        await self._observer.filled(self._settle_s)
        return True

    def _planned(self, stream: str, child: str, parent: str) -> bool | None:
        """Put an assignment into the catalog's plan; False when it is there, None when it is not allowed."""
        with self._catalog.edit(f"{parent} serves {child}") as edit:
            plan = edit.snapshot().plan
            assert plan is not None
            tree = plan.trees[stream]
            if tree.parents.get(child) == parent:
                return False
            moved = Plan({**plan.trees, stream: Tree(stream, tree.root, {**tree.parents, child: parent})})
            if not self._allowed(plan, moved):
                return None
            edit.set_plan(moved)
        return True

    def withdraw(self, stream: str, child: str) -> None:
        """Give up a temporary parent."""
        del stream, child
        self._view = self._before

    def kept(self, stream: str, site: str) -> float:
        """The part of its rows that a member gets; a member that settled nothing yet has lost nothing."""
        return self._view.kept.get((stream, site), 1.0)

    def delay_s(self, stream: str, site: str) -> float:
        """The mean delay of a member from the root's commit."""
        return self._view.delay_s.get((stream, site), 0.0)

    def shed(self, site: str) -> float:
        """The part that a site sheds; a single row that a queue had no room for is no sign of a limit."""
        if site in self.refused:
            return 1.0
        seen = self._view.shed.get(site, 0.0)
        return seen if seen > SHEDS else 0.0

    def hop_s(self, one: str, other: str) -> float:
        """The delay between two sites, as measured where one serves the other."""
        return self._view.hops.between(one, other)

    def mean_hop_s(self) -> float:
        """The mean delay between two sites."""
        return self._view.hops.mean(list(self._view.shed))

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        while True:
            try:
                return waiting.result(_POLL_S)
            except NotYet:
                if self._stop.is_set():
                    waiting.cancel()
                    raise StoppedError("the deployment stops") from None


class Joiner:
    """Watches sites of unknown bandwidth, and lets members join again where one sheds."""

    def __init__(
        self,
        fabric: Fabric,
        catalog: Catalog,
        observer: Observer,
        publish: Callable[[], Awaitable[Snapshot]],
        settle_s: float = 10.0,
    ) -> None:
        self._fabric = fabric
        self._catalog = catalog
        self._observer = observer
        self._publish = publish
        self._settle_s = settle_s
        self._slack: dict[str, float] = {}
        self._tried: dict[tuple[str, str], float] = {}
        self.joins: deque[Join] = deque(maxlen=_REMEMBERED)
        self.busy = False

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(self._settle_s / 2)
            with noted(SERVICE, "no site was judged for joining again", HeadgateError, level=logging.WARNING):
                await self.look()

    async def look(self) -> None:
        """One member of one shedding site joins again, if there is any."""
        if self._observer.seconds < self._settle_s:
            return
        snapshot = await asyncio.to_thread(self._catalog.snapshot)
        if snapshot.plan is None or snapshot.deployment.tuned:
            return
        for site, found in snapshot.deployment.sites.items():
            if found.upload_bytes_per_s is None and self._observer.shed(site) > SHEDS:
                self._slack[site] = 0.0
                choice = self._choice(snapshot.plan, site)
                if choice is not None:
                    await self._join(snapshot, snapshot.plan, *choice)
                    return

    def _choice(self, plan: Plan, site: str) -> tuple[str, str] | None:
        """A member that the site serves and that has somebody beside it to go to, the one tried longest ago."""
        served = [
            (name, child)
            for name, tree in plan.trees.items()
            for child, parent in tree.parents.items()
            if parent == site and len(tree.parents) > len(tree.below(child)) + 1
        ]
        rested = [each for each in served if time.monotonic() - self._tried.get(each, -1e9) > 6 * self._settle_s]
        return min(rested, key=lambda each: self._tried.get(each, -1e9), default=None)

    async def _join(self, snapshot: Snapshot, plan: Plan, stream: str, site: str) -> None:
        self._tried[stream, site] = time.monotonic()
        measured = await self._observer.measured_aside(snapshot)
        problem = await asyncio.to_thread(measured_problem, snapshot.deployment, snapshot.class_ids, measured)
        if stream not in measured.streams or all(
            (each.stream, each.site) != (stream, site) for each in problem.members
        ):
            return  # nothing was seen of the stream, or the site only relays
        tree = plan.trees[stream]
        terms = Terms.of(snapshot.deployment)

        def allowed(before: Plan, after: Plan) -> bool:
            return not worse(terms.missed(problem, after), terms.missed(problem, before))

        problem, learned = with_relays_of(problem, plan), dict(self._slack)
        feedback = LiveFeedback(snapshot, self._catalog, self._observer, self._publish, self._settle_s, allowed)
        point, request = control_point(problem, plan, stream, site, feedback, self._slack)
        self.busy = True
        try:
            _, rounds = await asyncio.to_thread(point.join_qasd, request)
        finally:
            feedback.stop()
            self.busy = False
        for refused in feedback.refused:  # nothing was learned of a parent that was not tried
            self._slack.pop(refused, None)
            self._slack.update({refused: learned[refused]} if refused in learned else {})
        in_force = self._catalog.snapshot().plan
        parent = tree.parents[site] if in_force is None else in_force.trees[stream].parents[site]
        self._observer.forget()
        self.joins.append(
            Join(
                time_ms=int(time.time() * 1000),
                stream=stream,
                site=site,
                before=tree.parents[site],
                after=parent,
                rounds=rounds,
                refused=sorted(feedback.refused),
                hop_s=round(feedback.hop_s(parent, site), 6),
            )
        )
        report = JoinsReport(joins=list(self.joins))
        await self._fabric.publish(self._fabric.logs.stats("joins", "_"), report.encode())


def control_point(
    problem: Problem, plan: Plan, stream: str, site: str, feedback: LiveFeedback, slack: dict[str, float]
) -> tuple[ControlPoint, Request]:
    """The control point of a stream with everybody who is served, but for one member, who asks with all below it."""
    members: dict[str, Member] = {each.site: each for each in problem.members if each.stream == stream}
    flow = next(each for each in problem.flows if each.name == stream)
    tree = plan.trees[stream]
    below = tree.below(site)
    point = ControlPoint((flow,), feedback, feedback.mean_hop_s(), slack)
    for other in tree.members[1:]:
        if other != site and other not in below and other in members:
            mine = members[other]
            parent = tree.parents[other]
            while parent != tree.root and parent not in members:
                parent = tree.parents[parent]
            point.adopt(Request(stream, other, mine.interest, mine.wants, mine.bulk), parent)
    interest = members[site].interest
    for other in below:
        if other in members:
            interest = interest.merge(members[other].interest)
    return point, Request(stream, site, interest, members[site].wants, members[site].bulk)
