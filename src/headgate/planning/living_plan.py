"""A plan that lives: joins, departures, changed filters, failed sites, changed bandwidths, with few moves each.

The problem lists everybody who may ever take part; who does is `active`. An event changes the graph where it must, then
looks for improvements, first around the place and then everywhere, that are worth their moves. When the quality has
fallen too far below the mark, the search is long. The mark is the best standing since the last long search or
judgement: every so many events a plan is made from nothing for the same moment, and where the living graph is too far
below that one, it searches again, or takes the new plan over with as few moves as that can be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headgate.model import Plan
from headgate.planning.evaluation import Metrics, measure
from headgate.planning.fresh_plan import Anew, GraphWorth, standing_of
from headgate.planning.graph import Graph, without_idle
from headgate.planning.interest import InterestPieces
from headgate.planning.kernel.repair import LOOSE, place_best, retune, tend
from headgate.planning.net import EXACT, LOG_ZERO, TOLERANCE, scalar_of
from headgate.planning.problem import Problem, ProblemError
from headgate.planning.search import Objective, Search, usual_steps
from headgate.planning.search.improve import wishes

COLD = 0.04  # where every search ends, in sums of weighted log qualities
PARTS = 40  # of a search with a clock, which is looked at after each


@dataclass(frozen=True, slots=True)
class EventWork:
    """How much work an event is worth: parents tried, trials around the place and everywhere, what a move must bring.

    That is `margin`, a gain in the sum of weighted log qualities for each member that gets another parent. `loss` is
    the part of the quality that may be lost against the mark. `steps` and `hot` are a long search from where the graph
    stands; `search` makes the plans from nothing, at the start and every `judge_every` events (0: never), without it in
    as many steps as `headgate plan` takes. With a `clock` every search of the graph ends after `budget_s` of it and
    a fortieth of its trials at the latest, and cools down by then.
    """

    tries: int = 12
    trials: int = 400
    wide: int = 2_000
    margin: float = 0.2
    loss: float = 0.05
    steps: int = 120_000
    hot: float = 0.5
    judge_every: int = 37
    search: Search | None = None
    budget_s: float = float("inf")
    clock: Callable[[], float] | None = None


@dataclass(frozen=True, slots=True)
class Happened:
    """What an event did: members with another parent, whether a long search was made, the metrics after it.

    `fresh` is the standing of the plan from nothing that the graph was judged by, if it was.
    """

    event: str
    moves: int
    replanned: bool
    metrics: Metrics
    fresh: GraphWorth | None = None


class Life:
    """A graph under events. Events name streams and sites of the problem; everybody active is always served."""

    def __init__(
        self,
        problem: Problem,
        active: Iterable[tuple[str, str]] | None = None,
        seed: int = 0,
        upkeep: EventWork | None = None,
        plan: Plan | None = None,
    ) -> None:
        """Everybody is planned for anew, or taken where a `plan` has them; who is not in it comes in as by a join."""
        self.upkeep = upkeep or EventWork()
        self.graph = Graph(problem)
        self._weights = self.graph.net.want["weight"].copy()
        self._state = np.array([2 * seed + 1], np.uint64)
        self._seed = seed
        self._members = np.arange(self.graph.streams, len(self.graph.net.node), dtype=np.int32)
        self._active = np.zeros(len(self.graph.net.node), np.bool_)
        self._relay = self.graph.layout.relay
        self._failed: dict[int, list[int]] = {}
        self._wish = wishes(self.graph, Objective())
        self._places = np.zeros(self.upkeep.tries, np.int32)
        wanted = self._members if active is None else np.array([self.graph.node(*name) for name in active], np.int32)
        self._set_active(self._members, False)
        self._set_active(wanted, True)
        self._anew, self._since = Anew(self.graph), 0
        if len(wanted):
            self.graph.assign(self._standing_by(self._fresh().parent_array if plan is None else self._parents_in(plan)))
        for node in wanted[self.graph.net.node["parent"][wanted] < 0]:  # not in the plan, or its parent came late
            self.enter(int(node))
        self.mark = standing_of(self.graph)

    def _parents_in(self, plan: Plan) -> npt.NDArray[np.int32]:
        """The parents of a plan made for others: who lost its parent goes to the nearest one above that is left."""
        parents, known = np.full(len(self.graph.net.node), -1, np.int32), self.graph.layout.nodes
        for name, tree in plan.trees.items():
            for child in tree.parents:
                above = tree.parents[child]
                while (name, above) not in known and above in tree.parents:
                    above = tree.parents[above]
                node = known.get((name, child))
                if node is not None and self._active[node]:
                    parents[node] = known.get((name, above), -1)
        return parents

    def _standing_by(self, parents: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Active relays that nobody uses hang on the roots, where a search finds them; that costs nobody anything."""
        if not self.graph.problem.physical:
            idle = self._active & self._relay & (parents < 0)
            parents[idle] = self.graph.net.node["stream"][idle]
        return parents

    def settle(self, plan: Plan) -> Happened:
        """Improve after a change that is no event of its own; moves are counted against a plan."""
        before = self._parents_in(plan)
        return self._after("settle", before, [int(node) for node in np.flatnonzero(before != self.graph.parent_array)])

    def resume(self, candidate: Plan, plan: Plan) -> bool:
        """Stand where an earlier search left off, if that is still worth its moves from a plan in force.

        So it is too when the graph as it stands is too far below it. Whom the candidate does not know stays in place.
        """
        homes, here, stood = self._parents_in(plan), self.graph.parent_array, standing_of(self.graph)
        before = self._worth(homes)
        there = self._parents_in(candidate)
        self.graph.assign(self._standing_by(np.where((there < 0) & self._active, here, there)))
        if self._worth(homes) > before or stood.lags(standing_of(self.graph), self.upkeep.loss):
            return True
        self.graph.assign(here)
        return False

    def _worth(self, homes: npt.NDArray[np.int32]) -> float:
        """What the graph is worth as one number, zero qualities far below any other, less the price of its moves."""
        zeros, score = scalar_of(self.graph.net, self._wish)
        return score - LOG_ZERO * zeros - self.upkeep.margin * self._moved(homes)

    def _moved(self, before: npt.NDArray[np.int32]) -> int:
        """How many nodes have another parent, come or go; relays that nobody uses are nowhere."""
        return int((without_idle(before, self._relay) != without_idle(self.graph.parent_array, self._relay)).sum())

    @property
    def plan(self) -> Plan:
        """The plan as it stands."""
        return self.graph.plan()

    @property
    def active(self) -> list[tuple[str, str]]:
        """Who takes part, by stream and site."""
        return [self.graph.name(int(node)) for node in np.flatnonzero(self._active)]

    def join(self, stream: str, site: str) -> Happened:
        """A member joins; of its tree the few most promising parents are tried and the best is taken."""
        node = self.graph.node(stream, site)
        if self._active[node]:
            raise ProblemError(f"site {site!r} is already a member of stream {stream!r}")
        before = self.graph.parent_array
        self.enter(node)
        return self._after(f"join {stream} {site}", before, [node])

    def leave(self, stream: str, site: str) -> Happened:
        """A member leaves; those it served find other parents."""
        node = self.graph.node(stream, site)
        before = self.graph.parent_array
        orphans = self._exit(node)
        return self._after(f"leave {stream} {site}", before, orphans)

    def change(self, stream: str, site: str, interest: InterestPieces) -> Happened:
        """A member's filter changes; links shrink or expand, and it moves if that is worth it."""
        node, net = self.graph.node(stream, site), self.graph.net
        before = self.graph.parent_array
        split = net.weight_table.shape[1]
        text = interest.rows.to_bytes(split, "little") + interest.columns.to_bytes(net.own.shape[1] - split, "little")
        net.own[node] = np.frombuffer(text, np.uint8)
        self.graph.evaluate()
        place_best(net, self._state, node, self._places, self._wish, self.upkeep.margin)
        return self._after(f"change {stream} {site}", before, [node])

    def fail(self, site: str) -> Happened:
        """A site fails: it leaves all trees, and those it served find other parents. A root cannot fail."""
        index = self.graph.problem.site_index[site]
        nodes = self._nodes_of(index)
        if any(node < self.graph.streams for node in nodes):
            raise ProblemError(f"site {site!r} is the root of a stream", hint="a stream whose root fails has no plan")
        before = self.graph.parent_array
        gone = [node for node in nodes if self._active[node]]
        orphans = [orphan for node in gone for orphan in self._exit(node)]
        self._failed[index] = gone
        return self._after(f"fail {site}", before, orphans)

    def restore(self, site: str) -> Happened:
        """A failed site comes back with the members it had."""
        before = self.graph.parent_array
        nodes = self._failed.pop(self.graph.problem.site_index[site], [])
        for node in nodes:
            self.enter(node)
        return self._after(f"restore {site}", before, nodes)

    def bandwidth(self, site: str, upload_bytes_per_s: float, download_bytes_per_s: float) -> Happened:
        """A site's bandwidth changes, or is measured for the first time."""
        index, n = self.graph.problem.site_index[site], len(self.graph.net.place)
        before = self.graph.parent_array
        net = self.graph.net
        net.place["share"][index] = 1.0 / upload_bytes_per_s if upload_bytes_per_s > 0 else 0.0
        retune(net, index, upload_bytes_per_s)
        retune(net, n + index, download_bytes_per_s)
        self.graph.evaluate()
        served = [node for node in self._members if net.node["parent"][node] in set(self._nodes_of(index))]
        return self._after(f"bandwidth {site}", before, [int(node) for node in served])

    def _nodes_of(self, index: int) -> list[int]:
        place = self.graph.net.place[index]
        return [int(node) for node in self.graph.net.site_nodes[place["first"] : place["last"]]]

    def _set_active(self, nodes: npt.NDArray[np.int32] | list[int], active: bool) -> None:
        net = self.graph.net
        for node in nodes:
            self._active[node] = active
            wants = slice(int(net.node["want_first"][node]), int(net.node["want_last"][node]))
            net.want["weight"][wants] = self._weights[wants] if active else 0.0

    def enter(self, node: int) -> None:
        """Let a node in under the best of the most promising parents, without any upkeep after it."""
        self._set_active([node], True)
        place_best(self.graph.net, self._state, node, self._places, self._wish, -np.inf)

    def adopt(self, parents: npt.NDArray[np.int32], leaves_out: Iterable[int] = ()) -> None:
        """Take over a whole graph of the problem, without some of its members; their children go to their parents."""
        parents, out = parents.copy(), set(leaves_out)
        for node in out:
            parents[parents == node] = parents[node]
        parents[list(out)] = -1
        self._set_active(np.flatnonzero(parents >= 0).astype(np.int32), True)
        self._set_active(list(out), False)
        self.graph.assign(parents)
        self.mark = standing_of(self.graph)

    def _exit(self, node: int) -> list[int]:
        """Take a node out; its children go to its parent, and once it is out find better ones, the largest first."""
        net = self.graph.net
        orphans, child = [], int(net.node["first"][node])
        while child >= 0:
            orphans.append(child)
            child = int(net.node["after"][child])
        parent = int(net.node["parent"][node])
        for orphan in orphans:
            self.graph.move(orphan, parent)
        self.graph.move(node, -1)
        self._set_active([node], False)
        for orphan in sorted(orphans, key=lambda found: -net.node["size"][found]):
            place_best(net, self._state, orphan, self._places, self._wish, self.upkeep.margin)
        return orphans

    def _after(self, event: str, before: npt.NDArray[np.int32], near: list[int]) -> Happened:
        """Look for what is worth a move, search long when too much is lost, judge when it is time; count the moves."""
        upkeep, active = self.upkeep, np.flatnonzero(self._active).astype(np.int32)
        self.graph.evaluate()
        self._tend(self._around(near, active), before, upkeep.trials, 0.0)
        self._tend(active, before, upkeep.wide, 0.2 * upkeep.hot)
        now, replanned, fresh = standing_of(self.graph), False, None
        if now.lags(self.mark, upkeep.loss):
            self._tend(active, before, upkeep.steps, upkeep.hot)
            now = self.mark = standing_of(self.graph)
            replanned = True
        self._since += 1
        if 0 < upkeep.judge_every <= self._since and len(active):
            anew = self._fresh()
            self._since, fresh = 0, standing_of(anew)
            if now.lags(fresh, 0.0):
                self._catch_up(anew, fresh, active, before)
                now, replanned = standing_of(self.graph), True
            self.mark = fresh if now.lags(fresh, 0.0) else now
        elif not now.lags(self.mark, 0.0):
            self.mark = now
        return Happened(event, self._moved(before), replanned, measure(self.graph), fresh)

    def _catch_up(
        self, anew: Graph, fresh: GraphWorth, active: npt.NDArray[np.int32], before: npt.NDArray[np.int32]
    ) -> None:
        """Come within the loss of a plan from nothing: from where the graph stands, else from that plan, else by it."""
        self._tend(active, before, self.upkeep.steps, self.upkeep.hot)
        for steps in (self.upkeep.steps, 0):
            outside = (anew.net.node["parent"][active] < 0) & ~self._relay[active]
            if outside.any() or not standing_of(self.graph).lags(fresh, self.upkeep.loss):
                return
            self.graph.assign(anew.parent_array)
            self._tend(active, before, steps, COLD)

    def _tend(self, nodes: npt.NDArray[np.int32], homes: npt.NDArray[np.int32], trials: int, hot: float) -> None:
        """Search among some nodes for moves that are worth it, against the parents that they had before the event."""
        if not (len(nodes) and trials):
            return
        net, upkeep, part = self.graph.net, self.upkeep, 0.0
        clock, chunk = upkeep.clock, trials if upkeep.clock is None else -(-trials // PARTS)
        began, done = 0.0 if clock is None else clock(), 0
        best, kept = self._worth(homes), self.graph.parent_array
        while part < 1.0:
            parents, following = self.graph.parent_array, min(1.0, part + chunk / trials)
            heat = np.array([hot * (COLD / hot) ** at if hot else 0.0 for at in (part, following)])
            net.rule[TOLERANCE] = LOOSE
            tend(net, self._state, nodes, homes, chunk, heat, upkeep.margin, self._wish, parents)
            net.rule[TOLERANCE] = EXACT
            done, stands = done + chunk, self.graph.parent_array
            part = max(done / trials, 0.0 if clock is None else (clock() - began) / upkeep.budget_s)
            self.graph.assign(parents)
            if (value := self._worth(homes)) > best:
                best, kept = value, parents
            if part < 1.0:
                self.graph.assign(stands)
        self.graph.assign(kept)

    def _around(self, near: list[int], active: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Active nodes at or under the sites that an event touched."""
        net = self.graph.net
        sites = {int(net.node["site"][node]) for node in near}
        sites |= {int(net.node["site"][net.node["parent"][node]]) for node in near if net.node["parent"][node] >= 0}
        parents = net.node["parent"][active]
        touched = np.isin(net.node["site"][active], list(sites)) | np.isin(net.node["site"][parents], list(sites))
        return active[touched] if touched.any() else active

    def _fresh(self) -> Graph:
        """A plan from nothing for the members, filters and bandwidths of this moment."""
        self._seed += 1
        active = np.flatnonzero(self._active).astype(np.int32)
        return self._anew.plan(active, self._seed, self.upkeep.search or Search(steps=usual_steps(len(active))))
