"""A site's part of the tuner on a real connection, for as long as the tuner owns the deployment's plan."""

from __future__ import annotations

import asyncio
from typing import Final

from headgate.diagnostics import site_log
from headgate.fabric import Fabric
from headgate.fabric.placed import HostFabric
from headgate.fabric.roled import RoleFabric
from headgate.fabric.runner import run_machine
from headgate.protocol.port import FabricError
from headgate.relay.tables import Tables

_LOOK_S: Final = 2.0


class UnitNode:
    """Runs the unit of one site beside its relay. `run` works until it is cancelled; a unit keeps nothing.

    Letters go by home's server, also between sites that have servers of their own.
    """

    def __init__(self, fabric: Fabric, site: str, tables: Tables | None = None) -> None:
        self.fabric = fabric.home if isinstance(fabric, HostFabric) else fabric
        self.site = site
        self.tables = tables or Tables(fabric)

    async def run(self) -> None:
        """Wait until the tuner owns the plan, then take part; what only the tuner needs is imported then."""
        while not await self._tuned():  # noqa: ASYNC110 - the server knows what is in force, and no event here does
            await asyncio.sleep(_LOOK_S)
        from headgate.protocol.tuning import UnitLetter
        from headgate.protocol.tuning_codec import decode_tuning
        from headgate.relay.unit import UnitMachine
        from headgate.wire.frame import WireError

        async def signed(asker: str, data: bytes) -> bool:
            try:
                return bool(decode_tuning(data, UnitLetter).sender == asker)
            except WireError:
                return False

        log = site_log(self.site)
        machine = UnitMachine(
            self.site,
            self.fabric.logs,
            max_payload=self.fabric.max_payload,
            codec=self.fabric.codec,
            quarantine=self.fabric.quarantine,
        )
        if isinstance(self.fabric, RoleFabric):
            self.fabric.guards[machine.service] = signed
        log.info("the tuner's unit of %s is started", self.site)
        await run_machine(self.fabric, machine, self.tables.snapshot, services=(machine.service,), log=log)

    async def _tuned(self) -> bool:
        try:
            return (await self.tables.newest()).deployment.tuned
        except FabricError:
            return False
