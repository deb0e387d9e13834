"""Which fault met which state: what a relay was doing at the moment something happened to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headgate.relay.machine import RelayMachine
from headgate.virtual.process import Instance

STATES: Final = ("idle", "queued", "publishing", "packing", "gap open", "stalled", "restoring", "down")
"""Restoring: it has started, but has not met a block yet. Down: it was dead or paused already."""


def states_of(relay: Instance) -> Iterator[str]:
    """Everything that a relay is in the middle of; `idle` alone if that is nothing."""
    machine = relay.machine
    assert isinstance(machine, RelayMachine)
    core = machine.state.core
    outputs = list(core.outputs.values())
    found = {
        "down": not relay.alive or relay.paused,
        "restoring": not outputs,
        "publishing": any(each.busy is not None for each in outputs),
        "packing": any(each.packing for each in outputs),
        "stalled": any(each.stalled for each in outputs),
        "queued": any(each.queue for each in outputs),
        "gap open": any(core.gap(stream) is not None for stream in {key.stream for key in core.outputs}),
    }
    busy = [state for state, holds in found.items() if holds]
    yield from busy or ["idle"]
