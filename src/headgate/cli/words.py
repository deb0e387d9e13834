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
