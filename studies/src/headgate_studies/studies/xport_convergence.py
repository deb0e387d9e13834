"""Total path latency from a random tree to the star (XPORT, figure 5), with and without the triangle inequality."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.tuning.compile import compile_objective
from headgate.tuning.evaluate import TreeView, evaluate
from headgate.tuning.search import Options, Tuner
from headgate.tuning.transformations import STANDARD
from headgate_studies.studies import charts
from headgate_studies.studies.intervals import band
from headgate_studies.studies.papers import XPORT
from headgate_studies.studies.study import FAILS, PARTLY, REPRODUCES, Parameters, Statement, Study
from headgate_studies.studies.xport import PROMOTIONS, all_of, carried, curve, mean_text, star, system

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def run(parameters: Parameters, seed: int) -> list[dict[str, Any]]:
    """Cost after every step, in units of the star's; large systems change in parallel and by promotions only."""
    sites, noise = int(parameters["sites"]), float(parameters["noise"])
    overlay, shape = system(seed, sites, noise=noise)
    compiled = compile_objective("minimise sum(path_latency)")
    large = sites > 200
    options = Options(concurrent=large, transformations=PROMOTIONS if large else STANDARD)
    tuned = Tuner(overlay, compiled, options=options).run(shape)
    best = evaluate(compiled, TreeView(overlay, star(sites)))
    rows = curve(tuned, best, steps=len(tuned.steps), periods=tuned.periods)
    return rows if len(rows) < 120 else [*rows[:: len(rows) // 60], rows[-1]]


def _final(results: pd.DataFrame, sites: int, noise: float = 0.0) -> pd.DataFrame:
    shown = results[(results["sites"] == sites) & (results["noise"] == noise)]
    return shown.sort_values("step").groupby("seed").last()


def _star(results: pd.DataFrame) -> tuple[str, str]:
    final = _final(results, int(results["sites"].min()))
    return all_of((final["cost"] - 1).abs() < 1e-9, f"of {int(results['sites'].min())} sites end as the star")


def _steps(results: pd.DataFrame) -> tuple[str, str]:
    final = _final(results, int(results["sites"].min()))
    mean = float(final["steps"].mean())
    verdict = REPRODUCES if 6 <= mean <= 11 else PARTLY if mean <= 20 else FAILS
    return f"{mean_text(final['steps'])} transformations", verdict


def _large(results: pd.DataFrame) -> tuple[str, str]:
    told, reached = [], []
    sizes = sorted(results[results["noise"] == 0]["sites"].unique())
    for sites in sizes[1:] or sizes:
        final = _final(results, int(sites))
        stars = (final["cost"] - 1).abs() < 1e-9
        reached += list(stars)
        told.append(
            f"{int(sites):,} sites: {int(stars.sum())} of {len(stars)} runs end as the star, in "
            f"{final['periods'].mean():.0f} periods with {final['steps'].mean():.0f} transformations"
        )
    return "; ".join(told), REPRODUCES if all(reached) else PARTLY if any(reached) else FAILS


def _without(results: pd.DataFrame) -> tuple[str, str]:
    noisy = results[results["noise"] > 0]
    if noisy.empty:
        return "not run", PARTLY
    final = _final(results, int(noisy["sites"].min()), float(noisy["noise"].max()))
    below = int((final["cost"] < 1 - 1e-9).sum())
    text = f"without it {below} of {len(final)} runs end below the star (mean {final['cost'].mean():.3f} of its cost)"
    return text, REPRODUCES if below == len(final) else PARTLY


def chart(results: pd.DataFrame) -> Figure:
    """Cost over steps, in units of the star's."""
    figure, (axes,) = charts.panels()
    shown = results[results["sites"] <= 200]
    for number, ((sites, noise), part) in enumerate(shown.groupby(["sites", "noise"])):
        means = band(carried(part, ["sites", "noise"]), ["step"], "cost")
        label = f"{sites} sites" + (f", noise {noise}" if noise else "")
        charts.draw_band(axes, means, "step", label, number)
    axes.axhline(1.0, color="#444444", linewidth=0.8, linestyle="--")
    axes.set(xlabel="transformations", ylabel="total path latency (star = 1)", title="From a random tree to the star")
    axes.legend()
    return figure


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """Steps to the end by size."""
    return {
        f"steps {sites} sites": round(float(_final(results, int(sites))["steps"].mean()), 2)
        for sites in sorted(results[results["noise"] == 0]["sites"].unique())
    }


STUDY = Study(
    name="xport-convergence",
    about="Total path latency under local transformations, from a random tree towards the star.",
    parameters=[
        {"sites": 20, "noise": 0.0},
        {"sites": 100, "noise": 0.0},
        {"sites": 1000, "noise": 0.0},
        {"sites": 20, "noise": 0.4},
    ],
    run=run,
    chart=chart,
    statements=(
        Statement("20 sites converge to the optimal (star) tree (figure 5)", _star),
        Statement("in about 8 transformations (figure 5)", _steps),
        Statement("so do larger systems, from 200 sites on with changes in parallel (ours)", _large),
        Statement("the star is optimal only where the triangle inequality holds (ours)", _without),
    ),
    summary=summary,
    seeds=20,
    most_seeds=lambda case: 5 if case["sites"] >= 1000 else None,
    paper=XPORT,
    notes="Latencies are distances in a plane, multiplied by log-normal noise where `noise` is not 0. 1,000 sites use "
    "the two promotions only: nothing else can help where the triangle inequality holds. The root takes part in one "
    "change a period, so periods grow with the number of sites, and 10,000 sites were not run.",
)
