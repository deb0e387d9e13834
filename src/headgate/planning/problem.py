"""The problem a planner solves: sites, links, streams with their universes, and who wants what how well.

Sections 2 to 4 of the QASD paper. Bandwidths are bytes per second; infinite means not limited or not known yet.
In the logical model any two sites can be linked and each site's upload and download are limited; in the physical model
only the listed links exist, each with a capacity that both directions share. A problem is checked when it is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from headgate.errors import HeadgateError, nearest
from headgate.model import Quality, Site
from headgate.planning.interest import InterestPieces, Universe


class ProblemError(HeadgateError):
    """A problem that cannot be planned as it stands."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A stream as the planner sees it: where it starts, how fast it is, what it is made of."""

    name: str
    root: str
    rate_rows_per_s: float
    universe: Universe

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second of the whole stream."""
        return self.rate_rows_per_s * self.universe.row_bytes


@dataclass(frozen=True, slots=True)
class Want:
    """One subscription of a member: its own QoS function, weight and contract."""

    name: str
    quality: Quality = field(default_factory=Quality)
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Member:
    """A site's interest in a stream: the merge of its local subscriptions. Without wants it only relays.

    `bulk` is what the link into it takes, as a multiple of the stream's bytes a row: small messages and rows that are
    less alike take more of them.
    """

    stream: str
    site: str
    interest: InterestPieces
    wants: tuple[Want, ...] = ()
    bulk: float = 1.0


@dataclass(frozen=True, slots=True)
class Delays:
    """Delay between any two sites: a matrix, or from positions as base + distance * per unit."""

    matrix_s: npt.NDArray[np.float64] | None = None
    positions: npt.NDArray[np.float64] | None = None
    base_s: float = 0.0
    per_unit_s: float = 0.0

    def between(self, one: int, other: int) -> float:
        """Seconds between two sites by their indices."""
        if self.matrix_s is not None:
            return float(self.matrix_s[one, other])
        if self.positions is None:
            return self.base_s
        return self.base_s + self.per_unit_s * math.dist(self.positions[one], self.positions[other])


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that a delivery graph depends on.

    `capacities` limit single links (bytes per second, both directions together). With `physical`, links that are not
    in it do not exist. `relays` are sites that may forward streams they have no interest in; none by default.
    """

    sites: tuple[Site, ...]
    flows: tuple[Flow, ...]
    members: tuple[Member, ...]
    delays: Delays = field(default_factory=Delays)
    capacities: Mapping[frozenset[str], float] = field(default_factory=dict)
    physical: bool = False
    relays: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        site_names = _distinct("site", (site.name for site in self.sites))
        flows = {flow.name: flow for flow in self.flows}
        _distinct("stream", (flow.name for flow in self.flows))
        for site in self.sites:
            _check_site(site)
        for flow in self.flows:
            if flow.root not in site_names:
                raise ProblemError(f"stream {flow.name!r} starts at {flow.root!r}, which is no site")
            _finite("rate", flow.name, flow.rate_rows_per_s)
            if any(weight < 0 or weight > 1 for weight in flow.universe.weights):
                raise ProblemError(f"stream {flow.name!r} has a piece with a weight outside 0 to 1")
        seen: set[tuple[str, str]] = set()
        for member in self.members:
            if member.stream not in flows:
                raise ProblemError(f"site {member.site!r} wants {member.stream!r}, which is no stream")
            if member.site not in site_names:
                raise ProblemError(f"stream {member.stream!r} is wanted at {member.site!r}, which is no site")
            if (member.stream, member.site) in seen:
                raise ProblemError(
                    f"site {member.site!r} is twice a member of stream {member.stream!r}",
                    hint="a site has one member per stream, with the merge of its subscriptions",
                )
            seen.add((member.stream, member.site))
            if not (math.isfinite(member.bulk) and member.bulk > 0):
                raise ProblemError(
                    f"the bulk of site {member.site!r} in stream {member.stream!r} is {member.bulk}",
                    hint="it is a factor of the bytes on the link into the site: a number above 0",
                )
            universe = flows[member.stream].universe
            if not universe.everything.covers(member.interest) or (member.wants and not member.interest.rows):
                raise ProblemError(
                    f"the interest of site {member.site!r} in stream {member.stream!r} can be served by nobody",
                    hint="it must be a non-empty set of the stream's pieces and columns",
                )
        _distinct("subscription", (want.name for member in self.members for want in member.wants))
        if stray := sorted(self.relays - site_names.keys()):
            close = nearest(stray[0], site_names)
            hint = f"did you mean {close!r}?" if close else "only sites of the problem can relay"
            raise ProblemError(f"{stray[0]!r} may relay, which is no site", hint=hint)
        self._check_links(site_names)

    def _check_links(self, site_names: Mapping[str, int]) -> None:
        count = len(self.sites)
        matrix = self.delays.matrix_s
        if matrix is not None and matrix.shape != (count, count):
            raise ProblemError(f"the delay matrix is {matrix.shape} for {count} sites")
        if matrix is not None and not (np.isfinite(matrix).all() and (matrix >= 0).all()):
            one, other = np.argwhere(~(np.isfinite(matrix) & (matrix >= 0)))[0]
            raise ProblemError(
                f"the delay between {self.sites[one].name!r} and {self.sites[other].name!r} is {matrix[one, other]}",
                hint="a delay is a finite number of seconds of at least 0",
            )
        if self.delays.base_s < 0 or self.delays.per_unit_s < 0:
            raise ProblemError("a delay is negative", hint="a delay is a finite number of seconds of at least 0")
        for ends, capacity in self.capacities.items():
            stray = sorted(ends - site_names.keys())
            if stray or len(ends) != 2:
                raise ProblemError(f"a link between {sorted(ends)} is not between two sites of the problem")
            if not capacity >= 0:
                raise ProblemError(f"the link between {sorted(ends)} has the capacity {capacity}")

    @property
    def site_index(self) -> dict[str, int]:
        """Index of each site by its name."""
        return {site.name: index for index, site in enumerate(self.sites)}

    @property
    def flow_index(self) -> dict[str, int]:
        """Index of each stream by its name."""
        return {flow.name: index for index, flow in enumerate(self.flows)}

    def linked(self, one: str, other: str) -> bool:
        """Whether a site can forward to another one; one that nobody can dial forwards to none."""
        joined = not self.physical or frozenset((one, other)) in self.capacities
        return one != other and joined and one not in self.leaves

    @cached_property
    def leaves(self) -> frozenset[str]:
        """The sites that nobody can dial."""
        return frozenset(site.name for site in self.sites if site.is_private)


