"""Parts of dates and timestamps, in UTC and the proleptic Gregorian calendar."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headgate.filters import build
from headgate.filters.expr import Call, Expr
from headgate.filters.functions.base import Function, Resolved, count, expect
from headgate.filters.kernels.arithmetic import MICROSECONDS_PER_DAY
from headgate.filters.types import DATE, INT, TIMESTAMP
from headgate.filters.vector import Numbers, Vector

_HOUR, _MINUTE, _SECOND = 3_600_000_000, 60_000_000, 1_000_000


def _resolve(args: tuple[Expr, ...]) -> Resolved:
    count(args, 1)
    arg = expect(args[0], "a date or a timestamp", lambda kind: kind in (DATE, TIMESTAMP))
    return (build.cast(arg, TIMESTAMP) if arg.type not in (DATE, TIMESTAMP) else arg,), INT


def _resolve_time(args: tuple[Expr, ...]) -> Resolved:
    found, kind = _resolve(args)
    return (build.cast(found[0], TIMESTAMP),), kind


def _date_part(part: Callable[[Numbers], Numbers]) -> Callable[[Call, tuple[Vector, ...]], Vector]:
    def kernel(_call: Call, args: tuple[Vector, ...]) -> Vector:
        value = args[0]
        days = value.values if value.type == DATE else value.values // MICROSECONDS_PER_DAY
        return Vector(INT, part(days).astype(np.int32), value.null)

    return kernel


def _time_part(unit: int, modulus: int) -> Callable[[Call, tuple[Vector, ...]], Vector]:
    def kernel(_call: Call, args: tuple[Vector, ...]) -> Vector:
        return Vector(INT, (args[0].values // unit % modulus).astype(np.int32), args[0].null)

    return kernel


def _months(days: Numbers) -> Numbers:
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _year(days: Numbers) -> Numbers:
    return _months(days) // 12 + 1970


def _month(days: Numbers) -> Numbers:
    return _months(days) % 12 + 1


def _since(days: Numbers, unit: str) -> Numbers:
    """Days since the month or year began."""
    return days - days.astype("datetime64[D]").astype(f"datetime64[{unit}]").astype("datetime64[D]").astype(np.int64)


def _week(days: Numbers) -> Numbers:
    """The ISO week: that of the week's Thursday."""
    thursday = days - (days + 3) % 7 + 3
    return _since(thursday, "Y") // 7 + 1


_DATES: tuple[tuple[tuple[str, ...], str, Callable[[Numbers], Numbers]], ...] = (
    (("year",), "The year.", _year),
    (("quarter",), "1 to 4.", lambda days: (_month(days) + 2) // 3),
    (("month",), "1 to 12.", _month),
    (("weekofyear",), "The ISO week, 1 to 53.", _week),
    (("day", "dayofmonth"), "1 to 31.", lambda days: _since(days, "M") + 1),
    (("dayofyear",), "1 to 366.", lambda days: _since(days, "Y") + 1),
    (("dayofweek",), "1 is Sunday, 7 is Saturday.", lambda days: (days + 4) % 7 + 1),
    (("weekday",), "0 is Monday, 6 is Sunday.", lambda days: (days + 3) % 7),
)
_TIMES = (
    ("hour", "0 to 23, in UTC.", _HOUR, 24),
    ("minute", "0 to 59.", _MINUTE, 60),
    ("second", "0 to 59, without the fraction.", _SECOND, 60),
)

FUNCTIONS = (
    *(Function(names, f"{names[0]}(when)", about, _resolve, _date_part(part)) for names, about, part in _DATES),
    *(
        Function((name,), f"{name}(when)", about, _resolve_time, _time_part(unit, modulus))
        for name, about, unit, modulus in _TIMES
    ),
)
