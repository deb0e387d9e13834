"""Figures over time, kept in memory: an hour of what the status has, and the rates of the last seconds."""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from headgate.api.problems import ApiError

KEPT: Final = 360
"""Samples that are kept: an hour at one every ten seconds."""
MOST: Final = 1000
"""Subscriptions that have series; where there are more, those that were asked about last have."""

FIGURES: Final[Mapping[str, tuple[str, ...]]] = {
    "streams": ("rows_in", "evaluated", "dead", "shed", "head", "difference"),
    "sites": ("upload_bytes", "download_bytes", "inbox_bytes", "queued_rows", "level", "cpu_s"),
    "links": (
        "bytes", "messages", "latency_s", "round_trip_s", "resent", "measured_bytes_per_s", "queued_rows", "reduced",
    ),
    "subscriptions": (
        "matched", "delivered", "reduced", "expired", "in_flight", "queued_rows", "level", "quality", "commit_delay_ms",
        "event_delay_ms",
    ),
    "planner": ("quality", "quality_predicted", "quality_reachable", "moves", "changes", "quality_zeros"),
}  # fmt: skip
"""What is kept of each kind of thing. The planner is one thing, named `_`; delays are means since the start."""

_Key = tuple[str, str, str]


class Series:
    """The last samples: one ring of times, and one of values for each figure of each thing."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._count = 0
        self._times = array("q", [0] * kept)
        self._values: dict[_Key, array[float]] = {}
        self._asked: OrderedDict[str, None] = OrderedDict()

    def add(self, status: Mapping[str, Any]) -> None:
        """Keep the figures of a status; those of things that are gone for as long as the series last are forgotten."""
        if self._count and status["time_ms"] <= self._times[(self._count - 1) % self._kept]:
            return  # the same reading as before
        place = self._count % self._kept
        self._times[place] = status["time_ms"]
        for ring in self._values.values():
            ring[place] = math.nan
        for kind, figures in FIGURES.items():
            things = {"_": status["planner"]} if kind == "planner" else status[kind]
            for name in self._sampled(things) if kind == "subscriptions" else things:
                for figure in figures:
                    value = _figure(status, things[name], name, figure)
                    if value is not None:
                        self._ring((kind, name, figure))[place] = value
        self._count += 1
        if place == 0:
            empty = [key for key, ring in self._values.items() if all(map(math.isnan, ring))]
            for key in empty:
                del self._values[key]

    def _sampled(self, things: Mapping[str, Any]) -> Iterable[str]:
        """The subscriptions to sample: all, or where those are too many, those that were asked about."""
        return things if len(things) <= MOST else [name for name in self._asked if name in things]

    def _ring(self, key: _Key) -> array[float]:
        if key not in self._values:
            self._values[key] = array("d", [math.nan] * self._kept)
        return self._values[key]

    def has(self, kind: str, name: str) -> bool:
        """Whether anything was sampled of a thing. From now on it is sampled, if it was not."""
        if kind == "subscriptions":
            self._asked[name] = None
            self._asked.move_to_end(name)
            if len(self._asked) > MOST:
                self._asked.popitem(last=False)
        return any((kind, name, figure) in self._values for figure in FIGURES[kind])

    def of(self, kind: str, name: str, since_ms: int = 0) -> dict[str, Any]:
        """The series of one thing, oldest first."""
        rings = {
            figure: self._values[kind, name, figure] for figure in FIGURES[kind] if (kind, name, figure) in self._values
        }
        if not rings:
            raise ApiError(
                f"nothing was sampled of {name[:100]!r} among {kind}",
                hint="they come every ten seconds; is the name right?",
                kind="unknown",
            )
        first = max(self._count - self._kept, 0)
        places = [n % self._kept for n in range(first, self._count) if self._times[n % self._kept] > since_ms]
        values = {
            figure: [None if math.isnan(ring[place]) else ring[place] for place in places]
            for figure, ring in rings.items()
        }
        return {"times_ms": [self._times[place] for place in places], "series": values}


def _figure(status: Mapping[str, Any], thing: Mapping[str, Any], name: str, figure: str) -> float | None:
    """A figure of a thing; the quality is in the planner's report, and of a delay the mean is kept."""
    if figure == "quality" and "quality" not in thing:
        thing = status["planner"].get("subscriptions", {}).get(name, {})
    value = thing.get(figure)
    found: float | None = value.get("mean") if isinstance(value, Mapping) else value
    return found


RATES: Final[Mapping[str, tuple[str, ...]]] = {
    "streams": ("rows_in", "dead", "shed"),
    "sites": ("upload_bytes", "download_bytes", "cpu_s"),
    "links": ("bytes", "messages", "reduced"),
}
"""Counters whose rates are kept."""
SPAN_MS: Final = 12_000
"""Rates are over at most about this long."""


class Rates:
    """How fast the counters of streams, sites and links grow, by the readings of the last seconds."""

    def __init__(self, span_ms: int = SPAN_MS) -> None:
        self._span_ms = span_ms
        self._readings: deque[tuple[int, dict[_Key, float]]] = deque(maxlen=64)

    def add(self, status: Mapping[str, Any]) -> None:
        """Take in a reading of the status."""
        values = {
            (kind, name, figure): float(thing[figure])
            for kind, figures in RATES.items()
            for name, thing in status[kind].items()
            for figure in figures
            if thing.get(figure) is not None
        }
        while len(self._readings) > 1 and self._readings[1][0] <= status["time_ms"] - self._span_ms:
            self._readings.popleft()
        self._readings.append((status["time_ms"], values))

    def of(self, kind: str, name: str, figure: str) -> float | None:
        """How fast a counter grows, a second; None where it was not read twice or has begun anew."""
        if len(self._readings) < 2:
            return None
        (then_ms, then), (now_ms, now) = self._readings[0], self._readings[-1]
        key = (kind, name, figure)
        if now_ms <= then_ms or key not in now:
            return None
        grown = now[key] - then.get(key, 0.0)
        return None if grown < 0 else grown / ((now_ms - then_ms) / 1000)
