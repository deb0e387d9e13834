"""What the `xport-*` studies share: seeded overlays and trees, cost curves, and judging by shares and means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headgate.tuning.overlay import Overlay
from headgate.tuning.search import Tuned
from headgate.tuning.shape import Shape
from headgate.tuning.transformations import named
from headgate_studies.studies.intervals import mean_interval
from headgate_studies.studies.study import FAILS, PARTLY, REPRODUCES
from headgate_studies.workloads.tuning import plane_overlay, random_shape, zipf_profiles

if TYPE_CHECKING:
    import pandas as pd

PROMOTIONS = named("child promotion", "subtree promotion")
"""All that can help where the star is best: enough for large systems."""


def system(seed: int, sites: int, *, noise: float = 0.0, clients: int = 100) -> tuple[Overlay, Shape]:
    """Sites in a plane with heavy-tailed bandwidths and the paper's 700 feeds, and a random recursive tree."""
    generator = np.random.default_rng((seed, sites))
    overlay = plane_overlay(generator, sites, noise=noise, profiles=zipf_profiles(generator, sites, clients=clients))
    return overlay, random_shape(generator, sites)


def star(sites: int) -> Shape:
    """Everybody below the root."""
    return Shape([-1] + [0] * (sites - 1))


def curve(tuned: Tuned, unit: float, **columns: Any) -> list[dict[str, Any]]:
    """The cost before the first step and after each, in units of `unit`."""
    costs = [tuned.before, *(step.cost for step in tuned.steps)]
    return [{**columns, "step": index, "cost": cost / unit} for index, cost in enumerate(costs)]


def carried(results: pd.DataFrame, keys: list[str], value: str = "cost") -> pd.DataFrame:
    """Curves of different length made equally long: after its last step a run stays where it is."""
    import pandas as pd

    last = int(results["step"].max())
    parts = []
    for _, run in results.groupby([*keys, "seed"], sort=False):
        ordered = run.sort_values("step").set_index("step")
        full = ordered.reindex(range(last + 1), method="ffill").reset_index()
        parts.append(full[[*keys, "seed", "step", value]])
    return pd.concat(parts, ignore_index=True)


def all_of(flags: pd.Series, what: str) -> tuple[str, str]:
    """A verdict from how many runs did what was claimed."""
    share = float(flags.mean())
    verdict = REPRODUCES if share == 1 else PARTLY if share >= 0.5 else FAILS
    return f"{int(flags.sum())} of {len(flags)} runs {what}", verdict


def mean_text(values: pd.Series, unit: str = "") -> str:
    """A mean with its interval."""
    return f"{mean_interval(values.to_numpy())}{' ' + unit if unit else ''}"
