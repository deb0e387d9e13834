"""`headgate plan --live`: assumed, predicted and measured side by side."""

from __future__ import annotations

from typing import Any

from headgate.cli.sheets import Sheet


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
