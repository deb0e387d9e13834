"""Where the time of a start goes: named stages of the driver, in seconds since its process began."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def process_age_s() -> float:
    """How long this process has been running; 0 where the system does not say."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


class Stages:
    """Marks of a start; a stage ends where its mark is set."""

    def __init__(self) -> None:
        self._began = time.monotonic() - process_age_s()
        self.ends_s: dict[str, float] = {}

    def end(self, name: str) -> None:
        """A stage has ended now; the first time counts."""
        self.ends_s.setdefault(name, round(time.monotonic() - self._began, 2))
