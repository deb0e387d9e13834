"""The least total bandwidth of a valid graph (section 3.2), as an integer programme for HiGHS.

The four conditions made linear: one parent per member (1), a link carries a piece only if its sender receives it (2),
linear loads below capacities (3), ranks that rise from parent to child (4). The size of a link is (rows carried) times
(bytes of the columns carried): a product of two sets, which becomes linear with one variable per pair of a piece and a
column that is at least 1 when both are carried. Pieces must not overlap: their weights may not add up to more than 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy

from headgate.planning.problem import Flow, Member, Problem, ProblemError


@dataclass(frozen=True, slots=True)
class BandwidthOptimum:
    """The cheapest valid graph and HiGHS's proven lower bound; infeasible when no graph meets every condition."""

    parents: dict[tuple[str, str], str]
    bytes_per_s: float
    bound: float
    feasible: bool


def least_bandwidth(problem: Problem, gap: float = 1e-9) -> BandwidthOptimum:
    """Solve the basic problem of section 3 to optimality."""
    for flow in problem.flows:
        if sum(flow.universe.weights) > 1.0 + 1e-9:
            raise ProblemError(
                f"the pieces of stream {flow.name!r} overlap, so the size of a union is not a sum",
                hint="the exact programme takes disjoint pieces; plan by quality instead (`--algorithm search`)",
            )
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
        self.bulk = {(member.stream, member.site): member.bulk for member in problem.members}
        self.links: dict[tuple[str, str, str], Any] = {}
        self.loads: list[tuple[str, str, float, Any]] = []  # parent, child, bytes per second, piece variable

    def add_stream(self, flow: Flow, members: dict[str, Member]) -> None:
        """Links, what they carry, and ranks of one stream, with conditions 1, 2 and 4."""
        model, count, root = self.model, len(members), flow.root
        rank = {site: model.addVariable(1, max(1, count)) for site in members}
        carried: dict[tuple[str, int], list[Any]] = {}  # by child: pieces first, columns after
        sent: list[tuple[str, int, Any]] = []
        parts_count = len(flow.universe.weights) + len(flow.universe.widths)
        for child in members:
            chosen = []
            for parent in (root, *members):
                if not self.problem.linked(parent, child):
                    continue
                link = model.addBinary()
                self.links[flow.name, parent, child] = link
                chosen.append(link)
                if parent != root:
                    model.addConstr(rank[child] >= rank[parent] + 1 - (count + 1) * (1 - link))
                parts = [model.addVariable(0, 1) for _ in range(parts_count)]
                for number, part in enumerate(parts):
                    model.addConstr(part <= link)
                    carried.setdefault((child, number), []).append(part)
                    if parent != root:
                        sent.append((parent, number, part))
                self.add_size(flow, parent, child, parts)
            if not chosen:
                raise ProblemError(f"nothing links site {child!r} to another member of stream {flow.name!r}")
            model.addConstr(sum(chosen[1:], chosen[0]) == 1)
        for child, member in members.items():
            wanted = member.interest.rows | member.interest.columns << len(flow.universe.weights)
            for number in range(parts_count):
                if wanted >> number & 1:
                    model.addConstr(_total(carried[child, number]) >= 1)
        for parent, number, part in sent:
            model.addConstr(part <= _total(carried[parent, number]))

    def add_size(self, flow: Flow, parent: str, child: str, parts: list[Any]) -> None:
        """The load of one link: each piece with the bytes that every row has, and each pair of a piece and a column."""
        universe, rate = flow.universe, flow.rate_rows_per_s * self.bulk.get((flow.name, child), 1.0)
        pieces, columns = parts[: len(universe.weights)], parts[len(universe.weights) :]
        for weight, piece in zip(universe.weights, pieces, strict=True):
            self.loads.append((parent, child, rate * weight * universe.base_bytes, piece))
            for width, column in zip(universe.widths, columns, strict=True):
                both = self.model.addVariable(0, 1)
                self.model.addConstr(both >= piece + column - 1)
                self.loads.append((parent, child, rate * weight * width, both))

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
            self.model.addConstr(_total(terms) <= limit)

    def cost(self) -> Any:
        """Total bandwidth."""
        return _total([size * part for _, _, size, part in self.loads])


def _total(terms: list[Any]) -> Any:
    """The sum of terms, of which there is one at least."""
    return sum(terms[1:], terms[0])
