"""`headgate plan --live`: assumed, predicted and measured side by side, and what a change would do."""

from __future__ import annotations

from typing import Any, Final

from headgate.cli.sheets import Sheet

_SAME: Final = 0.0005
"""Qualities that differ by less are shown alike."""


def live_tables(found: dict[str, Any]) -> list[Sheet]:
    """Streams, sites whose bandwidth is unknown, and subscriptions of a planner's report."""
    streams = Sheet("streams", "stream", "rows/s assumed", "measured", "bytes a row assumed", "measured")
    for name, each in found["streams"].items():
        figures = (each[key] for key in ("rate_assumed", "rate", "row_bytes_assumed", "row_bytes"))
        rates = ("unknown" if figure is None else f"{figure:,.1f}" for figure in figures)
        streams.add_row(name, *rates)
    sites = Sheet("sites of unknown bandwidth", "site", "upload seen kB/s", "shed")
    for name, each in found["sites"].items():
        sites.add_row(name, f"{each['upload_bytes_per_s'] / 1e3:,.1f}", f"{each['shed']:.3f}")
    people = Sheet(
        "subscriptions (delays in ms, from the commit)",
        "subscription",
        "selects, assumed",
        "measured",
        "drop, predicted",
        "measured",
        "delay, predicted",
        "measured",
        "quality, predicted",
        "measured",
        "rows",
    )
    for name, each in found["subscriptions"].items():
        people.add_row(
            name,
            _part(each["selectivity_assumed"]),
            _part(each["selectivity"]),
            _part(each["drop_predicted"]),
            _part(each["drop"]),
            f"{each['delay_predicted_s'] * 1e3:,.0f}",
            "-" if each["delay_s"] is None else f"{each['delay_s'] * 1e3:,.0f}",
            _part(each["quality_predicted"]),
            _part(each["quality"]),
            f"{each['rows']:,}",
        )
    return [streams, *([sites] if found["sites"] else []), people]


def _part(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def what_if_table(found: dict[str, Any]) -> Sheet:
    """Who would get more or less after a change, most first; everybody where nothing is known of before."""
    before, after = (found.get("before") or {"subscriptions": {}})["subscriptions"], found["after"]["subscriptions"]
    table = Sheet("who would get more or less", "subscription", "site", "quality now", "then", "drop then", "binds")

    def gained(name: str) -> float:
        return (after[name]["quality"] or 0.0) - (before.get(name, {}).get("quality") or 0.0)

    for name in sorted(after, key=lambda each: (-abs(gained(each)), each)):
        if name in before and abs(gained(name)) < _SAME:
            continue
        now, then = before.get(name, {}), after[name]
        qualities = (_part(now.get("quality")), _part(then["quality"]))
        table.add_row(name, then["site"], *qualities, _part(then["drop"]), then["binds"] or "")
    return table


def what_if_lines(found: dict[str, Any]) -> list[str]:
    """What a change would do to the plan as a whole."""
    means = [found[key]["metrics"]["geometric_mean"] for key in ("before", "after") if key in found]
    lines = [f"the geometric mean goes from {means[0]:.3f} to {means[1]:.3f}"] if len(means) == 2 else []
    lines += [f"no rate of {name} is known" for name in found["after"]["rates_unknown"]]
    lines += found["after"]["overloads"]
    if gone := found["subscriptions_gone"]:
        lines.append(f"gone with it: {', '.join(gone)}")
    if "steps" in found:
        lines += found["steps"]
        lines.append(
            f"kept: {found['moves']} members have another parent, join or leave; planned anew: {found['moves_anew']},"
            f" quality {found['quality_anew']:.3f}"
        )
    return [*lines, "nothing was changed: `headgate change` changes it"]
