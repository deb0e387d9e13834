"""Maintenance and optimisation traffic of the protocol by type of objective and by size (XPORT, figure 10, Table 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate_studies.studies import charts
from headgate_studies.studies.intervals import band
from headgate_studies.studies.papers import XPORT
from headgate_studies.studies.study import FAILS, PARTLY, REPRODUCES, Parameters, Statement, Study
from headgate_studies.workloads.tuning_traffic import TYPES, traffic_cases, traffic_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def run(parameters: Parameters, seed: int) -> dict[str, Any]:
    """Messages and bytes per site in one optimisation period, the root apart."""
    found = traffic_of(TYPES[str(parameters["type"])], int(parameters["sites"]), seed=seed)
    return {
        "messages": found.messages,
        "bytes": found.bytes,
        "root_messages": found.root_messages,
        "root_bytes": found.root_bytes,
        "maintenance_bytes": found.maintenance_bytes,
        "optimisation_bytes": found.optimisation_bytes,
    }


def _growth(results: pd.DataFrame, kind: str) -> tuple[str, float, float]:
    """From the smallest to the largest size: what is told, the growth of the bytes, and that of the sites."""
    means = results[results["type"] == kind].groupby("sites")["bytes"].mean()
    grown = float(means.iloc[-1] / means.iloc[0])
    told = f"type {kind} x{grown:.2f} from {means.index[0]:,} to {means.index[-1]:,} sites"
    return told, grown, float(means.index[-1] / means.index[0])


def _constant(results: pd.DataFrame) -> tuple[str, str]:
    found = [_growth(results, kind) for kind in ("I", "III", "IV")]
    return "; ".join(told for told, _, _ in found), REPRODUCES if all(grown < 1.3 for _, grown, _ in found) else FAILS


def _grow(results: pd.DataFrame) -> tuple[str, str]:
    found = {kind: _growth(results, kind) for kind in ("II", "V", "VI")}
    linear = all(found[kind][1] > found[kind][2] / 2 for kind in ("V", "VI"))
    grows = found["II"][1] > 1.3
    text = "; ".join(told for told, _, _ in found.values())
    return (
        text if grows else f"{text} (the distinct bottlenecks of type II stay few)",
        REPRODUCES if linear and grows else PARTLY if linear else FAILS,
    )


def _root(results: pd.DataFrame) -> tuple[str, str]:
    shown = results[results["type"] == "I"].groupby("sites")[["root_messages", "root_bytes"]].mean()
    text = "; ".join(
        f"{sites:,} sites: {row['root_messages']:.0f} messages, {row['root_bytes'] / 1000:.1f} KB"
        for sites, row in shown.iterrows()
    )
    grown = float(shown["root_bytes"].iloc[-1] / shown["root_bytes"].iloc[0])
    return f"type I, {text}", REPRODUCES if grown < shown.index[-1] / shown.index[0] / 2 else FAILS


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
    """Messages and bytes per site, and of the root, by type and size."""
    means = results.groupby(["type", "sites"]).mean(numeric_only=True).reset_index()
    return {
        f"type {row['type']}, {row['sites']:,} sites: {name}": round(float(row[name]), 1)
        for _, row in means.iterrows()
        for name in ("messages", "bytes", "root_messages", "root_bytes")
    }


STUDY = Study(
    name="xport-traffic",
    about="What the tuning protocol sends per site and optimisation period, by type of objective and number of sites.",
    parameters=[{"type": kind, "sites": size} for kind, size in traffic_cases((100, 1000, 10000))],
    run=run,
    chart=chart,
    statements=(
        Statement("types I, III and IV need constant state and traffic per site (Table 4)", _constant),
        Statement("types II, V and VI grow with the number of sites (Table 4)", _grow),
        Statement(
            "bottleneck objectives send less optimisation traffic: only critical units ask (figure 10)", _bottleneck
        ),
        Statement("what the root sends grows with its children, not with the system (ours)", _root),
    ),
    summary=summary,
    seeds=20,
    most_seeds=lambda case: {1000: 2, 10000: 1}.get(case["sites"]),
    paper=XPORT,
    notes="240 s optimisation periods with twelve maintenance phases, random recursive trees. Types II, V and VI stop "
    "at 1,000 sites, where the last two send about 100 KB a site and period. Means leave out the root.",
)
