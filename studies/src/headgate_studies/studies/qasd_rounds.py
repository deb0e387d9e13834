"""QASD Table 3: rounds of assignment per join over bandwidth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate_studies.studies import charts
from headgate_studies.studies.papers import QASD
from headgate_studies.studies.qasd_common import SEEDS, changed, draw, means, rows, verdict
from headgate_studies.studies.study import Parameters, Statement, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_PAPER = {
    "qasds": (1.41, 1.42, 1.37, 1.28, 1.20, 1.14, 1.10, 1.07, 1.05, 1.04),
    "qasdg": (1.31, 1.33, 1.30, 1.23, 1.16, 1.10, 1.08, 1.05, 1.04, 1.03),
}
_SCALES = [round(0.1 * step, 1) for step in range(1, 11)]


def run(parameters: Parameters, seed: int) -> list[dict[str, Any]]:
    """Both versions of QASD on one problem; a fall-back to best effort counts as one round."""
    return rows(changed(scale=float(parameters["scale"])), seed, ("qasds", "qasdg"))


def _table(results: pd.DataFrame) -> tuple[str, str]:
    table = means(results, "scale", "rounds")
    paper = {scale: index for index, scale in enumerate(_SCALES)}
    gaps = [
        abs(table.loc[scale, name] - values[paper[round(float(scale), 1)]])
        for name, values in _PAPER.items()
        for scale in table.index
    ]
    shown = table.loc[[min(table.index), max(table.index)]]
    text = "; ".join(
        f"scale {scale}: QASDS {line['qasds']:.2f}, QASDG {line['qasdg']:.2f}" for scale, line in shown.iterrows()
    )
    return text, verdict(max(gaps) < 0.05, max(gaps) < 0.2)


def _global_fewer(results: pd.DataFrame) -> tuple[str, str]:
    table = means(results, "scale", "rounds")
    share = float((table["qasdg"] <= table["qasds"]).mean())
    return f"QASDG needs fewer in {100 * share:.0f} % of the settings", verdict(share == 1.0, share > 0.5)


def _few(results: pd.DataFrame) -> tuple[str, str]:
    table = means(results, "scale", "rounds")
    worst = float(table.loc[table.index >= 0.5].max().max())
    return f"at most {worst:.2f} from scale 0.5 on", verdict(worst <= 1.2, worst <= 2.0)


def chart(results: pd.DataFrame) -> Figure:
    """Table 3 as lines, the paper's values dashed."""
    figure, (axes,) = charts.panels()
    draw(axes, results, "scale", "rounds", ("qasds", "qasdg"))
    for number, (name, values) in enumerate(_PAPER.items()):
        axes.plot(_SCALES, values, linestyle="--", color=charts.COLOURS[number], label=f"{name.upper()}, paper")
    axes.set(title="rounds per join (Table 3)", xlabel="bandwidth scaling factor")
    axes.legend()
    return figure


STUDY = Study(
    name="qasd-rounds",
    about="rounds of assignment per join over bandwidth (QASD Table 3)",
    parameters={"scale": _SCALES},
    run=run,
    chart=chart,
    statements=(
        Statement("Rounds fall from 1.41 and 1.31 at scale 0.1 to 1.04 and 1.03 at scale 1 (Table 3)", _table),
        Statement("QASDG needs fewer rounds than QASDS", _global_fewer),
        Statement("At most 1.2 rounds above scale 0.4", _few),
    ),
    seeds=SEEDS,
    paper=QASD,
    notes="Table 3 does not reproduce: the printed Algorithm 2 leaves open what ends a round (see ERRATA).",
)
