"""Matching load appears and the tree moves away from loaded sites (XPORT, figure 7)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headgate.tuning.compile import compile_objective
from headgate.tuning.evaluate import TreeView, evaluate
from headgate.tuning.search import Tuner
from headgate_studies.studies import charts
from headgate_studies.studies.papers import XPORT
from headgate_studies.studies.study import Parameters, Statement, Study
from headgate_studies.studies.xport import all_of, star, system

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

STATES = ("random, idle", "star, idle", "random, loaded", "star, loaded", "tuned, loaded")


def run(parameters: Parameters, seed: int) -> dict[str, Any]:
    """Total path latency with matching, of a random tree and the star, idle and loaded, and of the tuned tree."""
    sites = int(parameters["sites"])
    overlay, shape = system(seed, sites)
    idle = replace(overlay, match_entry_s=0.0)
    loaded = replace(overlay, match_entry_s=float(parameters["match_ms"]) / 1000)
    compiled = compile_objective("minimise sum(path_latency + path_cpu)")
    tuned = Tuner(loaded, compiled).run(shape)
    trees = {"random": shape, "star": star(sites), "tuned": tuned.shape}
    costs = {
        state: evaluate(compiled, TreeView(loaded if "loaded" in state else idle, trees[state.split(",")[0]]))
        for state in STATES
    }
    return {**costs, "steps": len(tuned.steps), "root_fanout": len(tuned.shape.children[0])}


def chart(results: pd.DataFrame) -> Figure:
    """The five states for the middle load, at the paper's size."""
    results = results[results["sites"] == results["sites"].min()]
    figure, (axes,) = charts.panels()
    loads = sorted(results["match_ms"].unique())
    shown = results[results["match_ms"] == loads[len(loads) // 2]]
    charts.draw_bars(axes, STATES, [float(shown[state].mean()) for state in STATES])
    axes.set(ylabel="total path latency with matching (s)")
    axes.set_title(f"{shown['sites'].iloc[0]} sites, {loads[len(loads) // 2]} ms a routing entry")
    axes.tick_params(axis="x", labelrotation=15)
    return figure


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """Mean costs in seconds and how many children the root keeps."""
    return {
        f"{sites} sites, {load} ms: {name}": round(float(part[name].mean()), 3)
        for (sites, load), part in results.groupby(["sites", "match_ms"])
        for name in (*STATES, "root_fanout", "steps")
    }


STUDY = Study(
    name="xport-adaptivity",
    about="When matching costs time, the star's root is the bottleneck and tuning spreads the load.",
    parameters=[
        *({"sites": 20, "match_ms": load} for load in (2, 5, 10)),
        {"sites": 60, "match_ms": 5},
    ],
    run=run,
    chart=chart,
    statements=(
        Statement(
            "idle, the star outperforms the random tree (figure 7)",
            lambda r: all_of(r["star, idle"] < r["random, idle"], "have the star ahead when idle"),
        ),
        Statement(
            "loaded, the random tree outperforms the star (figure 7)",
            lambda r: all_of(r["random, loaded"] < r["star, loaded"], "have the random tree ahead when loaded"),
        ),
        Statement(
            "the tuned tree outperforms the loaded star and the loaded random tree (figure 7)",
            lambda r: all_of(
                r["tuned, loaded"] < r[["star, loaded", "random, loaded"]].min(axis=1), "have the tuned tree ahead"
            ),
        ),
        Statement(
            "the tuned tree outperforms even the unloaded random tree (figure 7)",
            lambda r: all_of(r["tuned, loaded"] < r["random, idle"], "beat the idle random tree"),
        ),
    ),
    summary=summary,
    seeds=20,
    most_seeds=lambda case: 8 if case["sites"] > 20 else None,
    paper=XPORT,
    notes="Matching takes `match_ms` for every routing entry of a site (its clients and its children), on every site "
    "of a path, the root included. How the trees compare depends on that figure, which the paper does not give.",
)
