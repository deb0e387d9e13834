"""A deployment and its plan as the tuner sees them: one overlay and one shape for each stream, priced together.

Sites, delays, interests and rates come from the planner's `Problem`, and so do attained and granted quality, so that
planner and tuner judge a plan by the same figures. What a site does in one tree counts in all of them: fanout,
outgoing data, matching and bandwidth are sums over its trees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations
from typing import Any

import numpy as np

from headgate.model import Plan, Quality
from headgate.planning import Graph, Problem, predict
from headgate.tuning.compile import Compiled
from headgate.tuning.evaluate import SITE_WIDE, TreeView, evaluate, together
from headgate.tuning.overlay import Bits, Floats, LinkMetric, MatrixMetric, Overlay, PieceSizes, Profiles
from headgate.tuning.shape import Shape

# Metrics that tie the whole plan to the planner's model.
WHOLE_PLAN = frozenset({"attained_quality", "granted_shortfall"})
ROWS, BYTES = "rows counted, bytes of a row assumed", "rows and bytes on links measured"
_LONG_S = 86_400.0


@dataclass(frozen=True)
class MeasuredScene:
    """What a running deployment measured.

    Attributes:
        links: Values by metric and pair of sites, the same in both directions.
        directed: Values by metric, sender and receiver, for what differs between the directions.
        sites: Values by metric and site.
        rates: By stream, how its rows and bytes are known (`ROWS` or `BYTES`); others are as declared or assumed.
    """

    links: Mapping[str, Mapping[tuple[str, str], float]] = field(default_factory=dict)
    directed: Mapping[str, Mapping[tuple[str, str], float]] = field(default_factory=dict)
    sites: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    rates: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scene:
    """The streams of a problem as overlays with numbered sites. Shapes come from plans."""

    problem: Problem
    measured: MeasuredScene = field(default_factory=MeasuredScene)

    @cached_property
    def names(self) -> list[str]:
        """Sites by number."""
        return [site.name for site in self.problem.sites]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Numbers by site."""
        return self.problem.site_index

    @cached_property
    def streams(self) -> list[str]:
        """Streams in the problem's order."""
        return [flow.name for flow in self.problem.flows]

    @cached_property
    def constants(self) -> dict[str, Floats]:
        """Site values that no tree changes."""
        sites = self.problem.sites
        found = {
            "upload_bandwidth": [_known(site.upload_bytes_per_s) for site in sites],
            "download_bandwidth": [_known(site.download_bytes_per_s) for site in sites],
            "processing_delay": [site.processing_delay_s for site in sites],
        }
        arrays = {name: np.array(values, dtype=np.float64) for name, values in found.items()}
        for name, values in self.measured.sites.items():
            known = arrays.setdefault(name, np.zeros(len(sites)))
            for site, value in values.items():
                known[self.numbers[site]] = value
        return arrays

    @cached_property
    def links(self) -> dict[str, LinkMetric]:
        """Link metrics: the planner's delays, capacities where known and else what both ends can do, measured loss.

        A site that gives up a part of what it owes its children would do so on a link that nobody uses yet, too.
        """
        size = len(self.names)
        latency = self.problem.delays.matrix_s
        if latency is None:
            latency = np.array([[self.problem.delays.between(a, b) for b in range(size)] for a in range(size)])
        latency = latency.copy()
        np.fill_diagonal(latency, 0.0)
        bandwidth = np.minimum(
            self.constants["download_bandwidth"][:, None], self.constants["upload_bandwidth"][None, :]
        )
        for pair, capacity in self.problem.capacities.items():
            one, other = (self.numbers[name] for name in pair)
            for child, parent in ((one, other), (other, one)):
                bandwidth[child, parent] = min(bandwidth[child, parent], capacity)
        loss = np.tile(self.constants.get("loss_rate", np.zeros(size)), (size, 1))  # of a child's link to its parent
        found = {"link_latency": latency, "link_bandwidth": bandwidth, "link_loss": loss}
        for name, values in self.measured.links.items():
            for ends, value in values.items():
                a, b = (self.numbers[name] for name in ends)
                found[name][a, b] = found[name][b, a] = value
        for name, values in self.measured.directed.items():
            for (sender, receiver), value in values.items():
                found[name][self.numbers[receiver], self.numbers[sender]] = value
        return {name: MatrixMetric(values) for name, values in found.items()}

    @cached_property
    def joins(self) -> frozenset[tuple[int, int]] | None:
        """The pairs of child and parent that can connect, by number; None when all can."""
        problem = self.problem
        if not problem.physical:
            return None
        pairs = permutations(enumerate(self.names), 2)
        return frozenset((child, parent) for (child, one), (parent, other) in pairs if problem.linked(other, one))

    @cached_property
    def overlays(self) -> dict[str, Overlay]:
        """One overlay for each stream: the sites with their interest in it."""
        size, found = len(self.names), {}
        for flow in self.problem.flows:
            universe = flow.universe
            sizing = PieceSizes(
                np.array(universe.weights), np.array(universe.widths), universe.base_bytes, flow.rate_rows_per_s
            )
            bits: Bits = np.zeros((size, sizing.atoms), dtype=np.bool_)
            clients = np.zeros(size, dtype=np.int64)
            granted = np.full(size, np.inf)
            for member in self.problem.members:
                if member.stream == flow.name:
                    site = self.numbers[member.site]
                    clients[site] = len(member.wants)
                    granted[site] = min((_granted_delay_s(want.quality) for want in member.wants), default=np.inf)
                    bits[site] = _bits(member.interest.rows, len(universe.weights)) + _bits(
                        member.interest.columns, len(universe.widths)
                    )
            constants = {**self.constants, "granted_delay": granted}
            found[flow.name] = Overlay(size, self.links, constants, Profiles(bits, sizing), clients, joins=self.joins)
        return found

    def shapes(self, plan: Plan) -> dict[str, Shape]:
        """The shapes of a plan's trees; a stream without a tree is its root alone."""
        found: dict[str, Shape] = {}
        for flow in self.problem.flows:
            tree = plan.trees.get(flow.name)
            if tree is None:
                parents = [-2] * len(self.names)
                parents[self.numbers[flow.root]] = -1
                found[flow.name] = Shape(parents)
            else:
                found[flow.name] = Shape.of(tree, self.numbers)
        return found

    def plan(self, shapes: Mapping[str, Shape]) -> Plan:
        """The plan of some shapes."""
        return Plan({stream: shape.tree(stream, self.names) for stream, shape in shapes.items()})

    def views(self, shapes: Mapping[str, Shape], metrics: frozenset[str]) -> list[TreeView]:
        """Views of all trees, each knowing what its sites do in the others."""
        given = self._given(shapes) if metrics & WHOLE_PLAN else {}
        views = [TreeView(self.overlays[stream], shapes[stream], {}, given.get(stream, {})) for stream in self.streams]
        return together(views) if metrics & SITE_WIDE else views

    def _given(self, shapes: Mapping[str, Shape]) -> dict[str, dict[str, Floats]]:
        """Quality under the planner's drop and delay model, by stream and site."""
        graph = Graph.of(self.problem, self.plan(shapes))
        size = len(self.names)
        found: dict[str, dict[str, Floats]] = {
            stream: {"attained_quality": np.full(size, np.nan), "granted_shortfall": np.zeros(size)}
            for stream in self.streams
        }
        gathered: dict[tuple[str, str], list[float]] = {}
        for prediction in predict(graph):
            gathered.setdefault((prediction.stream, prediction.site), []).append(prediction.quality)
            if prediction.at_least is not None:
                short = max(0.0, prediction.at_least - prediction.quality)
                found[prediction.stream]["granted_shortfall"][self.numbers[prediction.site]] += short
        for (stream, site), qualities in gathered.items():
            found[stream]["attained_quality"][self.numbers[site]] = float(np.mean(qualities))
        return found

    def cost(self, compiled: Compiled, shapes: Mapping[str, Shape]) -> float:
        """A system cost over all trees."""
        return evaluate(compiled, self.views(shapes, compiled.metrics))


def tree_by_tree(compiled: Compiled, streams: Sequence[Any]) -> bool:
    """Whether a change of one tree leaves the costs in the other trees alone, so that its unit can price it."""
    if compiled.metrics & WHOLE_PLAN:
        return False
    return len(streams) == 1 or not compiled.metrics & SITE_WIDE


def _granted_delay_s(quality: Quality) -> float:
    """The longest delay at which a subscription that loses nothing has the quality that it was granted; 0 if none."""
    if quality.at_least is None or quality.value(0.0, _LONG_S) >= quality.at_least:
        return np.inf
    low, high = 0.0, _LONG_S
    for _ in range(60):  # quality never rises with delay: halve the interval
        middle = (low + high) / 2
        low, high = (middle, high) if quality.value(0.0, middle) >= quality.at_least else (low, middle)
    return low


def _known(bandwidth: float | None) -> float:
    return float("inf") if bandwidth is None else bandwidth


def _bits(number: int, count: int) -> Any:
    return np.array([bool(number >> place & 1) for place in range(count)] or [], dtype=np.bool_).tolist()
