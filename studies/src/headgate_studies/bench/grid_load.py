"""Replication among 16 sites: what indexing the resolutions saves, and how full the sites are at the first refusal."""

from __future__ import annotations

from typing import Any

import numpy as np

from headgate_studies.models.serving import LARGE, SMALL, fill

LEVELS = (0.4, 0.6, 0.8, 0.9)
AT = 0.6


_INDEXES = {
    "x_y": (2, True),
    "with_resolutions": (4, True),
    "x_y_our_ranking": (2, False),
    "our_ranking": (4, False),
}


def saving(seeds: int, digits: int, exponent: float) -> list[dict[str, Any]]:
    """Replication bandwidth at equal client load, means over seeds, in percent of all bandwidth.

    The paper's ranking of regions on the two- and the four-dimensional index, which `saving` compares, and our own
    ranking on both. `saving_ours` is what this package does by default, against the paper's two-dimensional index.
    """
    runs = {
        name: [
            fill(
                dimensions=dimensions,
                digits=digits,
                exponent=exponent,
                seed=seed,
                most=0.01,
                levels=LEVELS,
                stop_at=LEVELS[-1],
                paper=paper,
            )
            for seed in range(seeds)
        ]
        for name, (dimensions, paper) in _INDEXES.items()
    }
    rows: list[dict[str, Any]] = []
    for level in LEVELS:
        marks = {name: [run.marks[level] for run in several if level in run.marks] for name, several in runs.items()}
        if all(marks.values()):
            mean = {name: float(np.mean([mark.replication for mark in found])) for name, found in marks.items()}
            rows.append(
                {
                    "client_load": level,
                    **{f"{name}_percent": 100 * value for name, value in mean.items()},
                    "saving": 1 - mean["with_resolutions"] / mean["x_y"],
                    "saving_ours": 1 - mean["our_ranking"] / mean["x_y"],
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
