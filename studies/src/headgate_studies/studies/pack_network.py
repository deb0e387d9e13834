"""Several subscriptions over shared links in simulated time: what `pack-fairness` runs.

Each link is a `LinkBuffer` served first in, first out at its capacity, or a drop-tail queue as the peer. Rows of a
subscription cross its links in order. All rows have one size, so rows per second stand for bytes per second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headgate.model import Schema
from headgate.reduction import parse_policy
from headgate_studies.models.link_buffer import LinkBuffer

SCHEMA = Schema.of({"value": "double"})


@dataclass(frozen=True, slots=True)
class PackFlow:
    """One subscription: how many rows per second it wants, the links that they cross, its policy, weight, priority."""

    name: str
    rate: float
    path: tuple[str, ...]
    policy: Mapping[str, Any] | None = None
    weight: float = 1.0


@dataclass(slots=True)
class FlowOutcome:
    """What one subscription got."""

    sent: int = 0
    delivered: int = 0
    reduced: int = 0
    delay_s: list[float] = field(default_factory=list)


def fair_shares(flows: Sequence[PackFlow], capacity: Mapping[str, float]) -> dict[str, float]:
    """Max-min fair rates by progressive filling: all rates rise together, a flow stops when a link of it is full.

    >>> flows = [PackFlow("a", 9, ("x",)), PackFlow("b", 9, ("x", "y")), PackFlow("c", 9, ("y",))]
    >>> fair_shares(flows, {"x": 4.0, "y": 6.0})
    {'a': 2.0, 'b': 2.0, 'c': 4.0}
    """
    rate = {flow.name: 0.0 for flow in flows}
    active = {flow.name for flow in flows}
    left = dict(capacity)
    while active:
        growing = [flow for flow in flows if flow.name in active]
        steps = [(flow.rate - rate[flow.name]) / flow.weight for flow in growing]
        for link, room in left.items():
            load = sum(flow.weight for flow in growing if link in flow.path)
            if load:
                steps.append(room / load)
        step = max(0.0, min(steps))
        for flow in growing:
            rate[flow.name] += step * flow.weight
            for link in flow.path:
                left[link] -= step * flow.weight
        full = {link for link, room in left.items() if room <= 1e-9}
        active -= {flow.name for flow in growing if rate[flow.name] >= flow.rate - 1e-9 or full & set(flow.path)}
    return rate


class _Link:
    """A link: what waits, under our buffer or under drop-tail, and who sent it when."""

    def __init__(self, flows: Sequence[PackFlow], limit: int, ours: bool) -> None:
        self.ours = ours
        self.limit = limit
        self.sequence = 0
        self.born: dict[int, tuple[int, float]] = {}
        self.tail: deque[tuple[int, float]] = deque()
        self.buffer = LinkBuffer(SCHEMA, limit)
        self.index = dict(enumerate(flows))
        if ours:
            for number, flow in self.index.items():
                self.buffer.add(flow.name, number, parse_policy(flow.policy, SCHEMA), flow.weight)

    def offer(self, arrivals: list[tuple[int, float]], values: NDArray[np.float64], now: float) -> list[int]:
        """Rows that arrive now (flow number, birth time); gives the flows of rows refused at once (drop-tail)."""
        if not self.ours:
            room = self.limit - len(self.tail)
            self.tail.extend(arrivals[:room])
            return [flow for flow, _ in arrivals[room:]]
        if arrivals:
            seqs = self.sequence + 1 + np.arange(len(arrivals), dtype=np.uint64)
            self.sequence += len(arrivals)
            self.born.update(zip(seqs.tolist(), arrivals, strict=True))
            classes = np.array([flow for flow, _ in arrivals], dtype=np.int64)
            rows = pa.RecordBatch.from_arrays([pa.array(values[: len(arrivals)])], schema=SCHEMA.arrow)
            self.buffer.offer(seqs, rows, np.arange(len(arrivals) + 1), classes, now)
        return []

    def serve(self, rows: int) -> tuple[list[tuple[int, float]], dict[int, int]]:
        """The next rows, and how many rows of each flow were reduced before them."""
        if not self.ours:
            return [self.tail.popleft() for _ in range(min(rows, len(self.tail)))], {}
        taken = self.buffer.take(rows)
        reduced = {number: digest.count for number, digest in taken.digests.items()}
        return [self.born[seq] for seq in taken.seqs.tolist()], reduced


def simulate(
    flows: Sequence[PackFlow],
    capacity: Mapping[str, float],
    *,
    seconds: float,
    limit: int,
    ours: bool,
    seed: int,
    step_s: float = 0.1,
) -> dict[str, FlowOutcome]:
    """Run the flows over the links; Poisson arrivals, the first fifth of the time is not counted."""
    rng = np.random.default_rng(seed)
    links = {name: _Link(flows, limit, ours) for name in capacity}
    outcomes = {flow.name: FlowOutcome() for flow in flows}
    credit = dict.fromkeys(capacity, 0.0)
    steps = int(seconds / step_s)
    for step in range(steps):
        now = step * step_s
        counted = step >= steps // 5
        arriving: dict[str, list[tuple[int, float]]] = {name: [] for name in capacity}
        for number, flow in enumerate(flows):
            count = int(rng.poisson(flow.rate * step_s))
            outcomes[flow.name].sent += count if counted else 0
            arriving[flow.path[0]] += [(number, now)] * count
        for name, link in links.items():
            offered = [arriving[name][index] for index in rng.permutation(len(arriving[name]))]
            lost = link.offer(offered, rng.normal(size=max(1, len(offered))), now)
            credit[name] += capacity[name] * step_s
            rows = int(credit[name])
            credit[name] -= rows
            passed, reduced = link.serve(rows)
            for number in lost:
                outcomes[flows[number].name].reduced += counted
            for number, count in reduced.items():
                outcomes[flows[number].name].reduced += count if counted else 0
            for number, born in passed:
                flow = flows[number]
                place = flow.path.index(name)
                if place + 1 < len(flow.path):
                    arriving[flow.path[place + 1]].append((number, born))
                elif counted:
                    outcomes[flow.name].delivered += 1
                    outcomes[flow.name].delay_s.append(now + step_s - born)
    return outcomes
