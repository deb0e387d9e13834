"""QASD figures 4, 5, 6 and 10: quality, total bandwidth and fairness of the six constructions over bandwidth."""

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
    """All constructions on one problem with all bandwidths scaled."""
    return rows(changed(scale=float(parameters["scale"])), seed)


def _near(results: pd.DataFrame, scale: float) -> float:
    return float(min(results["scale"].unique(), key=lambda found: abs(found - scale)))


def _far_ahead(results: pd.DataFrame) -> tuple[str, str]:
    at = _near(results, 1.0)
    ahead, best = lead(means(results, "scale", "arithmetic"), at)
    ahead_g, best_g = lead(means(results, "scale", "geometric"), at)
    text = f"{100 * ahead:+.0f} % over {best} (arithmetic), {100 * ahead_g:+.0f} % over {best_g} (geometric) at {at}"
    return text, verdict(ahead >= 1.5, ahead > 0.3)


def _value(results: pd.DataFrame) -> tuple[str, str]:
    at = _near(results, 1.0)
    a, g = (means(results, "scale", value).loc[at, "qasdg"] for value in ("arithmetic", "geometric"))
    return f"arithmetic mean {a:.2f}, geometric mean {g:.2f}: the paper's figure fits the former", verdict(
        abs(g - 0.35) < 0.05, abs(a - 0.35) < 0.08
    )


def _global(results: pd.DataFrame) -> tuple[str, str]:
    table = means(results, "scale", "arithmetic")
    at = _near(results, 1.0)
    ratio = float(table.loc[at, "qasdg"] / table.loc[at, "qasds"])
    return f"QASDG / QASDS = {ratio:.2f} at scale {at}", verdict(1.0 < ratio < 1.12, 0.9 < ratio < 1.3)


def _bounds(results: pd.DataFrame) -> tuple[str, str]:
    table = means(results, "scale", "bandwidth_mb_per_s")
    low, high = (table.idxmin(axis=1) == "brush").all(), (table.idxmax(axis=1) == "chain").all()
    at = _near(results, 1.0)
    near = float(table.loc[at, "qasdg"] / table.loc[at, "brush"])
    text = f"BRUSH least in {'all' if low else 'not all'}, CHAIN most in {'all' if high else 'not all'} settings"
    return f"{text}; QASDG needs {near:.2f} of BRUSH at {at}", verdict(bool(low and high and near < 1.05), bool(low))


def _fair(results: pd.DataFrame) -> tuple[str, str]:
    table = means(results, "scale", "fairness")
    at = _near(results, 1.0)
    order = list(table.loc[at].sort_values().index)
    return "fairest first: " + ", ".join(order), verdict(
        set(order[:2]) == {"qasds", "qasdg"} and order[-1] == "brush", order[0] in ("qasds", "qasdg", "chain")
    )


def _plateau(results: pd.DataFrame) -> tuple[str, str]:
    table = means(results, "scale", "geometric")
    at = float(max(table.index))
    line = table.loc[at]
    text = f"at scale {at}: CHAIN {line['chain']:.2f}, UNFAS {line['unfas']:.2f}, QASDG {line['qasdg']:.2f}"
    return f"{text}; CHAIN's delays alone keep it below", verdict(abs(line["chain"] - 0.9) < 0.05, line["qasdg"] > 0.99)


def chart(results: pd.DataFrame) -> Figure:
    """Figures 4 and 10, 5 and 6."""
    figure, axes = charts.panels(2, 2)
    for panel, value, title, log in (
        (axes[0], "geometric", "overall quality, geometric mean (figures 4, 10)", False),
        (axes[1], "arithmetic", "overall quality, arithmetic mean", False),
        (axes[2], "bandwidth_mb_per_s", "total bandwidth, MB/s (figure 5)", False),
        (axes[3], "fairness", "variance of forwarding / upload (figure 6)", True),
    ):
        draw(panel, results, "scale", value)
        panel.set(title=title, xlabel="bandwidth scaling factor", xscale="log", yscale="log" if log else "linear")
    return figure


STUDY = Study(
    name="qasd-bandwidth",
    about="quality, bandwidth and fairness over available bandwidth (QASD figures 4, 5, 6, 10)",
    parameters={"scale": [0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0, 1.5, 2.0, 4.0, 8.0]},
    run=run,
    chart=chart,
    statements=(
        Statement("QASD is up to 180 % ahead of the best alternative at scale 1 (figure 4)", _far_ahead),
        Statement("QASDG reaches a quality of 0.35 at scale 1 (section 6.3)", _value),
        Statement("QASDG is about 5 % better than QASDS", _global),
        Statement("BRUSH and CHAIN bound total bandwidth; QASD comes down to BRUSH at scale 1 (figure 5)", _bounds),
        Statement("QASD forwards most fairly, BRUSH least (figure 6)", _fair),
        Statement("CHAIN levels off at 0.9 with plenty of bandwidth, the others reach 1 (figure 10)", _plateau),
    ),
    seeds=SEEDS,
    paper=QASD,
)
