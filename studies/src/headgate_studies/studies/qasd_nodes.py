"""QASD figures 7 and 8: fewer sites with the same streams and filters, down to every site wanting every stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate_studies.studies import charts
from headgate_studies.studies.papers import QASD
from headgate_studies.studies.qasd_common import SEEDS, changed, draw, lead, means, rows, verdict
from headgate_studies.studies.study import Parameters, Statement, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def run(parameters: Parameters, seed: int) -> list[dict[str, Any]]:
    """All constructions on one problem with so many sites."""
    return rows(changed(sites=int(parameters["sites"])), seed)


def _ahead(results: pd.DataFrame) -> tuple[str, str]:
    table = means(results, "sites", "arithmetic")
    leads = {int(at): lead(table, at)[0] for at in table.index}
    top = max(leads, key=leads.__getitem__)
    text = ", ".join(f"{at}: {100 * value:+.0f} %" for at, value in leads.items())
    return f"arithmetic mean, {text}", verdict(leads[top] >= 1.5 and min(leads.values()) > 0, leads[top] > 0.5)


def _near_brush(results: pd.DataFrame) -> tuple[str, str]:
    table = means(results, "sites", "bandwidth_mb_per_s")
    worst = float((table["qasdg"] / table["brush"]).max())
    return f"QASDG needs at most {worst:.2f} of BRUSH", verdict(worst < 1.1, worst < 1.4)


def _unfas(results: pd.DataFrame) -> tuple[str, str]:
    quality, width = means(results, "sites", "arithmetic"), means(results, "sites", "bandwidth_mb_per_s")
    better, dearer = (quality["unfas"] > quality["unfag"]).mean(), (width["unfas"] > width["unfag"]).mean()
    text = f"better in {100 * better:.0f} %, dearer in {100 * dearer:.0f} % of the settings"
    return text, verdict(better == 1 and dearer == 1, better > 0.5)


def chart(results: pd.DataFrame) -> Figure:
    """Figures 7 and 8."""
    figure, axes = charts.panels(2)
    draw(axes[0], results, "sites", "arithmetic")
    axes[0].set(title="overall quality, arithmetic mean (figure 7)", xlabel="sites")
    draw(axes[1], results, "sites", "bandwidth_mb_per_s", ("brush", "unfas", "unfag", "qasds", "qasdg"))
    axes[1].set(title="total bandwidth, MB/s (figure 8, without CHAIN)", xlabel="sites")
    return figure


STUDY = Study(
    name="qasd-nodes",
    about="quality and total bandwidth over the number of sites (QASD figures 7, 8)",
    parameters={"sites": [31, 40, 55, 70, 85, 100]},
    run=run,
    chart=chart,
    statements=(
        Statement("QASD is up to 180 % ahead of the best competitor over the number of nodes (figure 7)", _ahead),
        Statement("QASD's total bandwidth is close to BRUSH's (figure 8)", _near_brush),
        Statement("UNFAS is better than UNFAG at a slightly higher total bandwidth", _unfas),
    ),
    seeds=SEEDS,
    paper=QASD,
)
