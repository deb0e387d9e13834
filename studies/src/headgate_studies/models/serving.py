"""One run of the grid paper's evaluation: queries arrive until one is refused, with marks on the way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headgate.grid.serving.overlay import ServingOverlay
from headgate.grid.serving.partition import Partition
from headgate_studies.models.serving_bound import most_served
from headgate_studies.workloads.serving import HotSpot, cut, index_space

# Exponents of the two hot spots: bounds of the small one lie mostly within a few steps of its centre. A much larger
# exponent makes queries so tiny that hundreds of thousands are needed to fill the sites.
LARGE, SMALL = 0.5, 1.0


@dataclass(frozen=True, slots=True)
class Mark:
    """The overlay when the clients' load first reached a level; loads and bandwidths as shares of all capacity."""

    client_load: float
    replication: float
    connections: int
    messages: int
    queries: int


@dataclass(frozen=True, slots=True)
class ServingRun:
    """How far a run came: marks at the levels asked for, and the state at the first refusal (or at the end).

    `bound` is the client load that no plan could exceed with these queries (section 3.3).
    """

    marks: dict[float, Mark]
    end: Mark
    refused: bool
    bound: float


def fill(
    *,
    dimensions: int,
    digits: int,
    exponent: float,
    seed: int,
    side: int = 4,
    times: int = 25,
    most: float = 1.0,
    levels: tuple[float, ...] = (),
    stop_at: float = 2.0,
    paper: bool = True,
) -> ServingRun:
    """Ask queries around the centre until one is refused or the load reaches `stop_at`.

    `side` by `side` sites have bandwidth for `times` their own region each; `most` limits one query to that share of a
    site's bandwidth. The seed alone decides the queries, so runs over different indexes get the same ones.
    """
    space = index_space(dimensions)
    partition = Partition.squares(space, side)
    capacity = times * space.cells // (side * side)
    overlay = ServingOverlay(partition, capacity, limit=digits, paper=paper)
    rng = np.random.default_rng(seed)
    boxes = HotSpot(exponent, most=most * capacity / space.cells).boxes(rng)
    entrances = np.random.default_rng([seed, 1])
    marks: dict[float, Mark] = {}
    refused = False
    asked: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    mark = _mark(overlay, 0)
    for identity, (low, high) in enumerate(boxes):
        entrance = partition.sites[int(entrances.integers(len(partition.sites)))]
        overlay.ask(entrance, cut(space, identity, low, high, digits))
        overlay.run()
        refused = overlay.clients[identity].refused
        if refused:
            break
        asked.append((low, high))
        mark = _mark(overlay, identity + 1)
        for level in levels:
            if level not in marks and mark.client_load >= level:
                marks[level] = mark
        if mark.client_load >= stop_at:
            break
    lows, highs = zip(*asked, strict=True) if asked else ((), ())
    bound = most_served(lows, highs, side, times) if asked else 1.0
    return ServingRun(marks, mark, refused, bound)


def _mark(overlay: ServingOverlay, queries: int) -> Mark:
    return Mark(
        overlay.client_load / overlay.capacity,
        overlay.replication / overlay.capacity,
        overlay.connections,
        overlay.control_messages,
        queries,
    )
