"""Second paths of subscriptions with `paths: 2`: which sites serve theirs besides the parent of the plan.

A site above the parent has all rows that the site needs, so it can send them too
([decision 113](../decisions/113-a-second-path-by-a-standby.md)). The root gives a path that has no site in common with
the first. Where the root cannot reach the site, the highest one that can is taken, and what both paths share is named.
A site that the root itself serves has one path.
"""

from __future__ import annotations

from dataclasses import dataclass

from headgate.model.deployment import Deployment
from headgate.model.plan import Plan, Tree


@dataclass(frozen=True, slots=True)
class SecondPath:
    """Both paths of a stream to a site, each from the root to the site."""

    stream: str
    site: str
    first: tuple[str, ...]
    second: tuple[str, ...]

    @property
    def parent(self) -> str:
        """Who sends the second copy."""
        return self.second[-2]

    @property
    def shared(self) -> tuple[str, ...]:
        """The sites between root and site that lie on both paths: none where these are disjoint."""
        return tuple(each for each in self.second[1:-1] if each in self.first)


def second_path(tree: Tree, site: str) -> SecondPath | None:
    """The second path to a member of a tree, None where there is none.

    >>> tree = Tree("wind", "oslo", {"paris": "oslo", "lyon": "paris", "nice": "lyon"})
    >>> second_path(tree, "nice").second, second_path(tree, "paris")
    (('oslo', 'nice'), None)
    >>> tree = Tree("wind", "oslo", tree.parents, {"nice": ("paris",)})
    >>> second_path(tree, "nice").second, second_path(tree, "nice").shared
    (('oslo', 'paris', 'nice'), ('paris',))
    """
    if site not in tree.parents:
        return None
    first, able = tree.path(site), set(tree.standbys_of(site))
    for place, above in enumerate(first[:-2]):
        if above in able:
            return SecondPath(tree.stream, site, first, (*first[: place + 1], site))
    return None


def second_paths(deployment: Deployment, plan: Plan | None) -> dict[tuple[str, str], SecondPath]:
    """By stream and site, the second paths that subscriptions ask for and that a plan has."""
    found: dict[tuple[str, str], SecondPath] = {}
    for each in deployment.subscriptions.values():
        tree = plan.trees.get(each.stream) if plan is not None and each.paths > 1 else None
        path = second_path(tree, each.site) if tree is not None else None
        if path is not None:
            found[each.stream, each.site] = path
    return found
