"""Standby parents: who serves a member while its parent is dead, until there is another plan.

Every row for a member passes the sites above its parent, together with what was given up of it on the way, so each of
them can serve the member at once, with the routing table that is in force. A site beside or below the parent cannot: it
is not sent the member's rows, and that takes another plan. A standby must be able to reach the member (in the physical
model: by a link that is given) and comes first where it can carry what all children of the dead parent need, the
nearest before others; where nobody can, who is overloaded least comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import inf

from headgate.model import Plan, Tree
from headgate.planning.problem import Problem
from headgate.planning.validity import loads_of


def with_standbys(problem: Problem, plan: Plan) -> Plan:
    """The plan with the standbys of every member that is not served by its root."""
    standbys = _Standbys(problem, plan)
    return Plan({name: replace(tree, standbys=standbys.of(tree)) for name, tree in plan.trees.items()})


class _Standbys:
    """What sites and links carry under a plan, and who has room for more."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self._problem = problem
        self._load: dict[tuple[str, str], float] = {}
        self._uploads: dict[str, float] = {}
        self._links: dict[frozenset[str], float] = {}
        for edge, load in loads_of(problem, plan):
            self._load[edge.stream, edge.child] = load
            pair = frozenset((edge.parent, edge.child))
            self._uploads[edge.parent] = self._uploads.get(edge.parent, 0.0) + load
            self._links[pair] = self._links.get(pair, 0.0) + load

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
        link = self._links.get(pair, 0.0) + self._load.get((tree.stream, site), 0.0)
        upload = self._uploads.get(standby, 0.0) + more - freed
        return max(upload - limit, link - self._problem.capacities.get(pair, inf), 0.0)


Moved = Mapping[tuple[str, str], tuple[str, str]]
"""Members that were moved away from a dead parent: by stream and site, the parent before and after."""


def plan_around(plan: Plan, dead: Collection[str], in_use: Mapping[tuple[str, str], str]) -> tuple[Plan, Moved]:
    """The plan with every member of a dead parent below its standby, and who was moved; nobody else moves.

    `in_use` are the standbys that serve already, by stream and site. The dead sites stay where they are, with nobody
    below them, as their own subscribers are served again when they are back.

    >>> plan = Plan({"wind": Tree("wind", "a", {"b": "a", "c": "b"})})
    >>> found, moved = plan_around(plan, {"b"}, {})
    >>> dict(found.trees["wind"].parents), plan_back(found, moved, "b") == plan
    ({'b': 'a', 'c': 'a'}, True)
    """
    moved: dict[tuple[str, str], tuple[str, str]] = {}
    trees = dict(plan.trees)
    for name, tree in plan.trees.items():
        parents = dict(tree.parents)
        for site, parent in tree.parents.items():
            choices = [each for each in (in_use.get((name, site)), *tree.standbys_of(site)) if each in tree.members]
            after = next((each for each in choices if each not in dead and each not in tree.below(site)), None)
            if parent in dead and after not in (None, parent, site):
                moved[name, site] = (parent, str(after))
                parents[site] = str(after)
        if parents != tree.parents:
            trees[name] = Tree(name, tree.root, parents)
    return Plan(trees), moved


def plan_back(plan: Plan, moved: Moved, site: str) -> Plan:
    """The plan with the members of a site that is back below it again, where nobody has moved them on since."""
    trees = dict(plan.trees)
    for (name, member), (before, after) in moved.items():
        tree = trees.get(name)
        if before != site or tree is None or tree.parents.get(member) != after:
            continue
        if site in tree.members and site not in tree.below(member):
            trees[name] = Tree(name, tree.root, {**tree.parents, member: site})
    return Plan(trees)
