"""Named places at which a process can be made to die, so that recovery is tested where it matters.

``HEADGATE_FAULT=relay.after_publish@3`` kills the process that reaches that place for the third time, as ``kill -9``
would. Nothing happens when the variable is not set.
"""

from __future__ import annotations

import os
import signal
from typing import Final

VARIABLE: Final = "HEADGATE_FAULT"

_hits: dict[str, int] = {}


def reach(point: str, victim: int | None = None) -> None:
    """Die here if the environment says so; `victim` is another process to kill instead, such as a task's driver."""
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return
    name, _, count = wanted.partition("@")
    if name != point:
        return
    _hits[point] = _hits.get(point, 0) + 1
    if _hits[point] >= int(count or 1):
        os.kill(victim or os.getpid(), signal.SIGKILL)
