"""What a site sends to readers, measured, and how many cells of its grid that lets it serve."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

_WEIGHT: Final = 0.3
_CHANGE: Final = 0.15
_FIRST_S: Final = 3.0
_PAUSE_S: Final = 0.25
_MOST_S: Final = 10.0
UNMEASURED: Final = 1 << 48


@dataclass(slots=True)
class FillingPart:
    """Tells rows that come as they are made from those that were kept for the part and come all at once.

    The second kind ends with the first pause, and after ten seconds in any case: what comes then without a pause is
    what the stream makes.
    """

    began_s: float | None = None
    steady: bool = False

    def take(self, asked_s: float, now: float) -> bool:
        """Whether rows that came now, asked for since `asked_s`, came as they were made."""
        if self.began_s is None:
            self.began_s = now  # the first are waited for while the reading begins, whatever their age
        elif now - asked_s >= _PAUSE_S or now - self.began_s >= _MOST_S:
            self.steady = True
        return self.steady


@dataclass(slots=True)
class SendingLoad:
    """Bytes of one site and stream. `bytes_per_s` is what it may send; times come in as arguments.

    Rows come in bursts, a commit at a time, so that what a cell costs is a mean: first over three seconds, then over
    about ten looks. What is measured outlives a change of the parts.
    """

    bytes_per_s: float
    sent_bytes: int = 0
    sent_rows: int = 0
    replica_bytes: int = 0
    arrived_rows: int = 0
    used_bytes_per_s: float = 0.0
    row_bytes: float = 0.0
    rows_per_cell_s: float = 0.0
    capacity: int = UNMEASURED
    _due_s: float = 0.0
    _seen: tuple[float, int, int] = field(default=(0.0, 0, 0))
    _first: tuple[float, float, int] = field(default=(0.0, 0.0, 0))

    def wait_s(self, now: float) -> float:
        """How long what was sent so far takes at this bandwidth, from now on."""
        return max(0.0, self._due_s - now)

    def send(self, now: float, size: int, rows: int, *, replica: bool) -> None:
        """Count an answer."""
        self._due_s = max(now, self._due_s) + size / self.bytes_per_s
        self.sent_bytes += size
        self.sent_rows += rows
        self.replica_bytes += size if replica else 0
        if rows:
            self.row_bytes = (
                size / rows if not self.row_bytes else self.row_bytes + 0.2 * (size / rows - self.row_bytes)
            )

    def look(self, now: float, cells: int) -> int | None:
        """Take in what `arrived_rows` counts of so many cells; the cells that can be served, where that has changed."""
        before_s, before_rows, before_bytes = self._seen
        self._seen = (now, self.arrived_rows, self.sent_bytes)
        if not before_s or now <= before_s:
            return None
        took_s = now - before_s
        self.used_bytes_per_s += _WEIGHT * ((self.sent_bytes - before_bytes) / took_s - self.used_bytes_per_s)
        if not cells or not self._measure(took_s, self.arrived_rows - before_rows, cells):
            return None
        found = max(1, int(self.bytes_per_s / (self.rows_per_cell_s * self.row_bytes)))
        if abs(found - self.capacity) <= _CHANGE * self.capacity:
            return None
        self.capacity = found
        return found

    def _measure(self, took_s: float, rows: int, cells: int) -> bool:
        """Whether it is known what a cell costs."""
        if self.rows_per_cell_s:
            self.rows_per_cell_s += 0.1 * (rows / took_s / cells - self.rows_per_cell_s)
            return bool(self.row_bytes)
        seconds, cell_seconds, counted = self._first
        self._first = (seconds + took_s, cell_seconds + took_s * cells, counted + rows)
        if self._first[0] < _FIRST_S or not self._first[2] or not self.row_bytes:
            return False
        self.rows_per_cell_s = self._first[2] / self._first[1]
        return True
