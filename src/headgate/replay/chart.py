"""Variants side by side as a drawing: what share of its rows each subscription received, and rows and delay over time.

Plain SVG, no library. Of many subscriptions those are drawn that differ most between the variants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_MOST: Final = 24
_BINS: Final = 80
_LEFT, _WIDTH, _BAR, _GAP, _PANEL = 200.0, 520.0, 11.0, 10.0, 130.0


def draw_comparison(variants: Sequence[Mapping[str, Any]], seconds: Sequence[Mapping[int, Sequence[float]]]) -> str:
    """The SVG text. `seconds` has, for each variant and second, rows received and given up, and the sum of delays."""
    parts = [_legend(variants)]
    names = _most_different(variants)
    y = 64.0
    parts.append(_title(y - 14, "Share of the matched rows that was received, and mean delay"))
    for name in names:
        lines = [variant["subscriptions"][name] for variant in variants]
        middle = y + len(lines) * _BAR / 2 + 4
        parts.append(_text(_LEFT - 8, middle, name, anchor="end"))
        for number, line in enumerate(lines):
            share = line["delivered"] / line["matched"] if line["matched"] else 0.0
            top = y + number * _BAR
            parts.append(_rect(_LEFT, top, _WIDTH, _BAR - 2, "#eeeeee"))
            parts.append(_rect(_LEFT, top, _WIDTH * share, _BAR - 2, COLOURS[number % len(COLOURS)]))
            delay = "" if line["delay_s"] is None else f", {line['delay_s']:.2f} s"
            parts.append(
                _text(_LEFT + _WIDTH + 8, top + _BAR - 3, f"{share:.1%} of {line['matched']:,}{delay}", size=9)
            )
        y += len(lines) * _BAR + _GAP
    binned = _binned(seconds)
    for title, column in (("Rows received a second", 0), ("Mean delay from commit to subscriber, s", 1)):
        y += 34
        parts.append(_title(y - 12, title))
        parts.append(_lines([[bin_[column] for bin_ in each] for each in binned], y))
        y += _PANEL
    height, width = y + 24, _LEFT + _WIDTH + 190
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif"'
        f' font-size="11" role="img"><title>Replay: {escape(" and ".join(v["name"] for v in variants))}</title>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _legend(variants: Sequence[Mapping[str, Any]]) -> str:
    parts, x = [], 12.0
    for number, variant in enumerate(variants):
        parts.append(_rect(x, 12, 12, 12, COLOURS[number % len(COLOURS)]))
        parts.append(_text(x + 18, 22, variant["name"]))
        x += 40 + 7 * len(variant["name"])
    return "".join(parts)


def _most_different(variants: Sequence[Mapping[str, Any]]) -> list[str]:
    """The subscriptions with the largest differences in what they received, in the order of their names."""
    names = sorted(variants[0]["subscriptions"]) if variants else []

    def spread(name: str) -> tuple[int, float]:
        counts = [variant["subscriptions"][name]["delivered"] for variant in variants]
        drops = [variant["subscriptions"][name]["drop"] for variant in variants]
        return max(counts) - min(counts), max(drops)

    return sorted(sorted(names, key=spread, reverse=True)[:_MOST])


def _binned(seconds: Sequence[Mapping[int, Sequence[float]]]) -> list[list[tuple[float, float]]]:
    """For each variant and bin of time, rows received a second and their mean delay."""
    known = [second for each in seconds for second in each]
    if not known:
        return []
    first, span = min(known), max(known) - min(known) + 1
    bins = min(_BINS, span)
    found = []
    for each in seconds:
        sums = [[0.0, 0.0] for _ in range(bins)]
        for second, (rows, _, delays) in each.items():
            place = (second - first) * bins // span
            sums[place][0] += rows
            sums[place][1] += delays
        found.append([(rows * bins / span, delays / rows if rows else 0.0) for rows, delays in sums])
    return found


def _lines(series: Sequence[Sequence[float]], y: float) -> str:
    """One line a variant over its bins, with the largest value written at the top of the axis."""
    top = max((value for each in series for value in each), default=0.0) or 1.0
    parts = [_rect(_LEFT, y, _WIDTH, _PANEL, "#f7f7f7"), _text(_LEFT - 8, y + 9, f"{top:,.3g}", anchor="end", size=9)]
    parts.append(_text(_LEFT - 8, y + _PANEL, "0", anchor="end", size=9))
    for number, each in enumerate(series):
        step = _WIDTH / max(len(each) - 1, 1)
        points = " ".join(
            f"{_LEFT + k * step:.1f},{y + _PANEL * (1 - value / top):.1f}" for k, value in enumerate(each)
        )
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    return "".join(parts)


def _title(y: float, text: str) -> str:
    return f'<text x="12" y="{y:.0f}" font-weight="bold">{escape(text)}</text>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>'
