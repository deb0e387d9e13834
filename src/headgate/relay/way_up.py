"""The way of what is published at a site up to the root of its stream: the tree of the stream, from below.

A site that is not in the tree takes the shortest way over sites that can connect: each dials the next one.
"""

from __future__ import annotations

from itertools import pairwise

from headgate.model import Deployment
from headgate.wire.snapshot import Snapshot


def way_up(snapshot: Snapshot, site: str, stream: str) -> tuple[str, ...]:
    """The sites on the way from a site to the root of a stream, with both ends; none where there is no way."""
    deployment = snapshot.deployment
    found = deployment.streams.get(stream)
    if found is None or site not in deployment.sites:
        return ()
    tree = snapshot.plan.trees.get(stream) if snapshot.plan else None
    if tree is None or (site not in tree.parents and site != tree.root):
        return _shortest(deployment, site, found.root)
    way = [site]
    while way[-1] != tree.root:
        way.append(tree.parents[way[-1]])
    return tuple(way)


def next_up(snapshot: Snapshot, site: str, origin: str, stream: str) -> str | None:
    """The site to which another one passes what was published at `origin`; None where it is on no such way."""
    way = way_up(snapshot, origin, stream)
    return way[way.index(site) + 1] if site in way[:-1] else None


def steps_up(snapshot: Snapshot) -> dict[str, set[str]]:
    """By site, those to which it passes what is published at any site, into any stream."""
    found: dict[str, set[str]] = {}
    streams = [name for name, each in snapshot.deployment.streams.items() if each.source.published]
    for stream in streams:
        for site in snapshot.deployment.sites:
            way = way_up(snapshot, site, stream)
            for lower, upper in pairwise(way):
                found.setdefault(lower, set()).add(upper)
    return found


def rate_up(deployment: Deployment, way: tuple[str, ...]) -> float | None:
    """The least that is declared of a way's links, in bytes a second; None where nothing is."""
    sites, rates = deployment.sites, []
    for lower, upper in pairwise(way):
        rates += [sites[lower].upload_bytes_per_s, sites[upper].download_bytes_per_s]
        rates.append(deployment.links.between(lower, upper).capacity_bytes_per_s)
    return min((each for each in rates if each is not None), default=None)


def _shortest(deployment: Deployment, site: str, root: str) -> tuple[str, ...]:
    """Over the fewest links, each of them to a site that can be dialled; of several ways the first by name."""
    if site == root:
        return (site,)
    if deployment.links.connected(site, root):
        return (site, root)
    ways: list[tuple[str, ...]] = [(site,)]
    seen = {site}
    while ways:
        longer: list[tuple[str, ...]] = []
        for way in ways:
            for other in sorted(deployment.sites):
                if other in seen or not deployment.links.connected(way[-1], other):
                    continue
                if deployment.sites[other].is_private:
                    continue
                seen.add(other)
                if other == root:
                    return (*way, other)
                longer.append((*way, other))
        ways = longer
    return ()
