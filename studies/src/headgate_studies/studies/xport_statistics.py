"""Statistics approximation: traffic saved against quality lost (XPORT, section 3.2.4, Table 6)."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from headgate_studies.studies import charts
from headgate_studies.studies.papers import XPORT
from headgate_studies.studies.study import FAILS, PARTLY, REPRODUCES, Parameters, Statement, Study
from headgate_studies.studies.xport import mean_text, system
from headgate_studies.workloads.tuning_traffic import approximated

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_EXACT = 0.0


def run(parameters: Parameters, seed: int) -> dict[str, Any]:
    """Variance of path latency after some periods, transformations applied, and maintenance bytes per site."""
    overlay, shape = system(seed, int(parameters["sites"]))
    constant = float(parameters["p"])
    found = approximated(
        overlay, shape, constant if constant > _EXACT else None, seed=seed, periods=int(parameters["periods"])
    )
    return asdict(found)


def _paired(results: pd.DataFrame, p: float) -> pd.DataFrame:
    exact = results[results["p"] == _EXACT].set_index("seed")
    return exact.join(results[results["p"] == p].set_index("seed"), rsuffix="_p")


def _saved(results: pd.DataFrame) -> tuple[str, str]:
    pairs = _paired(results, 1)
    saved = 1 - pairs["maintenance_bytes_p"] / pairs["maintenance_bytes"]
    verdict = REPRODUCES if saved.mean() > 0.93 else PARTLY if saved.mean() > 0.5 else FAILS
    return f"{mean_text(100 * saved, '% of the maintenance bytes')}", verdict


def _lost(results: pd.DataFrame) -> tuple[str, str]:
    pairs = _paired(results, 1)
    worse = pairs["after_p"].mean() / pairs["after"].mean() - 1
    verdict = REPRODUCES if worse <= 0.1 else PARTLY if worse <= 0.5 else FAILS
    return f"{100 * worse:.0f} % higher variance on average (p = 1)", verdict


def _order(results: pd.DataFrame) -> tuple[str, str]:
    means = results[results["p"] > _EXACT].groupby("p")["maintenance_bytes"].mean()
    falls = all(later <= earlier for earlier, later in pairwise(means))
    return ", ".join(f"p = {p:g}: {value:.0f} B" for p, value in means.items()), REPRODUCES if falls else FAILS


def chart(results: pd.DataFrame) -> Figure:
    """Bytes and final variance by the approximation constant."""
    figure, (left, right) = charts.panels(2, width=4.6)
    names = ["exact" if p == _EXACT else f"p = {p:g}" for p in sorted(results["p"].unique())]
    for axes, column, title in (
        (left, "maintenance_bytes", "maintenance bytes per site and period"),
        (right, "after", "variance of path latency at the end"),
    ):
        means = results.groupby("p")[column].mean().sort_index()
        charts.draw_bars(axes, names, means.to_numpy())
        axes.set_title(title)
    return figure


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """Means by constant."""
    means = results.groupby("p")[["maintenance_bytes", "after", "steps"]].mean()
    return {f"p={p:g} {name}": round(float(value), 6) for p, row in means.iterrows() for name, value in row.items()}


STUDY = Study(
    name="xport-statistics",
    about="Sending statistics less often where they matter less: bytes saved, and what it costs in quality.",
    parameters={"sites": [100], "periods": [32], "p": [0, 1, 2, 3]},
    run=run,
    chart=chart,
    statements=(
        Statement("approximation with p = 1 saves 97 % of the maintenance traffic (Table 6)", _saved),
        Statement("and costs 7 % of performance (Table 6)", _lost),
        Statement("larger p saves more (Table 6)", _order),
    ),
    summary=summary,
    seeds=20,
    paper=XPORT,
    notes="100 sites, as in the paper, over 32 periods with one transformation each, after which neither has settled: "
    "the cost is what a worse choice per period adds up to meanwhile. Signs of life are still sent in every phase and "
    "counted, which bounds what can be saved in a small system. p = 0 stands for exact statistics.",
)
