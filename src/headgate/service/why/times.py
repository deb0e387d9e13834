"""Times as answers show them."""

from __future__ import annotations

from datetime import UTC, datetime


def time_text(time_ms: int | None) -> str:
    """A time in UTC with milliseconds.

    >>> time_text(1_700_000_000_123)
    '2023-11-14 22:13:20.123 UTC'
    """
    if not time_ms:
        return "an unknown time"
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
