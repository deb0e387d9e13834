"""One site in several stream trees: a core for each tree, and a small record of what the site does in all of them.

A site's links, bandwidth and CPU serve all its trees. Each of its cores posts what its own tree costs the site, and
reads what the others cost it, so that a bound on the site counts every tree. The record never leaves the site; what a
unit has to know of it travels with the site's facts and reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Share: TypeAlias = Mapping[str, float]
"""What a site does in one tree, by name: fanout, bytes per second sent, received and matched, routing entries."""


class Host:
    """A site's own record over its trees.

    >>> host = Host()
    >>> host.post(0, {"fanout": 2.0})
    >>> host.post(1, {"fanout": 3.0})
    >>> host.elsewhere(0), host.elsewhere(1)
    ({'fanout': 3.0}, {'fanout': 2.0})
    """

    def __init__(self) -> None:
        self.shares: dict[int, Share] = {}
        self.version = 0

    def post(self, stream: int, share: Share) -> None:
        """What the site does in one tree now."""
        if self.shares.get(stream) != share:
            self.shares[stream] = share
            self.version += 1

    def drop(self, stream: int) -> None:
        """The site is no longer in that tree."""
        if self.shares.pop(stream, None) is not None:
            self.version += 1

    def elsewhere(self, stream: int) -> dict[str, float]:
        """What the site does in all its other trees."""
        found: dict[str, float] = {}
        for other, share in self.shares.items():
            if other != stream:
                for name, value in share.items():
                    found[name] = found.get(name, 0.0) + value
        return found


@dataclass(frozen=True, slots=True)
class Station:
    """A core's place among several trees, known before it starts.

    Attributes:
        stream: The number of its own tree.
        host: The record that it shares with the site's other cores.
        judge: Tree and site of the core that decides, one change a period over all trees.
        roots: Trees and sites of the other trees' roots; a root tells them what its tree adds up to.
    """

    stream: int
    host: Host
    judge: tuple[int, int]
    roots: tuple[tuple[int, int], ...] = ()
