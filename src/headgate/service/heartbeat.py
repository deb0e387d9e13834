"""Whether the service of a deployment runs: it says so every other second, and it says when it stops.

Who reads it later can tell a deployment that was stopped from one that ended without a word, and since when.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final, Literal, TypedDict

from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import Fabric, FabricError
from headgate.protocol.reports import ServiceReport

_EVERY_S: Final = 2.0
SILENT_MS: Final = 15_000
"""A service that has said nothing for so long is not running, or cannot be heard."""

State = Literal["running", "stopped", "silent", "unknown"]


class Pulse(TypedDict):
    """What is known: `silent` ended without a word, `unknown` was never heard of; `time_ms` is its last word."""

    state: State
    time_ms: int | None


async def keep_pulse(fabric: Fabric) -> None:
    """Say that the service runs, until cancelled."""
    while True:
        with noted(SERVICE, "could not say that the service runs", FabricError):
            await _say(fabric, "running")
        await asyncio.sleep(_EVERY_S)


async def say_stopped(fabric: Fabric) -> None:
    """Say that the service stops now."""
    with noted(SERVICE, "could not say that the service stops", FabricError, level=logging.WARNING):
        await _say(fabric, "stopped")


async def _say(fabric: Fabric, state: State) -> None:
    report = ServiceReport(state=state, time_ms=int(time.time() * 1000))
    await fabric.publish(fabric.logs.stats("service", "_"), report.encode())


async def read_pulse(fabric: Fabric, now_ms: int) -> Pulse:
    """Whether the service runs now, and when it was last heard of."""
    stored = await fabric.last(fabric.logs.state, fabric.logs.stats("service", "_"))
    if stored is None:
        return {"state": "unknown", "time_ms": None}
    with noted(SERVICE, "the service's last word cannot be read", HeadgateError):
        report = ServiceReport.decode(stored.data)
        return judged(report.state, report.time_ms, now_ms)
    return {"state": "unknown", "time_ms": None}


def judged(state: str, time_ms: int, now_ms: int) -> Pulse:
    """The state of a service by its last word.

    >>> judged("running", 1_000, 5_000)["state"], judged("running", 1_000, 60_000)["state"]
    ('running', 'silent')
    >>> judged("stopped", 1_000, 60_000)
    {'state': 'stopped', 'time_ms': 1000}
    """
    if state == "running" and now_ms - time_ms > SILENT_MS:
        return {"state": "silent", "time_ms": time_ms}
    return {"state": "running" if state == "running" else "stopped", "time_ms": time_ms}


def stream_state(service: Pulse, job: dict[str, Any], stream: dict[str, Any]) -> str:
    """What a stream does: what its query last said while the service runs, and `stopped` when it does not.

    >>> stream_state({"state": "stopped", "time_ms": 1}, {"state": "ready"}, {"state": "running"})
    'stopped'
    """
    said = str(stream.get("state", job.get("state", "-")))
    if service["state"] in ("stopped", "silent"):
        return "stopped, had failed" if said == "failed" else "stopped"
    return said