def unreachable(problem: Problem) -> list[tuple[str, str]]:
    """Members (stream, site) that no chain of links through members and relays of their stream joins to the root."""
    if not problem.physical:
        return []
    neighbours: dict[str, set[str]] = {}
    for ends in problem.capacities:
        one, other = tuple(ends)
        for parent, child in ((one, other), (other, one)):
            if parent not in problem.leaves:
                neighbours.setdefault(parent, set()).add(child)
    wanted: dict[str, set[str]] = {}
    for member in problem.members:
        wanted.setdefault(member.stream, set()).add(member.site)
    missing: list[tuple[str, str]] = []
    for flow in problem.flows:
        allowed = wanted.get(flow.name, set()) | problem.relays
        reached, pending = {flow.root}, [flow.root]
        while pending:
            for found in neighbours.get(pending.pop(), set()) & allowed - reached:
                reached.add(found)
                pending.append(found)
        missing += [(flow.name, site) for site in sorted(wanted.get(flow.name, set()) - reached)]
    return missing


def _distinct(what: str, names: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for position, name in enumerate(names):
        if name in found:
            raise ProblemError(f"two {what}s are called {name!r}", hint="give each its own name")
        found[name] = position
    return found


def _check_site(site: Site) -> None:
    for what, value in (("upload", site.upload_bytes_per_s), ("download", site.download_bytes_per_s)):
        if value is not None and not value >= 0:
            raise ProblemError(f"site {site.name!r} has the {what} {value}", hint="bytes per second, at least 0")
    _finite("processing delay", site.name, site.processing_delay_s)


def _finite(what: str, name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ProblemError(f"{name!r} has the {what} {value}", hint="a finite number of at least 0")


def tree_members(problem: Problem) -> Sequence[Member]:
    """Members that need a parent: all but those at the root of their own stream."""
    roots = {flow.name: flow.root for flow in problem.flows}
    return [member for member in problem.members if member.site != roots[member.stream]]
