"""Quantities with units as people write them: bandwidths, durations, sizes and rates.

Inside Headgate a bandwidth is bytes per second, a duration seconds, a size bytes and a rate rows per second, always as
a float and always named so (`upload_bytes_per_s`, `delay_s`).
"""

from __future__ import annotations

import math
import re

from headgate.errors import HeadgateError, nearest

_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\d\s].*?)?\s*")

BANDWIDTHS = {
    "bit/s": 1 / 8,
    "kbit/s": 1e3 / 8,
    "Mbit/s": 1e6 / 8,
    "Gbit/s": 1e9 / 8,
    "B/s": 1.0,
    "kB/s": 1e3,
    "MB/s": 1e6,
    "GB/s": 1e9,
}
DURATIONS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
SIZES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3}
_RATE = {"/s": 1.0, "/min": 1 / 60, "/h": 1 / 3600, "rows/s": 1.0, "rows/min": 1 / 60, "rows/h": 1 / 3600}

UNITS: dict[str, tuple[str, ...]] = {
    "bandwidth": tuple(BANDWIDTHS),
    "duration": tuple(DURATIONS),
    "size": tuple(SIZES),
    "rate": tuple(_RATE),
}


class UnitError(HeadgateError):
    """A quantity without a unit, with an unknown one, or out of range."""


def _parse(text: str | float, units: dict[str, float], what: str, example: str, *, bare: bool = False) -> float:
    match = _NUMBER.fullmatch(str(text))
    if match is None:
        raise UnitError(f"{text!r} is not a {what}", hint=f"write a number and a unit, such as {example}")
    number, unit = float(match[1]), match[2]
    if unit is None and not bare:
        raise UnitError(f"{text!r} has no unit", hint=f"write a {what} such as {example}")
    factor = 1.0 if unit is None else units.get(unit)
    if factor is None:
        close = nearest(str(unit), units)
        known = ", ".join(units)
        raise UnitError(
            f"unknown unit {unit!r} in {text!r}", hint=f"did you mean {close!r}?" if close else f"known units: {known}"
        )
    if not math.isfinite(number) or number < 0:
        raise UnitError(f"{text!r} is not a finite {what} of at least 0", hint=f"write for example {example}")
    return number * factor


def parse_bandwidth(text: str | float) -> float | None:
    """Bytes per second of a bandwidth, None for `unknown`.

    >>> parse_bandwidth("2 Mbit/s")
    250000.0
    """
    return None if str(text).strip() == "unknown" else _parse(text, BANDWIDTHS, "bandwidth", "`2 Mbit/s`")


def parse_duration(text: str | float) -> float:
    """Seconds of a duration.

    >>> parse_duration("250ms")
    0.25
    """
    return _parse(text, DURATIONS, "duration", "`250 ms`")


def parse_bytes(text: str | float) -> float:
    """Bytes of a size.

    >>> parse_bytes("4 KiB")
    4096.0
    """
    return _parse(text, SIZES, "size", "`64 KiB`", bare=True)


def parse_rate(text: str | float) -> float:
    """Rows per second of a rate; a bare number is rows per second.

    >>> parse_rate("120/min")
    2.0
    """
    return _parse(text, _RATE, "rate", "`500/s`", bare=True)
