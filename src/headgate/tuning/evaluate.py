"""The cost of a tree from scratch: the definition that every incremental equation must equal, and the tuner's oracle.

All sites at once on arrays, walking the tree once down for paths and once up for merged profiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from headgate.tuning.aggregate import system_cost
from headgate.tuning.compile import Compiled, Term
from headgate.tuning.language.vocabulary import unknown_value
from headgate.tuning.overlay import Bits, Floats, Ints, Overlay
from headgate.tuning.shape import Shape

SITE_WIDE = frozenset({"fanout", "outgoing_rate", "upload_excess", "download_excess", "matching_cpu"})
"""Metrics of a site that count all its trees, and so tie the trees of a plan together."""


@dataclass(frozen=True)
class TreeView:
    """Every site of one tree at once. `elsewhere` holds what the sites do in the other trees, by metric."""

    overlay: Overlay
    shape: Shape
    elsewhere: Mapping[str, Floats] = field(default_factory=dict)
    given: Mapping[str, Floats] = field(default_factory=dict)

    @cached_property
    def parents(self) -> Ints:
        """Parents by site; below 0 for the root and for sites outside of the tree."""
        return self.shape.array()

    @cached_property
    def merged(self) -> Bits:
        """The merged profile of each site: its own and everything below it."""
        merged = self.overlay.wanted.bits.copy()
        for site in reversed(self.shape.order):
            parent = self.shape.parents[site]
            if parent >= 0:
                merged[parent] |= merged[site]
        return merged

    def state(self, name: str) -> Bits:
        """Profiles, one row a site."""
        if name == "own_profile":
            return self.overlay.wanted.bits
        if name == "merged_profile":
            return self.merged
        below = np.zeros_like(self.merged)
        for site in self.shape.order:
            if (parent := self.shape.parents[site]) >= 0:
                below[parent] |= self.merged[site]
        return below

    def size(self, profile: Bits) -> Floats:
        """Bytes per second, one value a site."""
        return self.overlay.wanted.sizes(profile)

    @cached_property
    def _known(self) -> dict[str, Floats]:
        return {}

    def metric(self, name: str) -> Floats:
        """A metric, one value a site; NaN where a link metric has no link."""
        if name not in self._known:
            self._known[name] = self._metric(name)
        return self._known[name]

    def _metric(self, name: str) -> Floats:
        if name in self.given:
            return self.given[name]
        if name.startswith("link_"):
            return self._link(name)
        computed = getattr(self, f"_{name}", None)
        if computed is not None:
            return np.asarray(computed(), dtype=np.float64)
        return self.overlay.constants.get(name, np.full(self.overlay.size, unknown_value(name)))

    def _link(self, name: str) -> Floats:
        values = np.full(self.overlay.size, np.nan)
        linked = np.flatnonzero(self.parents >= 0)
        if name == "link_hop":
            values[linked] = 1.0
        else:
            values[linked] = self.overlay.links[name].pairs(linked, self.parents[linked])
        return values

    def _more(self, name: str) -> Floats | float:
        return self.elsewhere.get(name, 0.0)

    def _over_children(self, values: Floats) -> Floats:
        linked = self.parents >= 0
        return np.bincount(self.parents[linked], values[linked], minlength=self.overlay.size).astype(np.float64)

    def _fanout(self) -> Floats:
        return self._over_children(np.ones(self.overlay.size)) + self._more("fanout")

    def _clients(self) -> Floats:
        return self.overlay.client_counts.astype(np.float64)

    def _incoming_rate(self) -> Floats:
        return self.size(self.merged)

    def _own_rate(self) -> Floats:
        return self.size(self.overlay.wanted.bits)

    def _superfluous_data(self) -> Floats:
        extra = self.metric("incoming_rate") - self.metric("own_rate")
        extra[self.shape.root] = 0.0
        return extra

    def _outgoing_rate(self) -> Floats:
        return self._over_children(self.metric("incoming_rate")) + self._more("outgoing_rate")

    def _upload_excess(self) -> Floats:
        return np.maximum(0.0, self.metric("outgoing_rate") - self.metric("upload_bandwidth"))

    def _download_excess(self) -> Floats:
        here = self.metric("incoming_rate").copy()
        here[self.shape.root] = 0.0  # the root holds the stream, it does not download it
        return np.maximum(0.0, here + self._more("incoming_rate") - self.metric("download_bandwidth"))

    def _matching_cpu(self) -> Floats:
        entries = self.metric("fanout") + self.metric("clients") + self._more("entries")
        moved = self.metric("incoming_rate") + self._more("matched_rate")
        return self.overlay.match_entry_s * entries + self.overlay.match_byte_s * moved

    def shares(self) -> dict[str, Floats]:
        """What every site does in this tree, as far as its other trees have to know; 0 for sites outside of it.

        A root matches its whole stream but does not download it.
        """
        member = self.parents != -2
        matched = np.where(member, self.metric("incoming_rate"), 0.0)
        incoming = matched.copy()
        incoming[self.shape.root] = 0.0
        return {
            "fanout": self._over_children(np.ones(self.overlay.size)),
            "outgoing_rate": self._over_children(self.metric("incoming_rate")),
            "incoming_rate": incoming,
            "matched_rate": matched,
            "entries": np.where(member, self.metric("clients"), 0.0),
        }


def together(views: Sequence[TreeView]) -> list[TreeView]:
    """Trees over the same sites, each knowing what its sites do in the others."""
    if len(views) == 1:
        return list(views)
    shares = [view.shares() for view in views]
    total = {name: np.sum([share[name] for share in shares], axis=0) for name in shares[0]}
    return [
        TreeView(view.overlay, view.shape, {name: total[name] - share[name] for name in total}, view.given)
        for view, share in zip(views, shares, strict=True)
    ]


def term_values(term: Term, view: TreeView) -> Floats:
    """A term's value for every site; NaN where its set is empty and it is not a sum over children."""
    shape = view.shape
    local = np.broadcast_to(np.asarray(term.value(view), dtype=np.float64), (view.overlay.size,))
    if term.kind == "local":
        return np.array(local)
    return _over_path(term, local, shape) if term.kind == "path" else _over_children(term, local, shape)


