"""Grid paper, section 5: 16 sites, a hot spot in the middle, and what replication costs over depth and dimensions.

Queries arrive until one is refused. Everything is compared at equal client load, never at each run's own end. `digits`
is the total depth; the same depth per dimension is twice the digits for four dimensions. `ranking` is the paper's (most
freed first) or ours (most freed for what the stream costs). The case `identical` asks for one smallest region 10,000
times, a denial of service against the site that owns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.grid.serving import Overlay, Partition
from headgate.grid.serving.experiment import LARGE, SMALL, fill
from headgate.grid.serving.workload import STEPS, cut, index_space
from headgate.studies import charts
from headgate.studies.study import FAILS, PARTLY, REPRODUCES, Parameters, Statement, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_LEVELS = (0.4, 0.6, 0.8)
_CROWD = 10_000


def run(parameters: Parameters, seed: int) -> list[dict[str, Any]]:
    """One run to the first refusal: a row per level of client load that it reached, and one for its end (`level` 1)."""
    if parameters["hot_spot"] == "identical":
        return [_crowd(int(parameters["dimensions"]), int(parameters["digits"]))]
    found = fill(
        dimensions=int(parameters["dimensions"]),
        digits=int(parameters["digits"]),
        exponent={"large": LARGE, "small": SMALL}[str(parameters["hot_spot"])],
        seed=seed,
        most=float(parameters["most"]),
        levels=_LEVELS,
        paper=parameters["ranking"] == "paper",
    )
    marks = {**found.marks, 1.0: found.end}
    return [
        {
            "level": level,
            "client_load": mark.client_load,
            "replication": mark.replication,
            "connections": mark.connections / 16,
            "messages": mark.messages,
            "queries": mark.queries,
            "served": mark.client_load / (1 - mark.replication) if mark.replication < 1 else 0.0,
        }
        for level, mark in marks.items()
    ]


def _crowd(dimensions: int, digits: int) -> dict[str, Any]:
    """Many clients of one smallest region: how many are served, and by how many sites."""
    space = index_space(dimensions)
    partition = Partition.squares(space, 4)
    overlay = Overlay(partition, 25 * space.cells // 16, limit=digits)
    depth = digits // dimensions
    side = STEPS >> depth
    spot = (STEPS // 4, STEPS // 4, 0, 0)
    high = tuple(low + side for low in spot)
    for identity in range(_CROWD):
        overlay.ask("s0", cut(space, identity, spot, high, digits))
        overlay.run()
    refused = sum(placement.refused for placement in overlay.clients.values())
    serving = {site for placement in overlay.clients.values() for site in placement.parts}
    return {
        "level": 1.0,
        "client_load": overlay.client_load / overlay.capacity,
        "replication": overlay.replication / overlay.capacity,
        "connections": overlay.connections / 16,
        "messages": overlay.control_messages,
        "queries": _CROWD - refused,
        "served": 1 - refused / _CROWD,
        "sites": len(serving),
    }


def _at(results: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    found = results
    for name, value in wanted.items():
        found = found[found[name] == value]
    return found


def _saving(results: pd.DataFrame, level: float, **wanted: Any) -> float:
    flat = _at(results, dimensions=2, level=level, **wanted)["replication"].mean()
    full = _at(results, dimensions=4, level=level, **wanted)["replication"].mean()
    return float(1 - full / flat)


def _large(results: pd.DataFrame) -> tuple[str, str]:
    found = {level: _saving(results, level, hot_spot="large", digits=8, ranking="paper") for level in _LEVELS}
    text = ", ".join(f"{share:.0%} at {level:.0%} client load" for level, share in found.items())
    best, worst = max(found.values()), min(found.values())
    return f"8 digits: {text}", REPRODUCES if worst > 0.4 else PARTLY if best > 0.4 else FAILS


def _small(results: pd.DataFrame) -> tuple[str, str]:
    found = {digits: _saving(results, 0.6, hot_spot="small", digits=digits, ranking="paper") for digits in (6, 8)}
    flat = _at(results, dimensions=2, digits=4, level=0.6, hot_spot="small", ranking="paper")["replication"].mean()
    full = _at(results, dimensions=4, digits=8, level=0.6, hot_spot="small", ranking="paper")["replication"].mean()
    text = ", ".join(f"{share:.0%} at {digits} digits" for digits, share in found.items())
    deep = 1 - full / flat
    verdict = REPRODUCES if min(found.values()) > 0.4 else PARTLY if deep > 0.4 else FAILS
    return f"{text}; {deep:.0%} at equal depth per dimension (2 each)", verdict


def _equal_connections(results: pd.DataFrame) -> tuple[str, str]:
    rows = _at(results, level=0.8, hot_spot="large", ranking="paper")
    means = rows.groupby(["dimensions", "digits"])[["connections", "replication"]].mean()
    flat = means.loc[2]
    full = means.loc[4]
    pairs = [
        (row["replication"], other["replication"])
        for _, row in full.iterrows()
        for _, other in flat.iterrows()
        if abs(row["connections"] - other["connections"]) <= 0.25 * other["connections"]
    ]
    if not pairs:
        return "no two indexes had connections within a quarter of each other", PARTLY
    wins = sum(mine < theirs for mine, theirs in pairs)
    return f"less bandwidth in {wins} of {len(pairs)} pairs with about equal connections", (
        REPRODUCES if wins == len(pairs) else PARTLY if wins else FAILS
    )


def _deeper(results: pd.DataFrame) -> tuple[str, str]:
    rows = _at(results, level=0.8, dimensions=4, ranking="paper")
    means = rows.groupby("digits")[["connections", "replication"]].mean().sort_index()
    text = ", ".join(f"{d}: {r.connections:.1f} a site, {r.replication:.2%}" for d, r in means.iterrows())
    more = bool(means["connections"].is_monotonic_increasing)
    less = bool(means["replication"].is_monotonic_decreasing)
    return text, REPRODUCES if more and less else PARTLY if more or less else FAILS


def _full(results: pd.DataFrame) -> tuple[str, str]:
    rows = _at(results, level=1.0, dimensions=4, ranking="ours")
    rows = rows[rows["hot_spot"] != "identical"]
    mean, least = float(rows["client_load"].mean()), float(rows["client_load"].min())
    text = f"client load at the first refusal {mean:.1%} of all bandwidth in the mean, {least:.1%} at least"
    return text + " (no plan can serve more than 100 %)", REPRODUCES if mean >= 0.9 else FAILS


def _attack(results: pd.DataFrame) -> tuple[str, str]:
    rows = _at(results, hot_spot="identical")
    served, sites = float(rows["served"].min()), float(rows["sites"].min())
    return f"{served:.1%} of 10,000 served, by {sites:.0f} sites", REPRODUCES if served == 1 and sites > 1 else FAILS


def chart(results: pd.DataFrame) -> Figure:
    """Replication, connections, messages and load at refusal against the digits, a panel each for both hot spots."""
    shown = (
        ("replication", 0.8, "replication at 80 % client load (%)", 100.0),
        ("connections", 0.8, "connections a site at 80 %", 1.0),
        ("messages", 0.8, "messages at 80 %", 1.0),
        ("client_load", 1.0, "client load at first refusal (%)", 100.0),
    )
    figure, axes = charts.panels(4, 2, width=4.2, height=3.2)
    for row, hot_spot in enumerate(("large", "small")):
        for column, (value, level, title, scale) in enumerate(shown):
            panel = axes[4 * row + column]
            for number, dimensions in enumerate((2, 3, 4)):
                rows = _at(results, hot_spot=hot_spot, level=level, dimensions=dimensions, ranking="paper")
                means = rows.groupby("digits")[value].mean() * scale
                panel.plot(
                    means.index, means, color=charts.COLOURS[number], marker="o", label=f"{dimensions} dimensions"
                )
            panel.set_title(f"{title}, {hot_spot}", fontsize=9)
            panel.set_xlabel("digits")
    axes[0].legend()
    return figure


_CASES = [
    {"hot_spot": hot_spot, "dimensions": dimensions, "digits": digits, "ranking": ranking, "most": 0.05}
    for hot_spot in ("large", "small")
    for dimensions in (2, 3, 4)
    for digits in (4, 6, 8)
    for ranking in ("paper", "ours")
    if ranking == "paper" or digits == 8
]

STUDY = Study(
    name="grid-replication",
    about="hot spots over 16 sites: what indexing the resolutions saves",
    parameters=[
        *_CASES,
        {"hot_spot": "identical", "dimensions": 4, "digits": 12, "ranking": "ours", "most": 0.05},
    ],
    run=run,
    chart=chart,
    statements=(
        Statement("indexing both resolutions saves over 40 % of replication, large hot spot (figure 8)", _large),
        Statement("and about as much for a small hot spot (figure 9)", _small),
        Statement("less bandwidth at the same number of connections (section 4.5.2)", _equal_connections),
        Statement("a deeper index needs more connections and less bandwidth (figures 4, 5, 8, 9)", _deeper),
        Statement("the sites fill up whatever the hot spot (figures 10, 11); our goal 90 %", _full),
        Statement("many clients of one smallest region are no denial of service (section 4.4.1)", _attack),
    ),
    seeds=3,
    paper="grid",
    notes="Bandwidths are shares of all sites' bandwidth. Queries take at most 5 % of a site's.",
)
