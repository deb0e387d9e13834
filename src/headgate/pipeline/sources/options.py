"""Options of Headgate's own sources: named, typed, with defaults; a wrong one is refused before Spark sees it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from headgate.errors import HeadgateError, nearest
from headgate.model import parse_rate


class SourceError(HeadgateError):
    """A source that cannot be read as it was declared."""


def check_names(source: str, options: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Refuse all options that the source does not have, with the nearest ones that it has."""
    strange = [name for name in options if name.lower() not in known]
    if strange:
        close = [near for name in strange if (near := nearest(name.lower(), known))]
        hint = f"did you mean {', '.join(map(repr, close))}?" if close else "options are " + ", ".join(known)
        names = f"option {strange[0]!r}" if len(strange) == 1 else f"options {', '.join(map(repr, strange))}"
        raise SourceError(f"the source {source!r} has no {names}", hint=hint)


def positive(options: Mapping[str, str], name: str, default: float | None = None) -> float | None:
    """A number above 0, or the default where the option is not given."""
    if name not in options:
        return default
    try:
        value = float(options[name])
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise SourceError(f"{options[name]!r} is not a value for {name!r}", hint="write a number above 0")
    return value


def count(options: Mapping[str, str], name: str, default: int | None = None) -> int | None:
    """A whole number of at least 1, or the default where the option is not given."""
    value = positive(options, name, default)
    if value is not None and value != int(value):
        raise SourceError(f"{options[name]!r} is not a value for {name!r}", hint="write a whole number of at least 1")
    return None if value is None else int(value)


def whole(options: Mapping[str, str], name: str, default: int) -> int:
    """Any whole number, or the default where the option is not given."""
    try:
        return int(options.get(name, default))
    except ValueError:
        raise SourceError(f"{options[name]!r} is not a value for {name!r}", hint="write a whole number") from None


def rate(options: Mapping[str, str], default: float) -> float:
    """Rows a second of the option `rate`, written as `200/s` or as a bare number."""
    try:
        value = parse_rate(options["rate"]) if "rate" in options else default
    except HeadgateError:
        value = 0.0
    if value <= 0:
        raise SourceError(f"{options['rate']!r} is not a value for 'rate'", hint="write a rate above 0, such as 200/s")
    return value


def one_of(options: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """One of a few words; the first is the default."""
    value = str(options.get(name, allowed[0]))
    if value not in allowed:
        close = nearest(value, allowed)
        hint = f"did you mean {close!r}?" if close else "write one of " + ", ".join(allowed)
        raise SourceError(f"{value!r} is not a value for {name!r}", hint=hint)
    return value


def instant_us(text: str, name: str) -> int:
    """Microseconds since 1970 of an ISO 8601 time; one without an offset is UTC.

    >>> instant_us("1970-01-01T00:00:01", "origin")
    1000000
    """
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise SourceError(
            f"{text!r} is not a value for {name!r}", hint="write a time such as 2026-01-01T00:00:00Z"
        ) from error
    parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    since = parsed - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def happened(rate: float, group: int, origin_us: int, now_us: int) -> int:
    """How many rows have happened at a rate, the first at the origin; rows of a group come together.

    >>> [happened(10, 20, 0, second * 1_000_000) for second in (-1, 0, 1, 2, 3)]
    [0, 20, 20, 40, 40]
    """
    if now_us < origin_us:
        return 0
    return (int((now_us - origin_us) * rate / 1e6) // group + 1) * group


def check_socket(options: Mapping[str, str]) -> None:
    """Refuse a `socket` without a server."""
    given = {name.lower(): str(value) for name, value in options.items()}
    if not given.get("host"):
        raise SourceError("the source 'socket' has no server", hint="give `host` and `port`")
    port = given.get("port", "")
    if not port.isdigit() or not 0 < int(port) < 65_536:
        said = f"{port!r} is not a value for 'port'" if port else "the source 'socket' has no port"
        raise SourceError(said, hint="give `port`, a number from 1 to 65535")
