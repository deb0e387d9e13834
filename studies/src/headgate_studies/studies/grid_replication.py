"""Grid paper, section 5: 16 sites, a hot spot in the middle, and what replication costs over depth and dimensions.

Queries arrive until one is refused. Indexes are compared at equal client load, never at each run's own end: with equal
digits in total, with equal digits a dimension (4, 6 and 8 in all are two each for two, three and four dimensions, and
6, 9 and 12 three each) and with about equal connections. `ranking` is the paper's (most freed first) or ours (most
freed for what the stream costs). What is served at the first refusal is set against the most that any plan could serve
(section 3.3, `models.serving_bound`). The case `identical` asks for one smallest region 10,000 times, a denial of
service against the site that owns it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headgate.grid.serving import Partition, ServingOverlay
from headgate_studies.models.serving import LARGE, SMALL, fill
from headgate_studies.studies import charts
from headgate_studies.studies.papers import GRID
from headgate_studies.studies.study import FAILS, PARTLY, REPRODUCES, Parameters, Statement, Study
from headgate_studies.workloads.serving import STEPS, cut, index_space

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEVELS = (0.4, 0.6, 0.8)
_DIGITS = {2: (4, 6, 8), 3: (4, 6, 8, 9), 4: (4, 6, 8, 12)}
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
            "of_bound": mark.client_load / found.bound,
        }
        for level, mark in marks.items()
    ]


def _crowd(dimensions: int, digits: int) -> dict[str, Any]:
    """Many clients of one smallest region: how many are served, and by how many sites."""
    space = index_space(dimensions)
    partition = Partition.squares(space, 4)
    overlay = ServingOverlay(partition, 25 * space.cells // 16, limit=digits)
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
        "answered": 1 - refused / _CROWD,
        "sites": len(serving),
    }


def _at(results: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    found = results
    for name, value in wanted.items():
        found = found[found[name] == value]
    return found


def _mean(results: pd.DataFrame, value: str, **wanted: Any) -> float:
    return float(_at(results, **wanted)[value].mean())


def _saving(results: pd.DataFrame, level: float, digits: tuple[int, int], **wanted: Any) -> float:
    """What an index over four dimensions saves against one over two, each with so many digits."""
    flat = _mean(results, "replication", dimensions=2, digits=digits[0], level=level, **wanted)
    full = _mean(results, "replication", dimensions=4, digits=digits[1], level=level, **wanted)
    return 1 - full / flat


def _over_40(found: Mapping[str, float]) -> tuple[str, str]:
    """The savings in words, and whether all are over 40 %; where a run did not reach the load there is none."""
    known = {case: share for case, share in found.items() if not math.isnan(share)}
    if not known:
        return "not reached", FAILS
    text = ", ".join(f"{share:.0%} {case}" for case, share in known.items())
    return text, REPRODUCES if min(known.values()) > 0.4 else PARTLY if max(known.values()) > 0.4 else FAILS


def _large(results: pd.DataFrame) -> tuple[str, str]:
    text, verdict = _over_40(
        {
            f"at {level:.0%} client load": _saving(results, level, (8, 8), hot_spot="large", ranking="paper")
            for level in _LEVELS
        }
    )
    return f"8 digits: {text}", verdict


def _small(results: pd.DataFrame) -> tuple[str, str]:
    text, verdict = _over_40(
        {
            f"at {digits} digits": _saving(results, 0.6, (digits, digits), hot_spot="small", ranking="paper")
            for digits in (6, 8)
        }
    )
    return f"at 60 % client load: {text}", verdict


def _equal_depth(results: pd.DataFrame) -> tuple[str, str]:
    text, verdict = _over_40(
        {
            f"({hot_spot}, {each} each)": _saving(
                results, 0.6, (2 * each, 4 * each), hot_spot=hot_spot, ranking="paper"
            )
            for hot_spot in ("large", "small")
            for each in (2, 3)
        }
    )
    return f"at 60 % client load: {text}", verdict


def _equal_connections(results: pd.DataFrame) -> tuple[str, str]:
    rows = _at(results, level=0.8, ranking="paper")
    pairs = []
    for hot_spot in ("large", "small"):
        flat, full = (_over_digits(_at(rows, hot_spot=hot_spot), dimensions) for dimensions in (2, 4))
        pairs += [
            (mine["replication"], theirs["replication"])
            for mine in full
            for theirs in flat
            if abs(mine["connections"] - theirs["connections"]) <= 0.25 * theirs["connections"]
        ]
    if not pairs:
        return "no two indexes had connections within a quarter of each other", PARTLY
    wins = sum(mine < theirs for mine, theirs in pairs)
    text = f"80 % client load: less bandwidth in {wins} of {len(pairs)} pairs of indexes with about equal connections"
    return text, REPRODUCES if wins == len(pairs) else PARTLY if wins else FAILS


def _over_digits(rows: pd.DataFrame, dimensions: int) -> list[dict[str, float]]:
    """Means of what an index needs, by its digits."""
    mine = _at(rows, dimensions=dimensions)
    names = ("digits", "connections", "messages", "replication")
    return [
        {name: _mean(mine, name, digits=digits) for name in names} for digits in sorted(set(mine["digits"].tolist()))
    ]


def _deeper(results: pd.DataFrame) -> tuple[str, str]:
    found = _over_digits(_at(results, level=0.8, ranking="paper"), 4)
    if len(found) < 2:
        return "4 dimensions at 80 % client load: not reached at two depths", FAILS
    text = ", ".join(
        f"{each['digits']:.0f} digits: {each['connections']:.1f} connections a site, {each['messages']:,.0f} messages, "
        f"{each['replication']:.2%}"
        for each in found
    )
    steps = list(itertools.pairwise(found))
    more = all(a["connections"] <= b["connections"] and a["messages"] <= b["messages"] for a, b in steps)
    less = all(a["replication"] >= b["replication"] for a, b in steps)
    return (
        f"4 dimensions at 80 % client load, {text}",
        REPRODUCES if more and less else PARTLY if more or less else FAILS,
    )


def _smaller(results: pd.DataFrame) -> tuple[str, str]:
    rows = _at(results, level=0.8, digits=8, ranking="paper")
    text, more = [], []
    for dimensions in (2, 3, 4):
        found = [_over_digits(_at(rows, hot_spot=hot_spot), dimensions) for hot_spot in ("large", "small")]
        if not all(found):
            continue
        (large,), (small,) = found
        text.append(
            f"{dimensions} dimensions: {large['connections']:.1f} and {small['connections']:.1f} connections a site, "
            f"{large['messages']:,.0f} and {small['messages']:,.0f} messages"
        )
        more += [small[name] > large[name] for name in ("connections", "messages")]
    verdict = REPRODUCES if more and all(more) else PARTLY if any(more) else FAILS
    return "8 digits, 80 % client load, large and small: " + "; ".join(text), verdict


def _full(results: pd.DataFrame) -> tuple[str, str]:
    rows = _at(results, level=1.0, dimensions=4, ranking="ours")
    rows = rows[rows["hot_spot"] != "identical"]
    mean, least = float(rows["client_load"].mean()), float(rows["client_load"].min())
    text = f"client load at the first refusal {mean:.1%} of all bandwidth in the mean, {least:.1%} at least"
    return text, REPRODUCES if mean >= 0.9 else FAILS


def _optimum(results: pd.DataFrame) -> tuple[str, str]:
    cases = [
        *((hot_spot, "paper", dimensions) for hot_spot in ("large", "small") for dimensions in (2, 3, 4)),
        *((hot_spot, "ours", 4) for hot_spot in ("large", "small")),
    ]
    found = {
        case: _mean(results, "of_bound", level=1.0, digits=8, hot_spot=case[0], ranking=case[1], dimensions=case[2])
        for case in cases
    }
    text = ", ".join(f"{' '.join(map(str, case))}: {share:.1%}" for case, share in found.items())
    least = min(share for (_, ranking, _), share in found.items() if ranking == "ours")
    return f"8 digits, by hot spot, ranking and dimensions: {text}", REPRODUCES if least >= 0.9 else FAILS


def _attack(results: pd.DataFrame) -> tuple[str, str]:
    rows = _at(results, hot_spot="identical")
    served, sites = float(rows["answered"].min()), float(rows["sites"].min())
    return f"{served:.1%} of 10,000 served, by {sites:.0f} sites", REPRODUCES if served == 1 and sites > 1 else FAILS


_PANELS = (
    ("digits", "replication", 0.8, "replication at 80 % load (%)"),
    ("each", "replication", 0.8, "replication at 80 % load (%)"),
    ("connections", "replication", 0.8, "replication at 80 % load (%)"),
    ("digits", "connections", 0.8, "connections a site at 80 % load"),
    ("digits", "messages", 0.8, "messages at 80 % load (thousands)"),
    ("digits", "client_load", 1.0, "load at first refusal (%)"),
)
_AXES = {
    "digits": "digits of the index",
    "each": "digits a dimension",
    "connections": "connections a site (points are named by their digits)",
}
_SCALES = {"replication": 100.0, "client_load": 100.0, "connections": 1.0, "messages": 1e-3}


def chart(results: pd.DataFrame) -> Figure:
    """Six panels for each hot spot: what replication takes, over three abscissae, and figures 4 to 7, 10 and 11."""
    figure, axes = charts.panels(3, 4, width=4.4, height=3.0)
    results = results.assign(each=results["digits"] / results["dimensions"])
    for row, hot_spot in enumerate(("large", "small")):
        for panel, (x, y, level, title) in zip(axes[6 * row : 6 * row + 6], _PANELS, strict=True):
            for number, dimensions in enumerate((2, 3, 4)):
                rows = _at(results, hot_spot=hot_spot, level=level, dimensions=dimensions)
                _draw(panel, _at(rows, ranking="paper"), x, y, number, f"{dimensions} dimensions, the paper's ranking")
                _draw(
                    panel, _at(rows, ranking="ours"), x, y, number, f"{dimensions} dimensions, our ranking", star=True
                )
            panel.set_title(f"{hot_spot} hot spot: {title}", fontsize=9)
            panel.set_xlabel(_AXES[x])
            panel.margins(y=0.12)
            panel.set_ylim(bottom=0)
    found = [axis.get_legend_handles_labels() for axis in axes]
    legend = {label: handle for handles, labels in found for handle, label in zip(handles, labels, strict=True)}
    figure.legend(list(legend.values()), list(legend), loc="outside lower center", ncols=2)
    return figure


def _draw(panel: Axes, rows: pd.DataFrame, x: str, y: str, number: int, label: str, *, star: bool = False) -> None:
    """One index's means by its digits: a line, points named by their digits over connections, or a star."""
    if rows.empty:
        return
    means = rows.groupby("digits")[["each", "connections", y]].mean().reset_index()
    heights = means[y] * _SCALES[y]
    joined = not star and x != "connections"
    panel.plot(
        means[x],
        heights,
        color=charts.COLOURS[number],
        marker="*" if star else charts.MARKERS[number],
        markersize=11 if star else 5,
        linestyle="-" if joined else "none",
        label=label,
    )
    if x == "connections":
        for place, height, digits in zip(means[x], heights, means["digits"], strict=True):
            panel.annotate(str(digits), (place, height), (4, 3), textcoords="offset points", fontsize=8)


