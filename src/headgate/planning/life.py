"""A plan that lives: joins, departures, changed filters, failed sites, changed bandwidths, with few moves each.

The problem lists everybody who may ever take part; who does is `active`. An event changes the graph where it must, then
looks for improvements around the place that are worth a move. When the quality has fallen too far below that of the
last full plan, the whole is planned again from where it stands, and what that gives is the new mark.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headgate.model import Plan
from headgate.planning.evaluation import Metrics, measure
from headgate.planning.graph import Graph
from headgate.planning.interest import Pieces
from headgate.planning.kernel.repair import LOOSE, place_best, repair, retune
from headgate.planning.net import EXACT, TOLERANCE
from headgate.planning.problem import Problem, ProblemError
from headgate.planning.search import Objective, Search, improve
from headgate.planning.search.improve import wishes


@dataclass(frozen=True, slots=True)
class Upkeep:
    """How much work an event is worth: parents tried, trials of repair, the gain in log quality that a move must bring.

    `loss` is the part of the quality of the last full plan that may be lost before everything is planned again.
    """

    tries: int = 12
    trials: int = 400
    margin: float = 0.02
    loss: float = 0.05
    search: Search = field(default_factory=lambda: Search(steps=60_000, hot=0.2))


@dataclass(frozen=True, slots=True)
class Happened:
    """What an event did: members with another parent, whether everything was planned again, the metrics after it."""

    event: str
    moves: int
    replanned: bool
    metrics: Metrics


class Life:
    """A graph under events. Events name streams and sites of the problem; everybody active is always served."""

    def __init__(
        self,
        problem: Problem,
        active: Iterable[tuple[str, str]] | None = None,
        seed: int = 0,
        upkeep: Upkeep | None = None,
    ) -> None:
        self.upkeep = upkeep or Upkeep()
        self.graph = Graph(problem)
        self._weights = self.graph.net.want["weight"].copy()
        self._state = np.array([2 * seed + 1], np.uint64)
        self._seed = seed
        self._members = np.arange(self.graph.streams, len(self.graph.net.node), dtype=np.int32)
        self._active = np.zeros(len(self.graph.net.node), np.bool_)
        self._failed: dict[int, list[int]] = {}
        self._wish = wishes(self.graph, Objective())
        self._places = np.zeros(self.upkeep.tries, np.int32)
        wanted = self._members if active is None else np.array([self.graph.node(*name) for name in active], np.int32)
        self._set_active(self._members, False)
        order = np.random.default_rng([seed, 5]).permutation(wanted)
        for node in order:
            self.enter(int(node))
        self.mark = self._replan()

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

    def change(self, stream: str, site: str, interest: Pieces) -> Happened:
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
        self.mark = measure(self.graph).geometric_mean

    def _exit(self, node: int) -> list[int]:
        """Take a node out; its children find other parents, the largest first."""
        net = self.graph.net
        orphans, child = [], int(net.node["first"][node])
        while child >= 0:
            orphans.append(child)
            child = int(net.node["after"][child])
        parent = int(net.node["parent"][node])
        for orphan in sorted(orphans, key=lambda found: -net.node["size"][found]):
            self.graph.move(orphan, parent)
            place_best(net, self._state, orphan, self._places, self._wish, self.upkeep.margin)
        self.graph.move(node, -1)
        self._set_active([node], False)
        return orphans

    def _after(self, event: str, before: npt.NDArray[np.int32], near: list[int]) -> Happened:
        """Repair around the place of an event, plan again when too much is lost, and count the moves."""
        net = self.graph.net
        self.graph.evaluate()
        active = np.flatnonzero(self._active).astype(np.int32)
        if len(active):
            net.rule[TOLERANCE] = LOOSE
            for nodes in (self._around(near, active), active):
                repair(net, self._state, nodes, self.upkeep.trials, self.upkeep.margin, self._wish)
            net.rule[TOLERANCE] = EXACT
        self.graph.evaluate()
        metrics, replanned = measure(self.graph), False
        if metrics.geometric_mean < (1.0 - self.upkeep.loss) * self.mark:
            self.mark, replanned = self._replan(), True
            metrics = measure(self.graph)
        self.mark = max(self.mark, metrics.geometric_mean)
        moved = int((before != self.graph.parent_array).sum())
        return Happened(event, moved, replanned, metrics)

    def _around(self, near: list[int], active: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Active nodes at or under the sites that an event touched."""
        net = self.graph.net
        sites = {int(net.node["site"][node]) for node in near}
        sites |= {int(net.node["site"][net.node["parent"][node]]) for node in near if net.node["parent"][node] >= 0}
        parents = net.node["parent"][active]
        touched = np.isin(net.node["site"][active], list(sites)) | np.isin(net.node["site"][parents], list(sites))
        return active[touched] if touched.any() else active

    def _replan(self) -> float:
        """Search from where the graph stands, over the active members; the quality that it reaches."""
        self._seed += 1
        active = np.flatnonzero(self._active).astype(np.int32)
        improve(self.graph, self._seed, self.upkeep.search, active)
        return measure(self.graph).geometric_mean
