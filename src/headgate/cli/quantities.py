"""How the commands write quantities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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


def waterfall_line(stream: str, job: Mapping[str, Any]) -> str | None:
    """Where the time of a stream's last micro-batch went, None where nothing was measured.

    >>> waterfall_line("fleet", {"latency_s": {"trigger wait": 0.4, "commit": 0.02}})
    'stream fleet, ms from the event to the commit: trigger wait 400, commit 20'
    """
    found = job.get("latency_s")
    if not found:
        return None
    parts = ", ".join(f"{stage} {1000 * seconds:.0f}" for stage, seconds in found.items())
    return f"stream {stream}, ms from the event to the commit: {parts}"
