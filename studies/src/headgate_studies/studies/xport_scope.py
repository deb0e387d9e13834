"""Optimisation units of three, four and five levels: what looking further brings and costs (XPORT, section 3.1)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from headgate.tuning.compile import compile_objective
from headgate.tuning.constraints import compile_constraint
from headgate.tuning.evaluate import TreeView
from headgate.tuning.outlook import Outlook
from headgate.tuning.search import Options, Tuner
from headgate.tuning.transformations import STANDARD, WIDE
from headgate_studies.studies import charts
from headgate_studies.studies.papers import XPORT
from headgate_studies.studies.study import FAILS, PARTLY, REPRODUCES, Parameters, Statement, Study
from headgate_studies.studies.xport import system

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def run(parameters: Parameters, seed: int) -> dict[str, Any]:
    """Final cost under a fanout limit, steps, changes priced, and the mean size of a unit."""
    levels = int(parameters["levels"])
    overlay, shape = system(seed, int(parameters["sites"]))
    compiled = compile_objective(str(parameters["objective"]))
    limit = compile_constraint("fanout <= 4")
    options = Options(transformations=STANDARD if levels == 3 else WIDE, levels=levels, periods=120)
    tuned = Tuner(overlay, compiled, [limit], options).run(shape)
    outlook = Outlook(compiled, TreeView(overlay, shape))
    sizes = [len(outlook.unit(owner, levels).members) for owner in shape.order if shape.children[owner]]
    return {
        "after": tuned.after / tuned.before,
        "steps": len(tuned.steps),
        "priced": tuned.priced / max(1, tuned.periods),
        "members": sum(sizes) / len(sizes),
        "missed": tuned.violation,
    }


def _means(results: pd.DataFrame, column: str) -> list[float]:
    return [float(value) for value in results.groupby("levels")[column].mean().sort_index()]


def _better(results: pd.DataFrame) -> tuple[str, str]:
    told, good = [], []
    for (sites, objective), part in results.groupby(["sites", "objective"]):
        means = _means(part, "after")
        good.append(all(later <= earlier + 1e-3 for earlier, later in pairwise(means)))
        told.append(f"{sites} sites, {objective}: " + ", ".join(f"{value:.3f}" for value in means))
    verdict = REPRODUCES if all(good) else PARTLY if any(good) else FAILS
    return "final cost (start = 1) with 3, 4, 5 levels: " + "; ".join(told), verdict


def _dearer(results: pd.DataFrame) -> tuple[str, str]:
    means = _means(results, "members")
    text = ", ".join(f"{value:.1f}" for value in means)
    return f"members of a unit: {text}", REPRODUCES if means == sorted(means) else FAILS


def chart(results: pd.DataFrame) -> Figure:
    """Final cost by levels for each size and objective, and changes priced per period."""
    figure, (left, right) = charts.panels(2, width=4.8)
    levels = sorted(results["levels"].unique())
    for (sites, objective), part in results.groupby(["sites", "objective"]):
        name = f"{str(objective).removeprefix('minimise ')}, {sites} sites"
        left.plot(levels, _means(part, "after"), marker="o", label=name)
    for sites in sorted(results["sites"].unique()):
        right.plot(levels, _means(results[results["sites"] == sites], "priced"), marker="o", label=f"{sites} sites")
    for axes, title in ((left, "final cost (start = 1)"), (right, "changes priced per period")):
        axes.set(title=title, xlabel="levels of a unit", xticks=levels)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize="small")
    return figure


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """Means by levels."""
    means = results.groupby(["sites", "levels"])[["after", "steps", "priced", "members"]].mean().reset_index()
    return {
        f"{row['sites']:.0f} sites, {row['levels']:.0f} levels: {name}": round(float(row[name]), 3)
        for _, row in means.iterrows()
        for name in ("after", "steps", "priced", "members")
    }


STUDY = Study(
    name="xport-scope",
    about="Units of three, four and five levels under a fanout limit.",
    parameters={
        "sites": [30, 60],
        "levels": [3, 4, 5],
        "objective": ["minimise sum(path_latency)", "minimise variance(path_latency)"],
    },
    run=run,
    chart=chart,
    statements=(
        Statement("a wider scope allows more powerful transformations (section 3.1)", _better),
        Statement("and needs more state and traffic (section 3.1)", _dearer),
    ),
    summary=summary,
    seeds=20,
    most_seeds=lambda case: 10 if case["sites"] > 30 else None,
    paper=XPORT,
)
