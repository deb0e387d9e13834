"""Numbers with units inside an objective: durations in seconds, bandwidths in bytes per second, sizes in bytes."""

from __future__ import annotations

UNITS: dict[str, float] = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "bit/s": 1 / 8,
    "kbit/s": 1e3 / 8,
    "Mbit/s": 1e6 / 8,
    "Gbit/s": 1e9 / 8,
    "B/s": 1.0,
    "kB/s": 1e3,
    "MB/s": 1e6,
    "GB/s": 1e9,
    "B": 1.0,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "KiB": 1024.0,
    "MiB": 1024.0**2,
    "GiB": 1024.0**3,
    "%": 0.01,
}


def show(value: float, unit: str) -> str:
    """A value in the unit it was written in.

    >>> show(0.2, "ms")
    '200 ms'
    """
    shown = value / UNITS[unit] if unit else value
    # The shortest number that reads back as the same value.
    for digits in range(1, 18):
        text = f"{shown:.{digits}g}"
        if float(text) * (UNITS[unit] if unit else 1.0) == value:
            break
    else:
        text, unit = repr(value), ""
    plain = f"{float(text):.0f}" if float(text).is_integer() and abs(float(text)) < 1e15 else text
    return f"{plain} {unit}" if unit else plain