def _over_path(term: Term, local: Floats, shape: Shape) -> Floats:
    total, count = [np.nan] * len(local), [0] * len(local)
    values = local.tolist()
    for site in shape.order:
        parent, here = shape.parents[site], values[site]
        above, steps = (total[parent], count[parent]) if parent >= 0 else (np.nan, 0)
        if parent < 0 and term.on_link:  # the root has no link: a sum over none is 0, as equation 3 needs it
            total[site] = 0.0 if term.function == "sum" else np.nan
            continue
        count[site] = steps + 1
        if steps == 0:
            total[site] = here
        elif term.function in ("sum", "average"):
            total[site] = above + here
        else:
            total[site] = min(above, here) if term.function == "min" else max(above, here)
    result = np.array(total, dtype=np.float64)
    return result / np.maximum(count, 1) if term.function == "average" else result


def _over_children(term: Term, local: Floats, shape: Shape) -> Floats:
    values = local.tolist()
    result = [np.nan] * len(values)
    for site in shape.order:
        found = [values[child] for child in shape.children[site]]
        if term.function == "sum":
            result[site] = sum(found)
        elif found:
            result[site] = sum(found) / len(found) if term.function == "average" else _extreme(term.function, found)
    return np.array(result, dtype=np.float64)


def _extreme(function: str, values: list[float]) -> float:
    if any(map(math.isnan, values)):
        return math.nan
    return min(values) if function == "min" else max(values)


def node_costs(compiled: Compiled, view: TreeView) -> Floats:
    """The cost of every site, NaN for sites without one or outside of the tree."""
    values = tuple(term_values(term, view) for term in compiled.terms)
    costs = values[0] if compiled.combine is None else np.asarray(compiled.combine(values), dtype=np.float64)
    costs = np.array(np.broadcast_to(costs, (view.overlay.size,)))
    costs[view.parents == -2] = np.nan
    return costs


def evaluate(compiled: Compiled, views: TreeView | Sequence[TreeView]) -> float:
    """The system cost over one tree or over all trees of a plan."""
    trees = [views] if isinstance(views, TreeView) else list(views)
    costs = np.concatenate([node_costs(compiled, view) for view in trees])
    weights = np.concatenate([view.overlay.weights(compiled.over) for view in trees])
    return system_cost(compiled.function, costs, weights)
