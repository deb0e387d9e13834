"""The least total bandwidth of a valid graph (section 3.2), as an integer programme for HiGHS.

The four conditions made linear: one parent per member (1), a link carries a piece only if its sender receives it (2),
linear loads below capacities (3), ranks that rise from parent to child (4). Exact for interests in rows; projections
make sizes products, which this programme does not have, so streams with columns of their own are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy

from headgate.planning.problem import Member, Problem, ProblemError


@dataclass(frozen=True, slots=True)
class BandwidthOptimum:
    """The cheapest valid graph and HiGHS's proven lower bound; infeasible when no graph meets every condition."""

    parents: dict[tuple[str, str], str]
    bytes_per_s: float
    bound: float
    feasible: bool


def least_bandwidth(problem: Problem, gap: float = 1e-9) -> BandwidthOptimum:
    """Solve the basic problem of section 3 to optimality."""
    if any(flow.universe.widths for flow in problem.flows):
        raise ProblemError("the bandwidth programme takes streams without projections", hint="merge columns into rows")
    model = highspy.Highs()
    model.silent()
    model.setOptionValue("mip_rel_gap", gap)
    programme = _Programme(model, problem)
    for flow in problem.flows:
        members = {m.site: m for m in problem.members if m.stream == flow.name and m.site != flow.root}
        programme.add_stream(flow, members)
    programme.add_capacities()
    model.minimize(programme.cost())
    status = model.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return BandwidthOptimum({}, float("inf"), float("inf"), False)
    info = model.getInfo()
    parents = {
        (stream, child): parent
        for (stream, parent, child), chosen in programme.links.items()
        if model.variableValue(chosen) > 0.5
    }
    return BandwidthOptimum(parents, float(info.objective_function_value), float(info.mip_dual_bound), True)


class _Programme:
    """Variables and rows of the programme while it is put together."""

    def __init__(self, model: Any, problem: Problem) -> None:
        self.model = model
        self.problem = problem
        self.links: dict[tuple[str, str, str], Any] = {}
        self.loads: list[tuple[str, str, float, Any]] = []  # parent, child, bytes per second, piece variable

    def add_stream(self, flow: Any, members: dict[str, Member]) -> None:
        """Links, pieces on links and ranks of one stream, with conditions 1, 2 and 4."""
        model, count = self.model, len(members)
        rank = {site: model.addVariable(1, max(1, count)) for site in members}
        carried: dict[tuple[str, int], list[Any]] = {}
        sent: list[tuple[str, int, Any]] = []
        for child in members:
            chosen = []
            for parent in (flow.root, *members):
                if not self.problem.linked(parent, child):
                    continue
                link = model.addBinary()
                self.links[flow.name, parent, child] = link
                chosen.append(link)
                if parent != flow.root:
                    model.addConstr(rank[child] >= rank[parent] + 1 - (count + 1) * (1 - link))
                for piece, weight in enumerate(flow.universe.weights):
                    part = model.addVariable(0, 1)
                    model.addConstr(part <= link)
                    carried.setdefault((child, piece), []).append(part)
                    size = flow.rate_rows_per_s * weight * flow.universe.base_bytes
                    self.loads.append((parent, child, size, part))
                    if parent != flow.root:
                        sent.append((parent, piece, part))
            model.addConstr(sum(chosen[1:], chosen[0]) == 1)
        for child, member in members.items():
            for piece in range(len(flow.universe.weights)):
                if member.interest.rows >> piece & 1:
                    parts = carried[child, piece]
                    model.addConstr(sum(parts[1:], parts[0]) >= 1)
        for parent, piece, part in sent:
            parts = carried[parent, piece]
            model.addConstr(part <= sum(parts[1:], parts[0]))

    def add_capacities(self) -> None:
        """Condition 3 for uploads, downloads and limited links."""
        rows: dict[Any, tuple[float, list[Any]]] = {}
        sites = {site.name: site for site in self.problem.sites}
        for parent, child, size, part in self.loads:
            pair = frozenset((parent, child))
            for key, limit in (
                (("up", parent), sites[parent].upload_bytes_per_s),
                (("down", child), sites[child].download_bytes_per_s),
                (pair, self.problem.capacities.get(pair)),
            ):
                if limit is not None:
                    rows.setdefault(key, (limit, []))[1].append(size * part)
        for limit, terms in rows.values():
            self.model.addConstr(sum(terms[1:], terms[0]) <= limit)

    def cost(self) -> Any:
        """Total bandwidth."""
        terms = [size * part for _, _, size, part in self.loads]
        return sum(terms[1:], terms[0])
