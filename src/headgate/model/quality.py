"""How good delivery must be: a QoS function of drop and delay as data, and the quality that was promised.

A QoS function maps the drop (fraction of matched rows that did not arrive, 0 to 1) and the mean delay in seconds to a
value from 0 (worthless) to 1 (perfect). It never rises when drop or delay rise. Two forms exist: the template of the
QASD paper (section 6.2) by its two thresholds, and tables, either steps or linear between the given points.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from headgate.errors import HeadgateError, nearest
from headgate.model.units import parse_duration


class QualityError(HeadgateError):
    """A quality document that is not a monotone QoS function."""


@dataclass(frozen=True, slots=True)
class QualityTable:
    """A QoS function by its values at a grid of drops and delays: `values[i][j]` belongs to `drops[i]`, `delays_s[j]`.

    `steps`: the value holds up to and including its drop and delay, and 0 beyond the last of either.
    `linear`: bilinear between the points, constant before the first and beyond the last.

    >>> QualityTable("steps", (0.1, 0.5), (1.0, 5.0), ((1.0, 0.8), (0.4, 0.2))).value(0.3, 2.0)
    0.2
    """

    kind: str
    drops: tuple[float, ...]
    delays_s: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if self.kind not in ("steps", "linear"):
            raise ValueError(f"a quality table is of kind 'steps' or 'linear', not {self.kind!r}")
        for name, points, top in (("drop", self.drops, 1.0), ("delay", self.delays_s, math.inf)):
            if not points or any(not 0 <= point <= top for point in points):
                raise ValueError(f"{name} points of a quality table must be given and lie within 0 to {top}")
            if any(a >= b for a, b in pairwise(points)):
                raise ValueError(f"{name} points of a quality table must rise")
        if len(self.values) != len(self.drops) or any(len(row) != len(self.delays_s) for row in self.values):
            raise ValueError(f"a quality table needs {len(self.drops)} rows of {len(self.delays_s)} values")
        if any(not 0 <= value <= 1 for row in self.values for value in row):
            raise ValueError("values of a quality table must lie within 0 to 1")
        if any(a < b for row in self.values for a, b in pairwise(row)) or any(
            a < b for one, two in pairwise(self.values) for a, b in zip(one, two, strict=True)
        ):
            raise ValueError("values of a quality table must not rise with drop or delay")

    def value(self, drop: float, delay_s: float) -> float:
        """The quality at that drop and delay."""
        if self.kind == "steps":
            i, j = bisect_left(self.drops, drop), bisect_left(self.delays_s, delay_s)
            return self.values[i][j] if i < len(self.drops) and j < len(self.delays_s) else 0.0
        i, x = _between(self.drops, drop)
        j, y = _between(self.delays_s, delay_s)
        i2, j2 = min(i + 1, len(self.drops) - 1), min(j + 1, len(self.delays_s) - 1)
        low = (1 - y) * self.values[i][j] + y * self.values[i][j2]
        high = (1 - y) * self.values[i2][j] + y * self.values[i2][j2]
        return (1 - x) * low + x * high


def _between(points: Sequence[float], at: float) -> tuple[int, float]:
    """The point at or before a place and how far the place is towards the next one."""
    if at <= points[0]:
        return 0, 0.0
    if at >= points[-1]:
        return len(points) - 1, 0.0
    index = bisect_left(points, at) - 1
    return index, (at - points[index]) / (points[index + 1] - points[index])


@dataclass(frozen=True, slots=True)
class Quality:
    """A QoS function of drop and delay, and the contract `at_least` on its value in [0, 1].

    Without a table it is the template: 1 while neither threshold is passed, 0.5 while only the delay is, and
    0.5 * drop threshold / drop once too much is dropped (so 0 when the threshold is 0 and anything is dropped).

    >>> mine = Quality(drop=0.1, delay_s=2.0)
    >>> mine.value(0.05, 1.0), mine.value(0.05, 3.0), mine.value(0.2, 1.0)
    (1.0, 0.5, 0.25)
    """

    drop: float = 1.0
    delay_s: float = 10.0
    at_least: float | None = None
    table: QualityTable | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.drop <= 1:
            raise ValueError(f"a tolerated drop lies within 0 to 1, not {self.drop}")
        if not self.delay_s >= 0:
            raise ValueError(f"a tolerated delay is at least 0 s, not {self.delay_s}")
        if self.at_least is not None and not 0 <= self.at_least <= 1:
            raise ValueError(f"a promised quality lies within 0 to 1, not {self.at_least}")

    def value(self, drop: float, delay_s: float) -> float:
        """The quality at that drop and mean delay."""
        if self.table is not None:
            return self.table.value(drop, delay_s)
        if drop <= self.drop:
            return 1.0 if delay_s <= self.delay_s else 0.5
        return 0.5 * self.drop / drop


# The four corners of figure 1: what an application tolerates, from nothing to both.
PRESETS: Mapping[str, Quality] = {
    "strict": Quality(drop=0.0, delay_s=1.0),
    "timely": Quality(drop=0.5, delay_s=1.0),
    "complete": Quality(drop=0.0, delay_s=60.0),
    "relaxed": Quality(drop=0.5, delay_s=60.0),
}

_KEYS = ("delay", "drop", "at_least", "preset", "table")


def parse_quality(document: Mapping[str, Any] | str | None, where: str | None = None) -> Quality:
    """The quality that a document of a deployment file asks for; a bare word is a preset.

    >>> parse_quality({"delay": "500 ms", "drop": 0.1, "at_least": 0.8})
    Quality(drop=0.1, delay_s=0.5, at_least=0.8, table=None)
    >>> parse_quality("timely").drop
    0.5
    """
    if document is None:
        return Quality()
    if isinstance(document, str):
        document = {"preset": document}
    if not isinstance(document, Mapping):
        raise QualityError(f"{document!r} is not a quality", where=where, hint=f"write a map of {', '.join(_KEYS)}")
    for key in document:
        if key not in _KEYS:
            close = nearest(str(key), _KEYS)
            hint = f"did you mean {close!r}?" if close else f"known keys: {', '.join(_KEYS)}"
            raise QualityError(f"unknown key {key!r} in a quality", where=where, hint=hint)
    try:
        quality = _preset(document.get("preset"))
        if "drop" in document:
            quality = replace(quality, drop=_number(document["drop"], "drop"))
        if "delay" in document:
            quality = replace(quality, delay_s=parse_duration(document["delay"]))
        if document.get("at_least") is not None:
            quality = replace(quality, at_least=_number(document["at_least"], "at_least"))
        if document.get("table") is not None:
            quality = replace(quality, table=_table(document["table"]))
    except ValueError as error:
        raise QualityError(str(error), where=where) from error
    return quality


def _preset(name: object) -> Quality:
    if name is None:
        return Quality()
    if name not in PRESETS:
        close = nearest(str(name), PRESETS)
        raise QualityError(
            f"no quality preset {name!r}", hint=f"did you mean {close!r}?" if close else f"known: {', '.join(PRESETS)}"
        )
    return PRESETS[str(name)]


def _table(document: Any) -> QualityTable:
    if not isinstance(document, Mapping) or not {"drop", "value"} <= set(document):
        raise QualityError(
            "a quality table is a map of kind, drop, delay and value",
            hint="for example {kind: linear, drop: [0, 0.5], delay: [1 s, 10 s], value: [[1, 0.5], [0.4, 0]]}",
        )
    rows = document["value"]
    if "delay" not in document:
        rows = [[value] for value in rows]
    delays = [parse_duration(delay) for delay in document["delay"]] if "delay" in document else [1e9]
    return QualityTable(
        str(document.get("kind", "steps")),
        tuple(_number(drop, "drop") for drop in document["drop"]),
        tuple(delays),
        tuple(tuple(_number(value, "value") for value in row) for row in rows),
    )


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise QualityError(f"{name} must be a number, not {value!r}")
    return float(value)
