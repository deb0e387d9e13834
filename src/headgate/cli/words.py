"""How the commands write quantities."""

from __future__ import annotations


def milliseconds(value: float | None) -> str:
    """A delay in milliseconds, in seconds where that is shorter; `-` when there is none.

    >>> milliseconds(842.4), milliseconds(57_549), milliseconds(None)
    ('842', '58s', '-')
    """
    if value is None:
        return "-"
    return f"{value:,.0f}" if value < 10_000 else f"{value / 1000:,.0f}s"


def span(seconds: float) -> str:
    """A length of time in one unit, for people.

    >>> span(0.4), span(42.2), span(90), span(3 * 3600), span(200_000)
    ('0 s', '42 s', '2 min', '3 h', '2 d')
    """
    for size_s, unit, enough_s in ((1, "s", 90), (60, "min", 5400), (3600, "h", 172_800)):
        if seconds < enough_s:
            return f"{seconds / size_s:,.0f} {unit}"
    return f"{seconds / 86_400:,.0f} d"
