"""Bottleneck-based against opportunistic optimisation, serial against concurrent (XPORT, section 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.tuning.compile import compile_objective
from headgate.tuning.search import Options, Tuner
from headgate_studies.studies import charts
from headgate_studies.studies.papers import XPORT
from headgate_studies.studies.study import FAILS, PARTLY, REPRODUCES, Parameters, Statement, Study
from headgate_studies.studies.xport import mean_text, system

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

OBJECTIVES = {
    "sum of latency": "minimise sum(path_latency)",
    "largest latency": "minimise max(path_latency)",
    "smallest bandwidth": "maximise min(path_bandwidth)",
}


def run(parameters: Parameters, seed: int) -> dict[str, Any]:
    """Final cost relative to the start, periods and transformations."""
    overlay, shape = system(seed, int(parameters["sites"]))
    options = Options(
        mode=str(parameters["mode"]), concurrent=parameters["apply"] == "concurrent", periods=120, screen=False
    )
    tuned = Tuner(overlay, compile_objective(OBJECTIVES[str(parameters["objective"])]), options=options).run(shape)
    return {
        "after": tuned.after / tuned.before,
        "steps": len(tuned.steps),
        "periods": tuned.periods,
        "settled": tuned.settled,
    }


def _part(results: pd.DataFrame, sites: int, objective: str, mode: str, apply: str) -> pd.DataFrame:
    keys = (results["objective"] == objective) & (results["mode"] == mode) & (results["apply"] == apply)
    return results[keys & (results["sites"] == sites)].set_index("seed")


def _sizes(results: pd.DataFrame) -> list[int]:
    return sorted(int(sites) for sites in results["sites"].unique())


def _verdict(good: list[bool]) -> str:
    return REPRODUCES if all(good) else PARTLY if any(good) else FAILS


def _faster(results: pd.DataFrame) -> tuple[str, str]:
    told, good = [], []
    for sites in _sizes(results):
        serial = _part(results, sites, "sum of latency", "bottleneck", "serial")["periods"]
        side = _part(results, sites, "sum of latency", "bottleneck", "concurrent")["periods"]
        good.append(bool(side.mean() < serial.mean()))
        told.append(f"{sites} sites: {mean_text(serial)} periods serial, {mean_text(side)} concurrent")
    return "; ".join(told), _verdict(good)


def _useless(results: pd.DataFrame) -> tuple[str, str]:
    told, good = [], []
    for sites in _sizes(results):
        for objective in ("largest latency", "smallest bandwidth"):
            narrow = _part(results, sites, objective, "bottleneck", "serial")["steps"].mean()
            wide = _part(results, sites, objective, "opportunistic", "serial")["steps"].mean()
            good.append(bool(wide > narrow))
            told.append(f"{sites} sites, {objective}: {narrow:.1f} against {wide:.1f}")
    return "; ".join(told), _verdict(good)


def _better(results: pd.DataFrame) -> tuple[str, str]:
    told, good = [], []
    for sites in _sizes(results):
        for objective, sign in (("largest latency", 1), ("smallest bandwidth", -1)):
            narrow = _part(results, sites, objective, "bottleneck", "serial")["after"].mean()
            wide = _part(results, sites, objective, "opportunistic", "serial")["after"].mean()
            good.append(bool(sign * wide < sign * narrow - 1e-9))
            told.append(f"{sites} sites, {objective}: {narrow:.3f} of the start against {wide:.3f}")
    return "; ".join(told), _verdict(good)


def chart(results: pd.DataFrame) -> Figure:
    """Periods until nothing more helps by mode, one panel an objective with the final costs below it."""
    figure, panels = charts.panels(3, width=4.0, height=3.4)
    for axes, objective in zip(panels, OBJECTIVES, strict=True):
        names, heights, costs = [], [], []
        for mode in ("bottleneck", "opportunistic"):
            for apply in ("serial", "concurrent"):
                part = _part(results, _sizes(results)[0], objective, mode, apply)
                if len(part):
                    names.append(f"{mode}\n{apply}")
                    heights.append(float(part["periods"].mean()))
                    costs.append(float(part["after"].mean()))
        charts.draw_bars(axes, names, heights)
        axes.set_title(f"{objective}, {_sizes(results)[0]} sites", fontsize=9)
        axes.set(ylabel="periods")
        span = f"{min(costs):.3f}" if max(costs) - min(costs) < 5e-4 else f"{min(costs):.3f} to {max(costs):.3f}"
        axes.set_xlabel(f"final cost (start = 1): {span}", fontsize=8)
        axes.tick_params(axis="x", labelsize=7)
    return figure


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """Mean periods, steps and final cost by setting."""
    means = results.groupby(["sites", "objective", "mode", "apply"])[["periods", "steps", "after"]].mean().reset_index()
    return {
        f"{row['sites']} sites, {row['objective']}, {row['mode']}, {row['apply']}: {name}": round(float(row[name]), 3)
        for _, row in means.iterrows()
        for name in ("periods", "steps", "after")
    }


STUDY = Study(
    name="xport-modes",
    about="How the choice of changes matters: what helps the system or what helps a unit, one or many at once.",
    parameters={
        "sites": [30, 60],
        "objective": list(OBJECTIVES),
        "mode": ["bottleneck", "opportunistic"],
        "apply": ["serial", "concurrent"],
    },
    run=run,
    chart=chart,
    statements=(
        Statement("serial changes converge more slowly than concurrent ones (section 4.2.2)", _faster),
        Statement("the opportunistic approach makes more, often useless, changes (section 4.2.1)", _useless),
        Statement("it can still lead to a better configuration over time (section 4.2.1)", _better),
    ),
    summary=summary,
    seeds=20,
    paper=XPORT,
)
