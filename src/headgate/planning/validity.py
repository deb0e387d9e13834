"""Is a delivery graph valid: the four conditions of section 3.1, for both link models, checked from the outside.

The checker shares nothing with the kernels: it works on names and bit sets, so that it can judge what they produce.
It says which condition fails, where and by how much. The quality-aware problem (section 4.1) drops condition 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headgate.errors import HeadgateError
from headgate.model import Plan
from headgate.planning.interest import InterestPieces
from headgate.planning.problem import Member, Problem

CONDITIONS = {
    1: "filter satisfaction",
    2: "stream forwarding",
    3: "bandwidth requirement",
    4: "no loop",
}


class InvalidPlanError(HeadgateError):
    """A plan that breaks a condition and must not be carried out."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A stream forwarded from one site to another under a filter."""

    stream: str
    parent: str
    child: str
    interest: InterestPieces


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken condition, where it is broken, and by how much (bytes per second, or missing bytes per row)."""

    condition: int
    where: str
    message: str
    by: float = 0.0

    def __str__(self) -> str:
        return f"condition {self.condition} ({CONDITIONS[self.condition]}) at {self.where}: {self.message}"


def edges_of(problem: Problem, parents: Mapping[tuple[str, str], str]) -> list[Edge]:
    """The links of a graph with the smallest filters that serve everybody below (expansion of figure 3)."""
    merged: dict[tuple[str, str], InterestPieces] = {}
    roots = {flow.name: flow.root for flow in problem.flows}
    for member in problem.members:
        site, steps = member.site, 0
        while site != roots[member.stream] and (member.stream, site) in parents and steps <= len(parents):
            key, steps = (member.stream, site), steps + 1
            merged[key] = merged[key].merge(member.interest) if key in merged else member.interest
            site = parents[key]
    empty = {flow.name: InterestPieces(flow.universe, 0) for flow in problem.flows}
    return [
        Edge(stream, parent, site, merged.get((stream, site), empty[stream]))
        for (stream, site), parent in parents.items()
    ]


def loads_of(problem: Problem, plan: Plan) -> list[tuple[Edge, float]]:
    """The links of a plan, each with the bytes a second that it carries."""
    rates = {flow.name: flow.rate_rows_per_s for flow in problem.flows}
    bulk = {(member.stream, member.site): member.bulk for member in problem.members}
    parents = {
        (name, site): above
        for name, tree in plan.trees.items()
        if name in rates
        for site, above in tree.parents.items()
    }
    return [
        (edge, rates[edge.stream] * bulk.get((edge.stream, edge.child), 1.0) * edge.interest.size)
        for edge in edges_of(problem, parents)
    ]


def violations(problem: Problem, edges: Iterable[Edge], *, bandwidth: bool = True) -> list[Violation]:
    """Every broken condition, in the order of the paper; empty means the graph is valid."""
    edges = list(edges)
    incoming: dict[tuple[str, str], list[Edge]] = {}
    for edge in edges:
        incoming.setdefault((edge.stream, edge.child), []).append(edge)
    roots = {flow.name: flow.root for flow in problem.flows}
    members = {(member.stream, member.site): member for member in problem.members}
    found = _satisfaction(incoming, members, roots)
    found += _forwarding(problem, edges, incoming, members, roots)
    if bandwidth:
        found += _bandwidth(problem, edges)
    return found + _loops(incoming, roots)


def require_valid(problem: Problem, parents: Mapping[tuple[str, str], str]) -> None:
    """Refuse a plan that breaks condition 1, 2 or 4: no plan leaves the planner without this."""
    broken = violations(problem, edges_of(problem, parents), bandwidth=False)
    if broken:
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        raise InvalidPlanError(f"{broken[0]}{more}")


def _satisfaction(
    incoming: Mapping[tuple[str, str], list[Edge]],
    members: Mapping[tuple[str, str], Member],
    roots: Mapping[str, str],
) -> list[Violation]:
    found = []
    for (stream, site), member in members.items():
        if site == roots[stream]:
            continue
        links, where = incoming.get((stream, site), []), f"{stream} at {site}"
        if not links:
            found.append(Violation(1, where, "no site forwards the stream to it", member.interest.size))
        elif not any(edge.interest.covers(member.interest) for edge in links):
            missing = member.interest.merge(links[0].interest).size - links[0].interest.size
            text = f"its filter is not applicable over what {links[0].parent} forwards"
            found.append(Violation(1, where, f"{text} ({missing:g} bytes a row missing)", missing))
    for (stream, site), links in incoming.items():
        if len(links) > 1:
            names = " and ".join(sorted(edge.parent for edge in links))
            found.append(Violation(1, f"{stream} at {site}", f"received from {names}", float(len(links) - 1)))
        if site == roots[stream]:
            found.append(Violation(1, f"{stream} at {site}", "the source receives its own stream"))
    return found


def _forwarding(
    problem: Problem,
    edges: list[Edge],
    incoming: Mapping[tuple[str, str], list[Edge]],
    members: Mapping[tuple[str, str], Member],
    roots: Mapping[str, str],
) -> list[Violation]:
    found = []
    for edge in edges:
        where = f"{edge.stream} from {edge.parent} to {edge.child}"
        if not problem.linked(edge.parent, edge.child):
            found.append(Violation(2, where, "there is no such link"))
        if (edge.stream, edge.child) not in members and edge.child not in problem.relays:
            found.append(Violation(2, where, f"{edge.child} has no filter on the stream and may not relay"))
        if edge.parent == roots.get(edge.stream):
            continue
        above = incoming.get((edge.stream, edge.parent), [])
        if not above:
            found.append(Violation(2, where, f"{edge.parent} does not receive the stream", edge.interest.size))
        elif not any(upper.interest.covers(edge.interest) for upper in above):
            missing = edge.interest.merge(above[0].interest).size - above[0].interest.size
            text = f"{edge.parent} does not receive all of it ({missing:g} bytes a row missing)"
            found.append(Violation(2, where, text, missing))
    return found


def _bandwidth(problem: Problem, edges: list[Edge]) -> list[Violation]:
    rates = {flow.name: flow.rate_rows_per_s for flow in problem.flows}
    bulk = {(member.stream, member.site): member.bulk for member in problem.members}
    up: dict[str, float] = {}
    down: dict[str, float] = {}
    links: dict[frozenset[str], float] = {}
    for edge in edges:
        load = rates[edge.stream] * bulk.get((edge.stream, edge.child), 1.0) * edge.interest.size
        pair = frozenset((edge.parent, edge.child))
        up[edge.parent] = up.get(edge.parent, 0.0) + load
        down[edge.child] = down.get(edge.child, 0.0) + load
        links[pair] = links.get(pair, 0.0) + load
    found = []
    for site in problem.sites:
        for what, loads, limit in (
            ("upload", up, site.upload_bytes_per_s),
            ("download", down, site.download_bytes_per_s),
        ):
            over = loads.get(site.name, 0.0) - (float("inf") if limit is None else limit)
            if over > 1e-9 * loads.get(site.name, 0.0):
                text = f"needs {loads[site.name]:g} bytes/s of {limit:g}, {over:g} too much"
                found.append(Violation(3, f"{what} of {site.name}", text, over))
    for pair, load in links.items():
        over = load - problem.capacities.get(pair, float("inf"))
        if over > 1e-9 * load:
            text = f"needs {load:g} bytes/s of {problem.capacities[pair]:g}, {over:g} too much"
            found.append(Violation(3, f"link {' - '.join(sorted(pair))}", text, over))
    return found


def _loops(incoming: Mapping[tuple[str, str], list[Edge]], roots: Mapping[str, str]) -> list[Violation]:
    found, known = [], set[tuple[str, str]]()
    for start in incoming:
        path: list[tuple[str, str]] = []
        place = start
        while place in incoming and place not in known and place not in path and place[1] != roots[place[0]]:
            path.append(place)
            place = (place[0], incoming[place][0].parent)
        if place in path:
            loop = [site for _, site in path[path.index(place) :]]
            found.append(Violation(4, place[0], " -> ".join([*reversed(loop), loop[-1]]), float(len(loop))))
        known.update(path)
    return found
