"""Queries around a hot spot, as in the grid paper's evaluation (section 5), on any index of the same field.

The field has `STEPS` steps along x, y and each resolution. Lower and upper bounds lie a Zipf-distributed distance from
the centre of the hot spot; both resolutions are uniform. The same query can be asked of an index over two dimensions
(x, y), three (with the spatial resolution) or four, always with the same bandwidth in finest cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headgate.grid.decompose import bounded_batch, decompose_batch
from headgate.grid.serving.messages import Demand, Parts
from headgate.grid.space import DzSpace

STEP_BITS = 10
STEPS = 1 << STEP_BITS
NAMES = ("x", "y", "space", "time")


def index_space(dimensions: int) -> DzSpace:
    """The space of an index over the first 2, 3 or 4 dimensions, always with 40 digits, so that bandwidths compare."""
    if dimensions not in (2, 3, 4):
        raise ValueError("an index has 2, 3 or 4 dimensions")
    depths = {2: (20, 20), 3: (14, 13, 13), 4: (10, 10, 10, 10)}[dimensions]
    return DzSpace.round_robin(dict(zip(NAMES, depths, strict=False)))


@dataclass(frozen=True, slots=True)
class HotSpot:
    """A source of queries. `exponent` is small for a large hot spot; `most` limits a query's share of the field."""

    exponent: float
    centre: tuple[float, float] = (0.5, 0.5)
    most: float = 1.0

    def boxes(self, rng: np.random.Generator) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Endless boxes in steps of the field: lower and upper corner over x, y, space, time."""
        distances = np.arange(1, STEPS // 2 + 1)
        weights = distances**-self.exponent
        weights /= weights.sum()
        while True:
            away = rng.choice(distances, size=(256, 4), p=weights)
            shares = rng.integers(1, STEPS + 1, size=(256, 2))
            for (left, right, below, above), (space, time) in zip(away.tolist(), shares.tolist(), strict=True):
                x, y = (round(place * STEPS) for place in self.centre)
                low = (max(0, x - left), max(0, y - below), 0, 0)
                high = (min(STEPS, x + right), min(STEPS, y + above), space, time)
                if np.prod([(b - a) / STEPS for a, b in zip(low, high, strict=True)]) <= self.most:
                    yield low, high


def cut(
    space: DzSpace, identity: int, low: tuple[int, ...], high: tuple[int, ...], depth: int, at_most: int = 64
) -> Parts:
    """A query over the dimensions of an index, cut into at most so many expressions of at most `depth` digits."""
    dimensions = len(space.names)
    fine = [size // STEPS for size in space.shape]
    inside_low = tuple(a * f for a, f in zip(low, fine, strict=False))
    inside_high = tuple(b * f for b, f in zip(high, fine, strict=False))
    taken = int(np.prod([b - a for a, b in zip(low[dimensions:], high[dimensions:], strict=True)], dtype=object) or 1)
    demand = Demand(identity, inside_low, inside_high, taken, STEPS ** (4 - dimensions))
    _, codes, lengths = decompose_batch(space, [inside_low], [inside_high], depth=depth)
    if len(codes) > at_most:
        _, codes, lengths = bounded_batch(space, [inside_low], [inside_high], at_most, depth=depth)
    return Parts(demand, codes, lengths)
