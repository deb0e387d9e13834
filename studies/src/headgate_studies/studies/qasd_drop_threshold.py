"""QASD figure 13: subscribers that tolerate more drops, at half of the bandwidth."""

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
    """All constructions on one problem with drop thresholds up to the given one, at bandwidth scale 0.5."""
    return rows(changed(drop_threshold=(0.0, float(parameters["threshold"])), scale=0.5), seed)


def _rises(results: pd.DataFrame) -> tuple[str, str]:
    line = means(results, "threshold", "arithmetic")["qasdg"]
    text = ", ".join(f"{at}: {value:.2f}" for at, value in line.items())
    return text, verdict(bool(line.is_monotonic_increasing), bool(line.iloc[-1] > line.iloc[0]))


def _lead_falls(results: pd.DataFrame) -> tuple[str, str]:
    found = []
    for value in ("arithmetic", "geometric"):
        table = means(results, "threshold", value)
        found.append([lead(table, at)[0] for at in (min(table.index), max(table.index))])
    text = "; ".join(
        f"{name}: {100 * first:+.0f} % to {100 * last:+.0f} %"
        for name, (first, last) in zip(("arithmetic", "geometric"), found, strict=True)
    )
    first, last = found[0]
    return text, verdict(1.2 < first < 1.8 and 0.5 < last < 1.0, last < first)


def chart(results: pd.DataFrame) -> Figure:
    """Figure 13."""
    figure, axes = charts.panels(2)
    for panel, value in zip(axes, ("arithmetic", "geometric"), strict=True):
        draw(panel, results, "threshold", value)
        panel.set(title=f"overall quality, {value} mean (figure 13)", xlabel="upper bound of the drop threshold")
    return figure


STUDY = Study(
    name="qasd-drop-threshold",
    about="quality over tolerated drops at half bandwidth (QASD figure 13)",
    parameters={"threshold": [0.1, 0.2, 0.3, 0.4, 0.5]},
    run=run,
    chart=chart,
    statements=(
        Statement("Quality rises with the tolerated drop", _rises),
        Statement("QASD's lead falls from 150 % to 75 % as the bound goes from 0.1 to 0.5", _lead_falls),
    ),
    seeds=SEEDS,
    paper=QASD,
)
