"""What second paths cost: bytes a second on the link, the sender's upload and the site's download.

A second path carries everything that the site and those below it need, as the first does. What it takes is taken off
what the planner may use, so that no plan counts on it: searching, predictions and overloads see what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headgate.model import Deployment, Plan, Site
from headgate.model.second_path import SecondPath, second_paths
from headgate.planning.problem import Problem
from headgate.planning.standby import with_standbys
from headgate.planning.validity import loads_of


@dataclass(frozen=True, slots=True)
class DoubledPath:
    """A second path with what it adds."""

    path: SecondPath
    bytes_per_s: float

    def document(self) -> dict[str, object]:
        """As `headgate plan --json` shows it."""
        path = self.path
        return {
            "stream": path.stream,
            "site": path.site,
            "first": list(path.first),
            "second": list(path.second),
            "shared": list(path.shared),
            "bytes_per_s": round(self.bytes_per_s, 1),
        }

    def __str__(self) -> str:
        shared = f", which shares {', '.join(self.path.shared)} with the first" if self.path.shared else ""
        way = " -> ".join(self.path.second)
        cost = f"{self.bytes_per_s:,.0f} bytes/s more"
        return f"second path: {self.path.stream} to {self.path.site} by {way}{shared}, {cost}"


def doubled_paths(problem: Problem, deployment: Deployment, plan: Plan | None) -> tuple[DoubledPath, ...]:
    """The second paths of a plan with their loads."""
    if plan is None or all(each.paths == 1 for each in deployment.subscriptions.values()):
        return ()
    wanted = second_paths(deployment, with_standbys(problem, plan))
    loads = {(edge.stream, edge.child): load for edge, load in loads_of(problem, plan)}
    return tuple(DoubledPath(path, loads.get(key, 0.0)) for key, path in wanted.items())


def without_doubled(problem: Problem, doubled: tuple[DoubledPath, ...]) -> Problem:
    """The problem with what second paths take taken off uploads, downloads and links."""
    if not doubled:
        return problem
    up: dict[str, float] = {}
    down: dict[str, float] = {}
    links: dict[frozenset[str], float] = {}
    for each in doubled:
        pair = frozenset((each.path.parent, each.path.site))
        up[each.path.parent] = up.get(each.path.parent, 0.0) + each.bytes_per_s
        down[each.path.site] = down.get(each.path.site, 0.0) + each.bytes_per_s
        links[pair] = links.get(pair, 0.0) + each.bytes_per_s
    sites = tuple(_less(site, up.get(site.name, 0.0), down.get(site.name, 0.0)) for site in problem.sites)
    capacities: Mapping[frozenset[str], float] = {
        pair: max(0.0, capacity - links.get(pair, 0.0)) for pair, capacity in problem.capacities.items()
    }
    return replace(problem, sites=sites, capacities=capacities)


def less_doubled(problem: Problem, deployment: Deployment) -> Problem:
    """The problem with what the second paths of the deployment's plan take taken off."""
    return without_doubled(problem, doubled_paths(problem, deployment, deployment.plan))


def _less(site: Site, up: float, down: float) -> Site:
    upload, download = site.upload_bytes_per_s, site.download_bytes_per_s
    return replace(
        site,
        upload_bytes_per_s=None if upload is None else max(0.0, upload - up),
        download_bytes_per_s=None if download is None else max(0.0, download - down),
    )
