"""Time series of the figures that the status has, kept in memory for an hour."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any, Final

from headgate.api.problems import ApiError

KEPT: Final = 360
"""Samples that are kept: an hour at one every ten seconds."""
MOST: Final = 1000
"""Subscriptions that have series."""

FIGURES: Final[Mapping[str, tuple[str, ...]]] = {
    "streams": ("rows_in", "evaluated", "dead", "shed", "head", "difference"),
    "sites": ("upload_bytes", "download_bytes", "inbox_bytes", "queued_rows", "level", "cpu_s"),
    "links": ("bytes", "messages", "latency_s"),
    "subscriptions": ("matched", "delivered", "reduced", "expired", "in_flight", "queued_rows", "level"),
}
"""What is kept of each kind of thing."""

_Key = tuple[str, str, str]


class Series:
    """The last samples: one ring of times, and one of values for each figure of each thing."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._count = 0
        self._times = array("q", [0] * kept)
        self._values: dict[_Key, array[float]] = {}

    def add(self, status: Mapping[str, Any]) -> None:
        """Keep the figures of a status; those of things that are gone for as long as the series last are forgotten."""
        if self._count and status["time_ms"] <= self._times[(self._count - 1) % self._kept]:
            return  # the same reading as before
        place = self._count % self._kept
        self._times[place] = status["time_ms"]
        for ring in self._values.values():
            ring[place] = math.nan
        for kind, figures in FIGURES.items():
            things = status[kind]
            for name in things if kind != "subscriptions" or len(things) <= MOST else ():
                for figure in figures:
                    value = things[name].get(figure)
                    if value is not None:
                        self._ring((kind, name, figure))[place] = value
        self._count += 1
        if place == 0:
            empty = [key for key, ring in self._values.items() if all(map(math.isnan, ring))]
            for key in empty:
                del self._values[key]

    def _ring(self, key: _Key) -> array[float]:
        if key not in self._values:
            self._values[key] = array("d", [math.nan] * self._kept)
        return self._values[key]

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
