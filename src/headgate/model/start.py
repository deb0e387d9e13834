"""Where a subscription starts in its stream: now, with the earliest row that is kept, at a time, or at a row."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Any, Final

from headgate.errors import HeadgateError

NOW: Final = "now"
EARLIEST: Final = "earliest"
_HINT: Final = "write now, earliest, a time such as 2026-01-31T12:00:00Z, or the sequence number of a row"


class StartError(HeadgateError):
    """A start that is no place in a stream."""


def parse_start(value: Any) -> str:
    """The one way to write a start: a time in UTC, a number as digits.

    >>> parse_start("2026-01-31T13:00:00+01:00"), parse_start(120), parse_start("earliest")
    ('2026-01-31T12:00:00Z', '120', 'earliest')
    """
    if isinstance(value, datetime | date):
        return _written(value if isinstance(value, datetime) else datetime.combine(value, time()))
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise StartError(f"{value!r} is no place to start", hint=_HINT)
    text = str(value).strip()
    if text in (NOW, EARLIEST):
        return text
    if text.isascii() and text.isdigit():
        if not 0 < int(text) < 1 << 63:
            raise StartError(f"{value!r} is no sequence number", hint="rows are counted from 1")
        return str(int(text))
    try:
        return _written(datetime.fromisoformat(text))
    except ValueError:
        raise StartError(f"{value!r} is no place to start", hint=_HINT) from None


def _written(moment: datetime) -> str:
    """A time in UTC; one without an offset is UTC."""
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.replace(tzinfo=None).isoformat() + "Z"


def takes(start: str, upto: int, time_ms: int) -> bool:
    """Whether a start takes a commit from before the subscription was made, by its last row and its time.

    Whole commits are taken: one that holds the row, or was made at the time or later.

    >>> takes("120", 130, 0), takes("120", 119, 0), takes("1970-01-01T00:00:02Z", 5, 1999), takes("now", 5, 1)
    (True, False, False, False)
    """
    if start in (NOW, EARLIEST):
        return start == EARLIEST
    if start.isdigit():
        return upto >= int(start)
    return time_ms >= datetime.fromisoformat(start).timestamp() * 1000
