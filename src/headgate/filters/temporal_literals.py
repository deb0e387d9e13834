"""Values of date, timestamp and interval literals, in UTC, by the forms that Spark accepts."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from decimal import Decimal

from headgate.filters.errors import RefusedError
from headgate.filters.expr import Expr, Literal
from headgate.filters.types import DATE, DAY, DAY_TIME, TIMESTAMP, YEAR_MONTH

_MICROSECONDS = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_MONTHS = {"year": 12, "month": 1}
_MOST_MONTHS, _MOST_MICROS = 2**31 - 1, 2**63 - 1
_TOO_LONG = ("the interval is longer than 292,000 years, or 178 million in years and months", "write a shorter one")
_DATE = r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?"
_TIME = r"(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?"
_ZONE = r"(Z|UTC|[+-]\d{1,2}(?::?\d{2})?)"
_TIMESTAMP = re.compile(rf"\s*{_DATE}(?:[T ]{_TIME}\s*{_ZONE}?)?\s*")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_YEAR_TO_MONTH = re.compile(r"([+-]?)(\d+)-(\d+)")
_DAY_TO_SECOND = re.compile(r"([+-]?)(\d+) (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,6}))?")


def date(text: str) -> Expr:
    """`DATE '2026-01-31'` in days since 1970."""
    match = re.fullmatch(rf"\s*{_DATE}\s*", text)
    if match is None:
        raise RefusedError(f"{text!r} is not a date", "write DATE '2026-01-31'")
    return Literal(DATE, (_day(text, match) - _EPOCH).days)


def _day(text: str, match: re.Match[str]) -> dt.datetime:
    try:
        return dt.datetime(int(match[1]), int(match[2] or 1), int(match[3] or 1), tzinfo=dt.UTC)
    except ValueError as error:
        raise RefusedError(f"{text!r} is not a day of the calendar: {error}") from None


def timestamp(text: str) -> Expr:
    """`TIMESTAMP '2026-01-31 12:00:00.5+02:00'` in microseconds since 1970; UTC where no offset is written."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise RefusedError(f"{text!r} is not a timestamp", "write TIMESTAMP '2026-01-31 12:00:00'")
    hour, minute, second = (int(match[group] or 0) for group in (4, 5, 6))
    if hour > 23 or minute > 59 or second > 59:
        raise RefusedError(f"{text!r} has a time that no clock shows")
    since = _day(text, match) - _EPOCH + dt.timedelta(hours=hour, minutes=minute, seconds=second)
    since -= _offset(match[8])
    micros = since // dt.timedelta(microseconds=1)
    return Literal(TIMESTAMP, micros + int((match[7] or "").ljust(6, "0")[:6]))


def _offset(zone: str | None) -> dt.timedelta:
    if zone in (None, "Z", "UTC"):
        return dt.timedelta()
    assert zone is not None
    digits = zone[1:].replace(":", "")
    hours, minutes = (digits[:-2], digits[-2:]) if len(digits) > 2 else (digits, "0")
    offset = dt.timedelta(hours=int(hours), minutes=int(minutes))
    if offset > dt.timedelta(hours=18):
        raise RefusedError(f"the offset {zone} is more than 18 hours")
    return -offset if zone[0] == "-" else offset


def is_unit(word: str) -> bool:
    """Whether a word is a unit of time that an interval can have."""
    return _singular(word) in _MICROSECONDS or _singular(word) in _MONTHS


def _singular(word: str) -> str:
    return word.removesuffix("s")


def interval(parts: Sequence[tuple[str, str]]) -> Expr:
    """`INTERVAL 2 HOURS 30 MINUTES`: days and time, or years and months, never both."""
    months = micros = 0
    families: set[str] = set()
    whole_days = True
    for amount, unit in parts:
        if " to " in unit:
            return _range(amount, unit)
        name = _singular(unit)
        families.add("months" if name in _MONTHS else "time")
        whole_days &= name in ("day", "week")
        if name in _MONTHS:
            months += _whole(amount, unit) * _MONTHS[name]
        else:
            micros += _scaled(amount, unit, _MICROSECONDS[name])
    if len(families) > 1:
        raise RefusedError("an interval has years and months, or days and time, never both", "add two intervals")
    if "months" in families:
        return Literal(YEAR_MONTH, _bounded(months, _MOST_MONTHS))
    return Literal(DAY if whole_days else DAY_TIME, _bounded(micros, _MOST_MICROS))


def _bounded(amount: int, most: int) -> int:
    if abs(amount) > most:
        raise RefusedError(*_TOO_LONG)
    return amount


def _whole(amount: str, unit: str) -> int:
    try:
        return int(amount)
    except ValueError:
        raise RefusedError(f"{amount!r} is not a whole number of {unit}") from None


def _scaled(amount: str, unit: str, factor: int) -> int:
    if not unit.startswith("second"):
        return _whole(amount, unit) * factor
    try:
        micros = Decimal(amount) * factor
        too_long = abs(micros) > _MOST_MICROS
    except ArithmeticError:
        raise RefusedError(f"{amount!r} is not a number of {unit}") from None
    if too_long:  # before it is written out: 1e999999999 has a billion digits
        raise RefusedError(*_TOO_LONG)
    if micros != micros.to_integral_value():
        raise RefusedError(f"{amount} {unit} is finer than a microsecond")
    return int(micros)


def _range(amount: str, unit: str) -> Expr:
    if unit == "year to month" and (match := _YEAR_TO_MONTH.fullmatch(amount)):
        months = int(match[2]) * 12 + int(match[3])
        return Literal(YEAR_MONTH, _bounded(-months if match[1] == "-" else months, _MOST_MONTHS))
    if unit == "day to second" and (match := _DAY_TO_SECOND.fullmatch(amount)):
        days, hours, minutes, seconds = (int(match[group]) for group in (2, 3, 4, 5))
        micros = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        micros = micros * 1_000_000 + int((match[6] or "").ljust(6, "0"))
        return Literal(DAY_TIME, _bounded(-micros if match[1] == "-" else micros, _MOST_MICROS))
    raise RefusedError(
        f"{amount!r} is not an interval {unit}", "write INTERVAL '1-2' YEAR TO MONTH or '1 02:03:04' DAY TO SECOND"
    )
