"""The model as a network that gives feedback, in plain NumPy: the second opinion on the kernels, and their baseline.

Whole-array sweeps of the drop fixed point after every assignment. Slower by orders of magnitude and independent of the
compiled code; `construct_slowly` builds the paper's graphs with it through the join protocol.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from headgate.planning.graph import Graph
from headgate.planning.interest import InterestPieces
from headgate.planning.problem import Member, Problem, tree_members
from headgate.planning.protocol import ControlPoint, Request


class ModelNetwork:
    """A network that behaves as section 4.2 says. Members are added by `assign` and settle at once."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._site = problem.site_index
        self._interest = {(m.stream, m.site): m.interest for m in problem.members}
        self._bulk = {(m.stream, m.site): m.bulk for m in problem.members}
        inf = float("inf")
        self._up = np.array([inf if s.upload_bytes_per_s is None else s.upload_bytes_per_s for s in problem.sites])
        self._down = np.array(
            [inf if s.download_bytes_per_s is None else s.download_bytes_per_s for s in problem.sites]
        )
        self._rate = {flow.name: flow.rate_rows_per_s for flow in problem.flows}
        self._index: dict[tuple[str, str], int] = {}
        self._sites: list[int] = []
        self._parent: list[int] = []
        self._link: list[InterestPieces] = []
        self._depth: list[int] = []
        self._lag: list[float] = []
        self._size: list[float] = []
        self._scale: list[float] = []
        for flow in problem.flows:
            self._add(flow.name, flow.root, -1, flow.universe.everything)
        self._kept = np.ones(len(self._sites))
        self._passing = np.ones(len(problem.sites))
        self._saved: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None

    def _add(self, stream: str, site: str, parent: int, interest: InterestPieces) -> None:
        self._index[stream, site] = len(self._sites)
        self._sites.append(self._site[site])
        self._parent.append(parent)
        self._link.append(interest)
        self._depth.append(0 if parent < 0 else self._depth[parent] + 1)
        self._scale.append(self._rate[stream] * self._bulk.get((stream, site), 1.0))
        self._size.append(0.0 if parent < 0 else self._scale[-1] * interest.size)
        lag = 0.0
        if parent >= 0:
            upper = self._sites[parent]
            lag = self._lag[parent] + self._problem.sites[upper].processing_delay_s
            lag += self._problem.delays.between(upper, self._site[site])
        self._lag.append(lag)

    def assign(self, stream: str, child: str, parent: str) -> None:
        """Serve a child, expand the path, settle."""
        self._saved = (self._kept, self._passing)
        at = self._index[stream, parent]
        self._add(stream, child, at, self._interest[stream, child])
        while self._parent[at] >= 0:
            self._link[at] = self._link[at].merge(self._interest[stream, child])
            self._size[at] = self._scale[at] * self._link[at].size
            at = self._parent[at]
        self._settle()

    def load(self, parents: Mapping[tuple[str, str], str]) -> None:
        """Assign a whole graph at once, parents before children, and settle once."""
        pending = dict(parents)
        while pending:
            ready = [key for key, parent in pending.items() if (key[0], parent) in self._index]
            for stream, child in ready:
                at = self._index[stream, pending.pop((stream, child))]
                interest = self._interest[stream, child]
                self._add(stream, child, at, interest)
                while self._parent[at] >= 0:
                    self._link[at] = self._link[at].merge(interest)
                    self._size[at] = self._scale[at] * self._link[at].size
                    at = self._parent[at]
        self._settle()

    def withdraw(self, stream: str, child: str) -> None:
        """Take back the last assignment; links shrink to what is still wanted."""
        last = self._index.pop((stream, child))
        at = self._parent[last]
        for items in (self._sites, self._parent, self._link, self._depth, self._lag, self._size, self._scale):
            items.pop()
        while self._parent[at] >= 0:
            name = next(key for key, index in self._index.items() if index == at)
            link = self._interest[name]
            for index, parent in enumerate(self._parent):
                if parent == at:
                    link = link.merge(self._link[index])
            self._link[at] = link
            self._size[at] = self._scale[at] * link.size
            at = self._parent[at]
        assert self._saved is not None
        self._kept, self._passing = self._saved

    def _settle(self) -> None:
        """Sweep the fixed point until nothing moves, each sweep from the top of the trees down."""
        site, parent = np.array(self._sites), np.array(self._parent)
        size, depth, n = np.array(self._size), np.array(self._depth), len(self._problem.sites)
        child = np.flatnonzero(parent >= 0)
        upper, lower, above = site[parent[child]], site[child], parent[child]
        levels = [np.flatnonzero(depth[child] == level) for level in range(1, int(depth.max()) + 1)]
        kept, up, down = np.ones(len(site)), np.ones(n), np.ones(n)
        for _ in range(5000):
            load = size[child] * kept[above]
            with np.errstate(divide="ignore", invalid="ignore"):
                new_up = np.fmin(1.0, self._up / np.bincount(upper, load, n))
                new_down = np.fmin(1.0, self._down / np.bincount(lower, load, n))
            change = max(float(np.abs(new_up - up).max()), float(np.abs(new_down - down).max()))
            up, down = 0.2 * up + 0.8 * new_up, 0.2 * down + 0.8 * new_down
            passing = np.minimum(up[upper], down[lower])
            for level in levels:
                kept[child[level]] = kept[above[level]] * passing[level]
            if change < 1e-12:
                break
        self._kept, self._passing = kept, up

    def kept(self, stream: str, site: str) -> float:
        """Fraction of its rows that a member receives."""
        return float(self._kept[self._index[stream, site]])

    def delay_s(self, stream: str, site: str) -> float:
        """Delay of a member from the source."""
        return self._lag[self._index[stream, site]]

    def shed(self, site: str) -> float:
        """Fraction that a site drops when forwarding."""
        return float(1.0 - self._passing[self._site[site]])

    def hop_s(self, one: str, other: str) -> float:
        """Delay between two sites."""
        return self._problem.delays.between(self._site[one], self._site[other])


def construct_slowly(problem: Problem, name: str, seed: int = 0) -> Graph:
    """UNFAS, UNFAG, QASDS or QASDG by the protocol on the model network, joins in the order of `construct`."""
    from headgate.planning.construct.algorithm import join_order

    graph = Graph(problem)
    network = ModelNetwork(problem)
    mean = float(graph.net.rule[2])
    by_source = name.endswith("s")
    points: dict[str, ControlPoint] = {}
    for flow in problem.flows:
        key = flow.root if by_source else ""
        if key not in points:
            known = tuple(f for f in problem.flows if not by_source or f.root == flow.root)
            points[key] = ControlPoint(known, network, mean)
    members: dict[tuple[str, str], Member] = {(m.stream, m.site): m for m in tree_members(problem)}
    roots = {flow.name: flow.root for flow in problem.flows}
    parents: dict[tuple[str, str], str] = {}
    for node in join_order(graph, seed):
        member = members[graph.name(int(node))]
        request = Request(member.stream, member.site, member.interest, member.wants, member.bulk)
        point = points[roots[member.stream] if by_source else ""]
        if name.startswith("unfa"):
            parents[member.stream, member.site] = point.join_unfa(request)
        else:
            parents[member.stream, member.site], _ = point.join_qasd(request)
    return Graph.of(problem, parents)
