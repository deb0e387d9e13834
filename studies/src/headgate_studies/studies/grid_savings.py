"""One multi-resolution stream against a stream for every resolution: bytes on the links of a delivery tree.

Subscribers hang at the sites of a random tree and ask for regions at five resolutions. A link carries what is asked for
below it: with one stream the union of the shapes, with a stream per resolution each resolution's own union, without
sharing every subscription by itself. Shares are of the whole field at full resolution, summed over links.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from headgate.grid import GridShape, Interval, Resolution, ShapeFactory, parse_layout, parse_region
from headgate.model import Schema
from headgate_studies.studies import charts
from headgate_studies.studies.papers import GRID
from headgate_studies.studies.study import FAILS, REPRODUCES, Parameters, Statement, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_SITES = 16
_SHARES = tuple(Fraction(1, 2**k) for k in range(5))
_SCHEMA = Schema.of({"x": "double", "y": "double", "step": "int"})
_GRID = {
    "x": {"column": "x", "size": 64, "bounds": [0, 64]},
    "y": {"column": "y", "size": 64, "bounds": [0, 64]},
    "block": 8,
    "time": {"tick": "step", "block": 16},
}


def run(parameters: Parameters, seed: int) -> dict[str, Any]:
    """One random tree and set of subscribers."""
    rng = np.random.default_rng(seed)
    layout = parse_layout(_GRID, _SCHEMA)
    factory = ShapeFactory(layout)
    parents = [-1, *(int(rng.integers(0, site)) for site in range(1, _SITES))]
    below: list[list[tuple[Resolution, GridShape]]] = [[] for _ in range(_SITES)]
    for number in range(int(parameters["subscribers"])):
        share = _SHARES[number % len(_SHARES)]
        time = _SHARES[int(rng.integers(0, 3))] if parameters["time"] else Fraction(1)
        resolution = Resolution(Interval(Fraction(0), share), Interval(Fraction(0), time))
        region = None
        if parameters["regions"] == "boxes":
            sides = rng.integers(8, 40, 2)
            low = [int(rng.integers(0, 64 - side)) for side in sides]
            box = [low[0], low[1], low[0] + int(sides[0]), low[1] + int(sides[1])]
            region = parse_region({"box": box}, layout)
        shape = factory.shape(region, resolution)
        site = int(rng.integers(1, _SITES))
        while site > 0:
            below[site].append((resolution, shape))
            site = parents[site]
    one = separate = alone = 0.0
    for asked in below[1:]:
        if asked:
            one += _union([shape for _, shape in asked])
            for wanted in {resolution for resolution, _ in asked}:
                separate += _union([shape for resolution, shape in asked if resolution == wanted])
            alone += sum(shape.fraction for _, shape in asked)
    return {"one_stream": one, "per_resolution": separate, "unshared": alone, "saving": 1 - one / separate}


def _union(shapes: list[GridShape]) -> float:
    cells = shapes[0].outer
    for shape in shapes[1:]:
        cells = cells | shape.outer
    return cells.fraction


def _saves(results: pd.DataFrame) -> tuple[str, str]:
    means = results.groupby(["regions", "time", "subscribers"])["saving"].mean().reset_index()
    text = ", ".join(
        f"{row.regions}{' and time' if row.time else ''}, {row.subscribers} subscribers: {row.saving:.0%}"
        for row in means.itertuples()
    )
    return text, REPRODUCES if means["saving"].min() > 0 else FAILS


def _ten(results: pd.DataFrame) -> tuple[str, str]:
    rows = results[(results["regions"] == "whole") & (results["subscribers"] == 10) & ~results["time"]]
    ratio = float((rows["per_resolution"] / rows["one_stream"]).mean())
    return f"{ratio:.2f} times the bytes with a stream per resolution", REPRODUCES if ratio > 1.2 else FAILS


def chart(results: pd.DataFrame) -> Figure:
    """Bytes on links of the three ways, by number of subscribers."""
    figure, axes = charts.panels(2, 1)
    for panel, regions in zip(axes, ("whole", "boxes"), strict=True):
        rows = results[(results["regions"] == regions) & ~results["time"]]
        for number, (name, label) in enumerate(
            (("one_stream", "one stream"), ("per_resolution", "a stream per resolution"), ("unshared", "unshared"))
        ):
            means = rows.groupby("subscribers")[name].mean()
            panel.plot(means.index, means, color=charts.COLOURS[number], marker="o", label=label)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("subscribers")
        panel.set_ylabel("fields on links")
        panel.set_title("the whole field" if regions == "whole" else "random boxes")
    axes[0].legend()
    return figure


STUDY = Study(
    name="grid-savings",
    about="one multi-resolution stream against a stream per resolution: bytes on links",
    parameters={"subscribers": [10, 30, 100], "regions": ["whole", "boxes"], "time": [False, True]},
    run=run,
    chart=chart,
    statements=(
        Statement("one stream that is split and combined needs fewer bytes than a stream per resolution", _saves),
        Statement("ten subscribers at five resolutions of the whole field", _ten),
    ),
    seeds=10,
    paper=GRID,
)
