"""Numbers with units inside an objective: durations in seconds, bandwidths in bytes per second, sizes in bytes."""

from __future__ import annotations

from headgate.model.units import BANDWIDTHS, DURATIONS, SIZES

UNITS: dict[str, float] = {
    **{unit: seconds for unit, seconds in DURATIONS.items() if unit != "d"},
    **BANDWIDTHS,
    **SIZES,
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
