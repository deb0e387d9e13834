"""A delivery graph of a problem: parents of all members, with the arrays that the kernels keep up to date."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from headgate.model import Plan, Tree
from headgate.planning.kernel.flow import evaluate, try_moves
from headgate.planning.net import TOLERANCE, compile_problem
from headgate.planning.problem import Problem, ProblemError

Parents = Mapping[tuple[str, str], str]  # (stream, site) -> parent site


class Graph:
    """One graph that can be changed and is always evaluated.

    Members without a parent are outside of the graph: nothing reaches them. `move` keeps everything up to date and
    costs what the change touches.
    """

    def __init__(self, problem: Problem, *, goal: int = 0) -> None:
        self.problem = problem
        self.net, self.layout = compile_problem(problem)
        self.net.counter[0]["goal"] = goal
        self.settled = evaluate(self.net, True)
        self._names: list[tuple[str, str]] = [("", "")] * len(self.net.node)
        for name, node in self.layout.nodes.items():
            self._names[node] = name

    @classmethod
    def of(cls, problem: Problem, plan: Plan | Parents, *, goal: int = 0) -> Graph:
        """The graph of a plan; sites that the problem does not know in that stream are refused."""
        graph = cls(problem, goal=goal)
        parents = parents_of(plan) if isinstance(plan, Plan) else plan
        found = graph.parent_array
        for (stream, site), parent in parents.items():
            found[graph.node(stream, site)] = graph.node(stream, parent)
        graph.assign(found)
        return graph

    @property
    def streams(self) -> int:
        """Number of streams; node indices below it are sources."""
        return len(self.net.flow)

    @property
    def parent_array(self) -> npt.NDArray[np.int32]:
        """A copy of the parents by node, -1 for sources and members outside of the graph."""
        return np.array(self.net.node["parent"])

    def node(self, stream: str, site: str) -> int:
        """The node of a site in the tree of a stream."""
        try:
            return self.layout.nodes[stream, site]
        except KeyError:
            raise ProblemError(
                f"site {site!r} is no member of stream {stream!r}",
                hint="only members and sites that are allowed to relay can be in its tree",
            ) from None

    def name(self, node: int) -> tuple[str, str]:
        """Stream and site of a node."""
        return self._names[node]

    def assign(self, parents: npt.NDArray[np.int32]) -> None:
        """Replace all parents and evaluate from scratch; a loop is refused."""
        _refuse_loops(parents, self._names)
        self.net.node["parent"] = parents
        self.settled = evaluate(self.net, True)

    def evaluate(self, *, swept: bool = True) -> None:
        """Evaluate from scratch; node by node instead of by sweeps as the independent check of the same figures."""
        self.settled = evaluate(self.net, swept)

    def move(self, node: int, parent: int, *, keep: bool = True) -> None:
        """Re-parent one node with all below it (-1: out of the graph); without `keep` it is only tried."""
        if parent >= 0 and self._below(parent, node):
            raise ValueError("a node cannot be moved below itself")
        try_moves(self.net, np.array([node], np.int32), np.array([parent], np.int32), keep)

    def _below(self, node: int, top: int) -> bool:
        while node >= 0:
            if node == top:
                return True
            node = int(self.net.node["parent"][node])
        return False

    @property
    def unserved(self) -> list[tuple[str, str]]:
        """Members with an interest that no path joins to their source."""
        records, count = self.net.node, self.streams
        outside = (records["parent"] < 0) & ~self.layout.relay
        outside[:count] = False
        return [self._names[node] for node in np.flatnonzero(outside)]

    def parents(self) -> dict[tuple[str, str], str]:
        """Parents by name; relays that nobody uses are left out."""
        parents = without_idle(self.parent_array, self.layout.relay)
        return {self._names[node]: self._names[parents[node]][1] for node in np.flatnonzero(parents >= 0)}

    def plan(self) -> Plan:
        """The graph as the plan that relays carry out."""
        trees: dict[str, dict[str, str]] = {flow.name: {} for flow in self.problem.flows}
        for (stream, site), parent in self.parents().items():
            trees[stream][site] = parent
        return Plan({flow.name: Tree(flow.name, flow.root, trees[flow.name]) for flow in self.problem.flows})

    def statistics(self) -> dict[str, Any]:
        """What the incremental evaluation has done so far."""
        counter = self.net.counter
        return {
            "trials": int(counter[0]["trials"]),
            "fallbacks": int(counter[0]["fallbacks"]),
            "swept": int(counter[0]["reduced"]),
            "touched_nodes_per_trial": float(counter[0]["touched"]) / max(1, int(counter[0]["trials"])),
            "tolerance": float(self.net.rule[TOLERANCE]),
        }


def parents_of(plan: Plan) -> dict[tuple[str, str], str]:
    """Parents by (stream, site) of a plan."""
    return {(name, site): parent for name, tree in plan.trees.items() for site, parent in tree.parents.items()}


def without_idle(parents: npt.NDArray[np.int32], relay: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """Parents without those of relays that serve nobody, or nobody but such relays.

    >>> without_idle(np.array([-1, 0, 0, 2, 1], np.int32), np.array([0, 1, 1, 1, 0], np.bool_)).tolist()
    [-1, 0, -1, -1, 1]
    """
    while relay.any():
        serving = np.zeros(len(parents), np.bool_)
        serving[parents[parents >= 0]] = True
        idle = relay & ~serving & (parents >= 0)
        if not idle.any():
            break
        parents = np.where(idle, np.int32(-1), parents)
    return parents


def _refuse_loops(parents: npt.NDArray[np.int32], names: list[tuple[str, str]]) -> None:
    above = np.where(parents >= 0, parents, np.arange(len(parents)))
    for _ in range(len(parents).bit_length()):
        above = above[above]
    stuck = np.flatnonzero(parents[above] >= 0)
    if len(stuck):
        stream, site = names[stuck[0]]
        raise ProblemError(f"the tree of stream {stream!r} has a loop at site {site!r}")
