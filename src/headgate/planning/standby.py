"""Standby parents: who serves a member while its parent is dead, until there is another plan.

Every row for a member passes the sites above its parent, together with what was given up of it on the way, so each of
them can serve the member at once, with the routing table that is in force. A site beside or below the parent cannot: it
is not sent the member's rows, and that takes another plan. A standby must be able to reach the member (in the physical
model: by a link that is given) and comes first where it can carry what all children of the dead parent need, the
nearest before others; where nobody can, who is overloaded least comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import inf

from headgate.model import Plan, Tree
from headgate.planning.problem import Problem
from headgate.planning.validity import edges_of

_Load = Mapping[tuple[str, str], float]


def with_standbys(problem: Problem, plan: Plan) -> Plan:
    """The plan with the standbys of every member that is not served by its root."""
    standbys = _Standbys(problem, plan)
    return Plan({name: replace(tree, standbys=standbys.of(tree)) for name, tree in plan.trees.items()})


class _Standbys:
    """What sites and links carry under a plan, and who has room for more."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self._problem = problem
        rates = {flow.name: flow.rate_rows_per_s for flow in problem.flows}
        bulk = {(member.stream, member.site): member.bulk for member in problem.members}
        parents = {
            (name, site): above
            for name, tree in plan.trees.items()
            if name in rates
            for site, above in tree.parents.items()
        }
        self._load: dict[tuple[str, str], float] = {}
        self._uploads: Counter[str] = Counter()
        self._links: Counter[frozenset[str]] = Counter()
        for edge in edges_of(problem, parents):
            key = (edge.stream, edge.child)
            load = self._load[key] = rates[edge.stream] * bulk.get(key, 1.0) * edge.interest.size
            self._uploads[edge.parent] += load
            self._links[frozenset((edge.parent, edge.child))] += load

    def of(self, tree: Tree) -> dict[str, tuple[str, ...]]:
        """By member, its standbys, the best first."""
        found: dict[str, tuple[str, ...]] = {}
        for site, parent in tree.parents.items():
            above = [each for each in tree.path(site)[-3::-1] if self._problem.linked(each, site)]
            over = {each: self._overload(tree, each, parent, site) for each in above}
            if parent != tree.root:
                found[site] = tuple(sorted(above, key=lambda each: over[each]))  # the order stays where they are equal
        return found

    def _overload(self, tree: Tree, standby: str, parent: str, site: str) -> float:
        """By how many bytes a second a standby or its link would be overloaded, with all children of the parent."""
        site_index = self._problem.site_index
        known = self._problem.sites[site_index[standby]] if standby in site_index else None
        limit = inf if known is None or known.upload_bytes_per_s is None else known.upload_bytes_per_s
        more = sum(self._load.get((tree.stream, child), 0.0) for child in tree.children(parent))
        freed = self._load.get((tree.stream, parent), 0.0) if tree.parents.get(parent) == standby else 0.0
        pair = frozenset((standby, site))
        link = self._links[pair] + self._load.get((tree.stream, site), 0.0) - self._problem.capacities.get(pair, inf)
        return max(self._uploads[standby] + more - freed - limit, link, 0.0)
