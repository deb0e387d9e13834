"""QASD figures 11 and 12: more kinds of filters on a stream, so less to share."""

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
    """All constructions on one problem with so many filter types per stream."""
    return rows(changed(filter_types=int(parameters["types"])), seed)


def _ahead(results: pd.DataFrame) -> tuple[str, str]:
    table = means(results, "types", "arithmetic")
    leads = {int(at): lead(table, at)[0] for at in table.index}
    text = ", ".join(f"{at}: {100 * value:+.0f} %" for at, value in leads.items())
    late = [value for at, value in leads.items() if at >= 10]
    return text, verdict(max(leads.values()) > 1.5 and bool(late) and 0.15 < late[0] < 0.6, min(leads.values()) > 0)


def _degrades(results: pd.DataFrame) -> tuple[str, str]:
    line = means(results, "types", "arithmetic")["qasdg"]
    falls = all(a >= b - 0.01 for a, b in zip(line.iloc[1:], line.iloc[2:], strict=False))
    text = ", ".join(f"{at}: {value:.2f}" for at, value in line.items())
    return text, verdict(falls, bool(line.iloc[-1] < line.iloc[1]))


def _bandwidth(results: pd.DataFrame) -> tuple[str, str]:
    table = means(results, "types", "bandwidth_mb_per_s")
    few = float((table["qasdg"] / table["brush"]).iloc[0])
    over = float((table["qasdg"] / table[["unfas", "unfag"]].max(axis=1)).max())
    text = f"{few:.2f} of BRUSH with the fewest types; at most {over:.2f} of UNFA's"
    return text, verdict(few < 1.02 and over <= 1.0, over < 1.1)


def chart(results: pd.DataFrame) -> Figure:
    """Figures 11 and 12."""
    figure, axes = charts.panels(2)
    draw(axes[0], results, "types", "arithmetic")
    axes[0].set(title="overall quality, arithmetic mean (figure 11)", xlabel="filter types per stream")
    draw(axes[1], results, "types", "bandwidth_mb_per_s", ("brush", "unfas", "unfag", "qasds", "qasdg"))
    axes[1].set(title="total bandwidth, MB/s (figure 12, without CHAIN)", xlabel="filter types per stream")
    return figure


STUDY = Study(
    name="qasd-filter-types",
    about="quality and total bandwidth over the number of filter types (QASD figures 11, 12)",
    parameters={"types": [1, 2, 3, 4, 6, 8, 10, 14]},
    run=run,
    chart=chart,
    statements=(
        Statement("QASDG is up to 200 % ahead, falling to 30 % at 10 types (figure 11)", _ahead),
        Statement("Quality falls as the number of filter types rises", _degrades),
        Statement("QASD starts at BRUSH's bandwidth and stays below UNFA's (figure 12)", _bandwidth),
    ),
    seeds=SEEDS,
    paper=QASD,
)
