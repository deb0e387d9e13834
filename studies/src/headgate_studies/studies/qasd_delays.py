"""QASD figure 9: the variance of perceived delays over longer links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate_studies.studies import charts
from headgate_studies.studies.papers import QASD
from headgate_studies.studies.qasd_common import NAMES, SEEDS, changed, draw, means, rows, verdict
from headgate_studies.studies.study import Parameters, Statement, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def run(parameters: Parameters, seed: int) -> list[dict[str, Any]]:
    """All constructions on one problem with all link delays scaled."""
    return rows(changed(delay_scale=float(parameters["delay_scale"])), seed)


def _order(results: pd.DataFrame) -> tuple[str, str]:
    table = means(results, "delay_scale", "delay_variance")[["brush", "qasds", "unfas", "chain"]]
    orders = {tuple(line.sort_values().index) for _, line in table.iterrows()}
    wanted = ("brush", "qasds", "unfas", "chain")
    text = "; ".join(" < ".join(order) for order in sorted(orders))
    return text, verdict(orders == {wanted}, all(order[0] == "brush" and order[-1] == "chain" for order in orders))


def _same(results: pd.DataFrame) -> tuple[str, str]:
    table = means(results, "delay_scale", "delay_variance")
    pairs = [float((table[g] / table[s]).mean()) for s, g in (("qasds", "qasdg"), ("unfas", "unfag"))]
    text = f"QASDG / QASDS = {pairs[0]:.2f}, UNFAG / UNFAS = {pairs[1]:.2f}"
    return text, verdict(all(0.9 < pair < 1.1 for pair in pairs), all(0.5 < pair < 2 for pair in pairs))


def chart(results: pd.DataFrame) -> Figure:
    """Figure 9."""
    figure, (axes,) = charts.panels()
    draw(axes, results, "delay_scale", "delay_variance", NAMES)
    axes.set(title="variance of perceived delay, s² (figure 9)", xlabel="delay scaling factor", yscale="log")
    return figure


STUDY = Study(
    name="qasd-delays",
    about="variance of perceived delays over link delays (QASD figure 9)",
    parameters={"delay_scale": [0.25, 0.5, 1.0, 1.5, 2.0]},
    run=run,
    chart=chart,
    statements=(
        Statement("Smallest variance: BRUSH, then QASDS, UNFAS, CHAIN (figure 9)", _order),
        Statement("The globally controlled versions have the same results", _same),
    ),
    seeds=SEEDS,
    paper=QASD,
)
