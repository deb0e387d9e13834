"""The registry of what a process has set aside, published in the state log for `status` and `ledger`."""

from __future__ import annotations

import asyncio
from typing import Final

from headgate.diagnostics import FABRIC, noted
from headgate.fabric.client import Fabric
from headgate.protocol.port import FabricError
from headgate.protocol.quarantine import QuarantineReport

_REPORT_S: Final = 1.0


async def report_quarantine(fabric: Fabric, process: str) -> None:
    """Publish what this process has set aside, if that has changed since the last time.

    The first time, what was published under its name before is taken over.
    """
    quarantine, logs = fabric.quarantine, fabric.logs
    if quarantine.changed:
        if not quarantine.restored:
            stored = await fabric.last(logs.state, logs.quarantine(process))
            before = quarantine.take(logs.state, stored, QuarantineReport.decode) if stored else None
            quarantine.restore(before or QuarantineReport())
        quarantine.changed = False
        try:
            await fabric.publish(logs.quarantine(process), quarantine.report().encode())
        except BaseException:
            quarantine.changed = True
            raise


async def keep_quarantine(fabric: Fabric, process: str) -> None:
    """Publish the registry of a process whenever it has changed, until cancelled."""
    while True:
        with noted(
            FABRIC, "what was set aside is published later", FabricError
        ):  # NATS is away for a moment: what is recorded is published later
            await report_quarantine(fabric, process)
        await asyncio.sleep(_REPORT_S)


async def read_quarantine(fabric: Fabric) -> dict[str, QuarantineReport]:
    """What each process has published, by its name."""
    logs, place = fabric.logs, 0
    found: dict[str, QuarantineReport] = {}
    while batch := await fabric.read(logs.state, logs.quarantine("*"), place):
        place = batch[-1].sequence
        for stored in batch:
            report = fabric.quarantine.take(logs.state, stored, QuarantineReport.decode)
            if report is not None:
                found[stored.subject.rsplit(".", 1)[1]] = report
    return found
