"""How the figures of a status document move: rates between two of them, and their course as a sparkline."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

_BARS = "▁▂▃▄▅▆▇█"
_KEPT = 240
_LEAST_S = 0.2
_SMOOTH = 3


def sparkline(values: Sequence[float], width: int) -> str:
    """The newest values as bars between 0 and the largest of them, one character each.

    >>> sparkline([0, 1, 2, 4], 8), sparkline([5, 0, 0, 8], 2), sparkline([], 3)
    ('▁▃▅█', '▁█', '')
    """
    shown = list(values)[-width:] if width > 0 else []
    top = max(shown, default=0.0)
    if top <= 0:
        return _BARS[0] * len(shown)
    return "".join(_BARS[min(int(max(value, 0.0) / top * len(_BARS)), len(_BARS) - 1)] for value in shown)


class Trends:
    """Rates and delays of every stream, link, site and subscription, from one status document after another.

    Keys are `("in", stream)` in rows, `("link", stream, parent, child)` and `("up", site)` in bytes, `("got", name)` in
    rows, each a second; `("delay", stream)` is the mean delay from the commit of what arrived meanwhile, in ms.
    """

    def __init__(self) -> None:
        self._before: tuple[float, dict[Hashable, float], dict[str, tuple[float, float]]] | None = None
        self._series: dict[Hashable, deque[float]] = defaultdict(lambda: deque(maxlen=_KEPT))

    def add(self, status: dict[str, Any]) -> None:
        """Take in a status document."""
        now_s, counts, delays = status["time_ms"] / 1000, dict(_counts(status)), _delays(status)
        if self._before is not None:
            before_s, before, delays_before = self._before
            seconds = now_s - before_s
            if seconds < _LEAST_S:
                return
            for key, value in counts.items():
                self._series[key].append(max(value - before.get(key, 0.0), 0.0) / seconds)
            for stream, (rows, sum_ms) in delays.items():
                had_rows, had_ms = delays_before.get(stream, (0.0, 0.0))
                if rows > had_rows:
                    self._series["delay", stream].append(max(sum_ms - had_ms, 0.0) / (rows - had_rows))
        self._before = (now_s, counts, delays)

    def latest(self, *key: str) -> float | None:
        """The newest value, smoothed over a few; None as long as there is none."""
        values = list(self._series.get(key, ()))[-_SMOOTH:]
        return sum(values) / len(values) if values else None

    def line(self, width: int, *key: str) -> str:
        """The course of a value."""
        return sparkline(list(self._series.get(key, ())), width)


def _counts(status: dict[str, Any]) -> Iterator[tuple[Hashable, float]]:
    for name, each in status["streams"].items():
        yield ("in", name), each["rows_in"]
    for link, each in status["links"].items():
        parent, child = link.split("->", 1)
        for stream, size in each["stream_bytes"].items():
            yield ("link", stream, parent, child), size
    for name, each in status["sites"].items():
        yield ("up", name), each["upload_bytes"]
    for name, each in status["subscriptions"].items():
        yield ("got", name), each["delivered"]


def _delays(status: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """For each stream the rows delivered so far, and the sum of their delays in ms."""
    found: dict[str, tuple[float, float]] = {}
    for each in status["subscriptions"].values():
        mean_ms = (each.get("commit_delay_ms") or {}).get("mean")
        if mean_ms is not None:
            rows, sum_ms = found.get(each["stream"], (0.0, 0.0))
            found[each["stream"]] = (rows + each["delivered"], sum_ms + mean_ms * each["delivered"])
    return found


def tree_of(status: dict[str, Any], trends: Trends, stream: str) -> Iterator[tuple[str, str, str]]:
    """The sites that a stream is passed on to, from the top: how a line begins, the site, and its parent.

    A site that had another parent before hangs below the one that sends it more now.
    """
    senders: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for link, each in status["links"].items():
        parent, child = link.split("->", 1)
        if size := each["stream_bytes"].get(stream):
            senders[child].append((trends.latest("link", stream, parent, child) or 0.0, size, parent))
    children: dict[str, list[str]] = defaultdict(list)
    for child, found in senders.items():
        children[max(found)[2]].append(child)
    root = status["streams"][stream]["root"]
    yield from _below(root, children, "", {root})


def _below(parent: str, children: dict[str, list[str]], lead: str, seen: set[str]) -> Iterator[tuple[str, str, str]]:
    mine = [child for child in sorted(children[parent]) if child not in seen]
    seen |= set(mine)
    for number, child in enumerate(mine):
        last = number == len(mine) - 1
        yield lead + ("└─ " if last else "├─ "), child, parent
        yield from _below(child, children, lead + ("   " if last else "│  "), seen)
