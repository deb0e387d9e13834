"""Replication among 16 sites: what indexing the resolutions saves, and how full the sites are at the first refusal."""

from __future__ import annotations

from typing import Any

import numpy as np

from headgate.grid.serving.experiment import LARGE, SMALL, fill

LEVELS = (0.4, 0.6, 0.8, 0.9)
AT = 0.6


def saving(seeds: int, digits: int, exponent: float) -> list[dict[str, Any]]:
    """Replication bandwidth of the two- and the four-dimensional index at equal client load, means over seeds."""
    runs = {
        dimensions: [
            fill(
                dimensions=dimensions,
                digits=digits,
                exponent=exponent,
                seed=seed,
                most=0.01,
                levels=LEVELS,
                stop_at=LEVELS[-1],
            )
            for seed in range(seeds)
        ]
        for dimensions in (2, 4)
    }
    rows: list[dict[str, Any]] = []
    for level in LEVELS:
        found = {
            d: [run.marks[level].replication for run in several if level in run.marks] for d, several in runs.items()
        }
        if all(found.values()):
            flat, full = (float(np.mean(found[d])) for d in (2, 4))
            rows.append(
                {
                    "client_load": level,
                    "x_y_percent": 100 * flat,
                    "with_resolutions_percent": 100 * full,
                    "saving": 1 - full / flat if flat else 0.0,
                }
            )
    return rows


def first_refusal(seeds: int, digits: int) -> dict[str, list[float]]:
    """Clients' share of all bandwidth when the first query is refused, per seed, for both hot spots."""
    return {
        name: [
            fill(dimensions=4, digits=digits, exponent=exponent, seed=seed, most=0.01, paper=False).end.client_load
            for seed in range(seeds)
        ]
        for name, exponent in (("large", LARGE), ("small", SMALL))
    }
