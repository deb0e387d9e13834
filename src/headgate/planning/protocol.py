"""The join as a protocol between requesters, control points and the network (section 5, figure 3, Algorithm 2).

A request goes to the control point of the stream. It names a temporary parent; the network assigns it, with expansions
up the path; after settling the control point reads feedback: drop, delay and shedding of its own members. It confirms,
or withdraws and tries again, or falls back to best effort. The control point of a source knows its own trees only; a
global one is made with all streams. `Feedback` is the model's network (`oracle.ModelNetwork`) or the live system's
measurements; nothing here knows which. Vectorised with NumPy, and the oracle of the compiled constructions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headgate.planning.interest import InterestPieces
from headgate.planning.problem import Flow, Want

F8 = npt.NDArray[np.float64]
TIE = 1e-9


class Feedback(Protocol):
    """What a control point can do to the network and read from it, for streams that it controls."""

    def assign(self, stream: str, child: str, parent: str) -> None:
        """Let the parent serve the child, expand links on the path, and let the network settle."""
        ...

    def withdraw(self, stream: str, child: str) -> None:
        """Undo a temporary assignment; drops are as before once it has settled."""
        ...

    def kept(self, stream: str, site: str) -> float:
        """Fraction of its rows that a member receives."""
        ...

    def delay_s(self, stream: str, site: str) -> float:
        """Mean delay of a member from the source."""
        ...

    def shed(self, site: str) -> float:
        """Fraction that a site drops when forwarding, over all its streams."""
        ...

    def hop_s(self, one: str, other: str) -> float:
        """Measured delay between two sites that serve each other, or the mean of the system when they are the same."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """A member asks to join: who, on which stream, with which filter and QoS functions."""

    stream: str
    site: str
    interest: InterestPieces
    wants: tuple[Want, ...]
    bulk: float = 1.0


@dataclass
class _Tree:
    """What a control point keeps of one delivery tree: members in the order of joining, the source first."""

    flow: Flow
    sites: list[str]
    own: list[InterestPieces]
    link: list[InterestPieces]  # filter of the link into each member
    bulk: list[float] = field(default_factory=lambda: [1.0])
    parent: list[int] = field(default_factory=lambda: [-1])
    above: npt.NDArray[np.bool_] = field(
        default_factory=lambda: np.ones((1, 1), np.bool_)
    )  # [member, ancestor or self]

    @property
    def sizes(self) -> F8:
        """Bytes per second on the link into each member, 0 for the source."""
        rate, links = self.flow.rate_rows_per_s, zip(self.bulk[1:], self.link[1:], strict=True)
        return np.array([0.0, *(rate * bulk * link.size for bulk, link in links)])

    @property
    def depth(self) -> F8:
        """Links between each member and the source."""
        return np.asarray(self.above.sum(axis=1) - 1.0)

    def add(self, request: Request, parent: int) -> None:
        """Hang a requester under a member and expand the links above it."""
        at = parent
        while at > 0:
            self.link[at] = self.link[at].merge(request.interest)
            at = self.parent[at]
        self.sites.append(request.site)
        self.own.append(request.interest)
        self.link.append(request.interest)
        self.bulk.append(request.bulk)
        self.parent.append(parent)
        count = len(self.sites)
        grown = np.zeros((count, count), np.bool_)
        grown[:-1, :-1] = self.above
        grown[-1, :-1] = self.above[parent]
        grown[-1, -1] = True
        self.above = grown


class ControlPoint:
    """The assignments of the streams it controls: UNFA without feedback, QASD with it."""

    def __init__(
        self, flows: tuple[Flow, ...], feedback: Feedback, mean_hop_s: float, slack: dict[str, float] | None = None
    ) -> None:
        """`slack` is what was learned of sites before, and is kept up to date."""
        self._feedback = feedback
        self._mean_hop_s = mean_hop_s
        self._trees = {
            flow.name: _Tree(flow, [flow.root], [flow.universe.everything], [flow.universe.everything])
            for flow in flows
        }
        self._slack: dict[str, float] = {} if slack is None else slack
        self._hops: dict[str, list[float]] = {}

    def adopt(self, request: Request, parent: str) -> None:
        """Take note of a member that is served already; parents come before their children."""
        tree = self._trees[request.stream]
        self._keep(tree, request, tree.sites.index(parent))

    def join_unfa(self, request: Request) -> str:
        """Algorithm 1: the parent with the smallest product of the variances of forwarding and depth."""
        tree = self._trees[request.stream]
        chosen = self._fairest(tree, request, np.arange(len(tree.sites)), with_depth=True)
        self._confirm(tree, request, chosen)
        return tree.sites[chosen]

    def join_qasd(self, request: Request) -> tuple[str, int]:
        """Algorithm 2: the parent that was confirmed, and the rounds it took."""
        tree = self._trees[request.stream]
        needed = tree.flow.rate_rows_per_s * request.bulk * request.interest.size
        rounds = 0
        while True:
            rounds += 1
            chosen = self._choice(tree, request, needed)
            if chosen < 0:
                break
            site = tree.sites[chosen]
            part = self._feedback.kept(request.stream, site) * needed
            before = self._pushed(site)
            self._feedback.assign(request.stream, request.site, site)
            shed = self._feedback.shed(site)
            if shed <= TIE:
                self._slack[site] = self._slack.get(site, np.inf) - part
                self._keep(tree, request, chosen)
                return site, rounds
            self._feedback.withdraw(request.stream, request.site)
            self._slack[site] = (1.0 - shed) * (before + part) - before
        chosen = self._fairest(tree, request, np.arange(len(tree.sites)), with_depth=False)
        self._confirm(tree, request, chosen)
        for site in {site for known in self._trees.values() for site in known.sites}:
            if self._feedback.shed(site) > TIE:
                self._slack[site] = 0.0
        return tree.sites[chosen], rounds

    def _confirm(self, tree: _Tree, request: Request, chosen: int) -> None:
        self._feedback.assign(request.stream, request.site, tree.sites[chosen])
        self._keep(tree, request, chosen)

    def _keep(self, tree: _Tree, request: Request, chosen: int) -> None:
        site = tree.sites[chosen]
        self._hops.setdefault(site, []).append(self._feedback.hop_s(site, request.site))
        tree.add(request, chosen)

    def _choice(self, tree: _Tree, request: Request, needed: float) -> int:
        """Lines 1 to 7 of Algorithm 2 over all members at once."""
        kept = np.array([self._feedback.kept(request.stream, site) for site in tree.sites])
        slack = np.array([self._slack.get(site, np.inf) for site in tree.sites])
        fits = np.array([own.covers(request.interest) for own in tree.own])
        able = np.flatnonzero(fits & (slack > 0.0) & (slack >= kept * needed * (1.0 - TIE)))
        if not len(able):
            return -1
        hop = [float(np.mean(self._hops.get(tree.sites[k], [self._mean_hop_s]))) for k in able]
        delay = [self._feedback.delay_s(request.stream, tree.sites[k]) + h for k, h in zip(able, hop, strict=True)]
        drop = np.where(1.0 - kept[able] > TIE, 1.0 - kept[able], 0.0)
        weight = sum(want.weight for want in request.wants)
        quality = np.array(
            [
                sum(want.weight * want.quality.value(float(r), d) for want in request.wants) / weight
                for r, d in zip(drop, delay, strict=True)
            ]
        )
        ties = able[quality >= quality.max() - TIE]
        return int(ties[0]) if len(ties) == 1 else self._fairest(tree, request, ties, with_depth=False)

    def _fairest(self, tree: _Tree, request: Request, candidates: npt.NDArray[np.int64], *, with_depth: bool) -> int:
        """The candidate with the least variance of forwarding (times that of depth) over the tree's members."""
        count, rate = len(tree.sites), tree.flow.rate_rows_per_s
        wider = [rate * (link.merge(request.interest).size - link.size) for link in tree.link[1:]]
        added = np.array([0.0, *wider]) * tree.bulk
        change = np.zeros((count, count))
        np.add.at(change.T, np.array(tree.parent[1:], np.int64), (tree.above[:, 1:] * added[1:]).T)
        change[np.arange(count), np.arange(count)] += rate * request.bulk * request.interest.size
        loads = np.array([self._forwarded(site) for site in tree.sites]) + change[candidates]
        cost = np.column_stack([loads, np.zeros(len(candidates))]).var(axis=1)
        cost = np.where(cost < 1e-12 * (loads**2).sum(axis=1), 0.0, cost)
        if with_depth:
            depths = np.column_stack([np.tile(tree.depth, (len(candidates), 1)), tree.depth[candidates] + 1])
            cost = cost * depths.var(axis=1)
        return int(candidates[np.flatnonzero(cost <= cost.min() * (1.0 + TIE))[0]])

    def _forwarded(self, site: str) -> float:
        """Bytes per second a site forwards without drops in the trees that are known here."""
        total = 0.0
        for tree in self._trees.values():
            if site in tree.sites:
                children = np.array(tree.parent) == tree.sites.index(site)
                total += float(tree.sizes[children].sum())
        return total

    def _pushed(self, site: str) -> float:
        """X of Algorithm 2: what a site pushes in the trees that are known here, after drops above it."""
        total = 0.0
        for name, tree in self._trees.items():
            if site in tree.sites:
                children = np.array(tree.parent) == tree.sites.index(site)
                total += float(tree.sizes[children].sum()) * self._feedback.kept(name, site)
        return total
