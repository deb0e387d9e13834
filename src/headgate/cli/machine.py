"""What `headgate status` says of the machine: room on the disk, the embedded server."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from headgate.cli import options as o
from headgate.client import Client
from headgate.diagnostics import SERVICE, noted
from headgate.errors import HeadgateError
from headgate.fabric import FabricError

_ASK_S: Final = 3.0


def machine_lines(found: dict[str, Any]) -> list[str]:
    """What is wrong with the machine, and what ends it; nothing when nothing is."""
    lines = []
    if found.get("paused_ms"):
        seconds = max(time.time() - found["paused_ms"] / 1000, 0.0)
        lines.append(
            f"intake is PAUSED for {seconds:,.0f} s: the disk of {found['directory']} is almost full "
            f"({found['free_bytes'] / 1e6:,.1f} MB free, {found['reserve_bytes'] / 1e6:,.1f} MB are kept in reserve); "
            "make room, everything goes on by itself then"
        )
    if found.get("failing"):
        lines.append(f"the NATS server does not store: {found['failing']}; it is started again when there is room")
    return lines


async def ask_machine(client: Client) -> dict[str, Any] | None:
    """What a running service says of its machine, which needs no log; None when none runs."""
    with noted(SERVICE, "the service does not say how its machine is", FabricError, ValueError):
        answer = await client.fabric.request(client.fabric.logs.control("machine"), b"", _ASK_S)
        found: dict[str, Any] = json.loads(answer)
        return found
    return None


async def machine_error(error: Exception, at: o.ConnectionOptions) -> HeadgateError:
    """Why the logs of a deployment cannot be read: what its service says of the machine, else what was found here."""
    with noted(SERVICE, "the service cannot be asked about its machine", HeadgateError):
        async with await at.connect() as client:
            lines = machine_lines(await ask_machine(client) or {})
            if lines:
                return HeadgateError("; ".join(lines))
    if isinstance(error, HeadgateError):
        return error
    return HeadgateError(
        "the logs of the deployment do not answer", hint="look at nats/server.log in its state directory"
    )