_CASES = [
    {"hot_spot": hot_spot, "dimensions": dimensions, "digits": digits, "ranking": ranking, "most": 0.05}
    for hot_spot in ("large", "small")
    for dimensions in (2, 3, 4)
    for digits in _DIGITS[dimensions]
    for ranking in ("paper", "ours")
    if ranking == "paper" or (dimensions, digits) == (4, 8)
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
        Statement("it saves over 40 % with as many digits a dimension (ours)", _equal_depth),
        Statement("less bandwidth at the same number of connections (section 4.5.2)", _equal_connections),
        Statement("a deeper index needs more connections and messages and less bandwidth (figures 4 to 9)", _deeper),
        Statement("a small hot spot needs more connections and messages than a large one (section 5.1)", _smaller),
        Statement("the sites fill up whatever the hot spot (figures 10, 11); our goal 90 %", _full),
        Statement("at least 90 % of what the best plan could serve at most (section 3.3)", _optimum),
        Statement("many clients of one smallest region are no denial of service (section 4.4.1)", _attack),
    ),
    seeds=2,
    most_seeds=lambda parameters: None if parameters["hot_spot"] == "large" else 1,
    paper=GRID,
    notes="Bandwidths are shares of all sites' bandwidth. Queries take at most 5 % of a site's. Stars are our ranking "
    "of regions (most freed for what the stream costs), at 8 digits; `headgate bench grid` compares both rankings on "
    "both indexes, with queries of at most 1 %. With two dimensions and 4 digits the smallest region is a whole "
    "site's.",
)
