"""A site's part of the tuner on a real connection, for as long as the tuner owns the deployment's plan."""

from __future__ import annotations

import asyncio
from typing import Final

from headgate.diagnostics import site_log
from headgate.fabric import Fabric, cancel_all
from headgate.fabric.placed import HostFabric
from headgate.fabric.runner import run_machine
from headgate.relay.tables import Tables

_PAUSE_S: Final = 1.0


class UnitNode:
    """Runs the unit of one site beside its relay. `run` works until it is cancelled; a unit keeps nothing.

    Letters go by home's server, also between sites that have servers of their own.
    """

    def __init__(self, fabric: Fabric, site: str, tables: Tables | None = None) -> None:
        self.fabric = fabric.home if isinstance(fabric, HostFabric) else fabric
        self.site = site
        self.tables = tables or Tables(fabric)

    async def run(self) -> None:
        """Take part while the newest revision says that the tuner owns the plan."""
        tasks: list[asyncio.Task[None]] = []
        try:
            async for snapshot in self.tables.heads():
                if snapshot.deployment.tuned and not tasks:
                    tasks.append(asyncio.create_task(self._take_part(), name=f"unit of {self.site}"))
                elif tasks and not snapshot.deployment.tuned:
                    await cancel_all([tasks.pop()])
        finally:
            await cancel_all(tasks)

    async def _take_part(self) -> None:
        """Run the unit; one that fails is started again with nothing. What only the tuner needs is imported here."""
        from headgate.protocol.tuning import UnitLetter
        from headgate.protocol.tuning_codec import decode_tuning
        from headgate.relay.unit import UnitMachine
        from headgate.wire.frame import WireError

        async def signed(asker: str, data: bytes) -> bool:
            try:
                return bool(decode_tuning(data, UnitLetter).sender == asker)
            except WireError:
                return False

        log, fabric = site_log(self.site), self.fabric
        while True:
            machine = UnitMachine(
                self.site,
                fabric.logs,
                max_payload=fabric.max_payload,
                codec=fabric.codec,
                quarantine=fabric.quarantine,
            )
            fabric.guards[machine.service] = signed
            try:
                await run_machine(fabric, machine, self.tables.snapshot, services=(machine.service,), log=log)
            except Exception as error:  # noqa: BLE001 - rows do not depend on it: it is told, and tried again
                log.warning("the tuner's unit of %s has failed and is started again: %r", self.site, error)
            await asyncio.sleep(_PAUSE_S)
