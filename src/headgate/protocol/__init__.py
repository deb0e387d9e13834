"""The closed world in which everything that decides about rows runs: events in, commands out.

A *machine* (`kernel`) is a relay, a reader, a committer, a keeper of the books or a purger. It has no socket, no clock
and no thread: `handle(event, now)` gives it what happened and returns what is to be done. Its steps are written as
coroutines over a *port* (`port`), whose calls become commands; the answer to a command resumes the coroutine that
waits for it. Whoever carries commands out (`headgate.fabric.runner` on a real server, the simulated world of
`headgate_studies` in virtual time) decides nothing. `records` has every small document that lies in a log, with one
encoder and one decoder. May import `wire` and what lies below it; no asyncio, no time, no network.
"""

from headgate.protocol.kernel import (
    Answer,
    Asked,
    Completed,
    Event,
    Failed,
    Instant,
    Issued,
    Machine,
    Signal,
    WakeAt,
    Woken,
)
from headgate.protocol.port import (
    FabricError,
    FencedError,
    LogFullError,
    LogPort,
    MachinePort,
    Stored,
    TooLargeError,
)

__all__ = [
    "Answer",
    "Asked",
    "Completed",
    "Event",
    "FabricError",
    "Failed",
    "FencedError",
    "Instant",
    "Issued",
    "LogFullError",
    "LogPort",
    "Machine",
    "MachinePort",
    "Signal",
    "Stored",
    "TooLargeError",
    "WakeAt",
    "Woken",
]
