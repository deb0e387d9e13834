"""Maintenance and optimisation traffic of the protocol by type of objective and by size (XPORT, figure 10, Table 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.bench.tuning import traffic_of
from headgate.studies import charts
from headgate.studies.intervals import band
from headgate.studies.study import FAILS, PARTLY, REPRODUCES, Parameters, Statement, Study
from headgate.studies.xport import PAPER

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TYPES = {
    "I": "minimise average(path_latency)",
    "II": "maximise sum(path_bandwidth)",
    "III": "minimise max(path_latency)",
    "IV": "maximise min(path_bandwidth)",
    "V": "minimise variance(path_latency)",
    "VI": "minimise variance(path_bandwidth)",
}


def run(parameters: Parameters, seed: int) -> dict[str, Any]:
    """Messages and bytes per site in one optimisation period, the root apart."""
    found = traffic_of(TYPES[str(parameters["type"])], int(parameters["sites"]), seed=seed)
    return {
        "messages": found.messages,
        "bytes": found.bytes,
        "root_bytes": found.root_bytes,
        "maintenance_bytes": found.maintenance_bytes,
        "optimisation_bytes": found.optimisation_bytes,
    }


def _growth(results: pd.DataFrame, kind: str) -> float:
    means = results[results["type"] == kind].groupby("sites")["bytes"].mean()
    return float(means.iloc[-1] / means.iloc[0]) if len(means) > 1 else float("nan")


def _constant(results: pd.DataFrame) -> tuple[str, str]:
    grown = {kind: _growth(results, kind) for kind in ("I", "III", "IV")}
    text = ", ".join(f"type {kind} x{value:.2f}" for kind, value in grown.items())
    sizes = sorted(results["sites"].unique())
    good = all(value < 1.3 for value in grown.values())
    return f"from {sizes[0]} to {sizes[-1]} sites: {text}", REPRODUCES if good else FAILS


def _grow(results: pd.DataFrame) -> tuple[str, str]:
    grown = {kind: _growth(results, kind) for kind in ("II", "V", "VI")}
    text = ", ".join(f"type {kind} x{value:.2f}" for kind, value in grown.items())
    linear = grown["V"] > 4 and grown["VI"] > 4
    return text + " (the distinct bottlenecks of type II stay few)", REPRODUCES if linear else PARTLY


def _bottleneck(results: pd.DataFrame) -> tuple[str, str]:
    means = results.groupby("type")["optimisation_bytes"].mean()
    good = means["III"] < means["I"] and means["IV"] < means["I"]
    return (
        f"{means['I']:.0f} B (I), {means['III']:.0f} B (III), {means['IV']:.0f} B (IV)",
        REPRODUCES if good else FAILS,
    )


def chart(results: pd.DataFrame) -> Figure:
    """Bytes per site over the number of sites, one line a type."""
    figure, (axes,) = charts.panels()
    for number, kind in enumerate(TYPES):
        part = results[results["type"] == kind]
        if len(part):
            charts.draw_band(axes, band(part, ["sites"], "bytes"), "sites", f"type {kind}", number)
    axes.set(xscale="log", yscale="log", xlabel="sites", ylabel="bytes per site and period", title="Protocol traffic")
    axes.legend()
    return figure


def summary(results: pd.DataFrame) -> dict[str, Any]:
    """Bytes per site by type and size."""
    means = results.groupby(["type", "sites"])["bytes"].mean().reset_index()
    return {f"type {row['type']}, {row['sites']} sites": round(float(row["bytes"]), 1) for _, row in means.iterrows()}


STUDY = Study(
    name="xport-traffic",
    about="What the tuning protocol sends per site and optimisation period, by type of objective and number of sites.",
    parameters={"type": list(TYPES), "sites": [50, 100, 400]},
    run=run,
    chart=chart,
    statements=(
        Statement("types I, III and IV need constant state and traffic per site (Table 4)", _constant),
        Statement("types II, V and VI grow with the number of sites (Table 4)", _grow),
        Statement(
            "bottleneck objectives send less optimisation traffic: only critical units ask (figure 10)", _bottleneck
        ),
    ),
    summary=summary,
    seeds=3,
    paper=PAPER,
    notes="240 s optimisation periods with twelve maintenance phases, random recursive trees. Give "
    "`--set sites=10000 --set type=I` for large systems; `headgate bench tuning` runs 10,000 sites of type I.",
)
